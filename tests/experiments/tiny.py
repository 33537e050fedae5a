"""A study of seconds for tests of real sweeps, with a method that can be told to fail."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro
from torch import Tensor, nn

from cse_core.method import Batch, Encode, Loss
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.seeding import seed_for
from experiments import catalogue
from experiments.scales import SCALES
from experiments.searches import SEARCHES, Between, Search
from experiments.study import Row, Scale, Study

CORPUS = Corpus("synthetic", 320)
SCALE = Scale(name="tiny", title="", backbones={}, corpus=CORPUS, seeds=(42,), dev="synthetic_dev")


@dataclass(frozen=True, kw_only=True)
class Faulty(SimCSE):
    """SimCSE that fails at its sixth step: by an error, by a NaN, or by the loss of its process, once."""

    name: ClassVar[str] = "faulty"
    fault: str = "none"

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """See Method."""
        sixth = batch.generator.initial_seed() == seed_for(42, "loss/5")
        found = SimCSE.loss(self, encode, batch, modules, targets)
        if sixth and self.fault == "raise":
            raise RuntimeError("told to fail")
        if sixth and self.fault == "nan":
            return Loss(found.total * float("nan"), found.terms)
        marker = Path(os.environ["TINY_MARKER"])
        if sixth and self.fault == "kill" and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found


def run(fault: str = "none", seed: int = 42, **method: object) -> Run:
    """Twenty steps, evaluated every four."""
    chosen = RankCSE(**method) if method else SimCSE() if fault == "none" else Faulty(fault=fault)  # ty: ignore
    return Run(
        method=chosen,
        backbone=Pretrained("wiki-tiny"),
        corpus=CORPUS,
        seed=seed,
        batch_size=16,
        eval_steps=4,
        learning_rate=3e-4,
    )


def taught(teacher: Run) -> Run:
    """RankCSE with one teacher."""
    return run(teachers=(Teacher(teacher, select="synthetic_dev"),))


def study(name: str, scale: Scale, **runs: Run) -> Study:
    """A study of runs by label."""
    rows = tuple(Row(label=k, encoder=r, seeds=(r.seed,), select=scale.dev) for k, r in runs.items())
    return Study(name=name, source="", question="", scale=scale, rows=rows, columns=("synthetic",))


def healthy(scale: Scale) -> Study:
    """A teacher, its student and two more."""
    return study("healthy", scale, a=run(seed=1), b=run(seed=2), student=taught(run(seed=1)))


def faulty(scale: Scale) -> Study:
    """What can go wrong in a run, beside one that goes well."""
    broken = run("raise")
    runs = {"well": run(seed=1), "raises": broken, "nan": run("nan"), "lost": run("kill"), "after": taught(broken)}
    return study("faulty", scale, **runs)


def searches() -> dict[str, Callable[[Scale], Search]]:
    """One that Optuna samples, of a run that needs another; a grid with a fault in half of it."""
    rates = {"learning_rate": Between(1e-5, 1e-3), "student_temperature": (0.025, 0.05)}
    sampled = Search(name="tiny", source="", scale=SCALE, start=taught(run(seed=1)), space=rates, trials=5)
    values = {"temperature": (0.05, 0.1), "learning_rate": (3e-4, 1e30)}
    grid = Search(name="tiny-grid", source="", scale=SCALE, start=run(), space=values)
    return {"tiny": lambda scale: sampled, "tiny-grid": lambda scale: grid}


def main() -> None:
    """The sweep's command line with these studies beside the project's own."""
    from experiments import sweep

    SCALES["tiny"] = SCALE
    SEARCHES.update(searches())
    catalogue.STUDIES.update({"healthy": healthy, "faulty": faulty})
    sys.exit(sweep.main(tyro.cli(sweep.Options)))
