"""A study of seconds for tests of real sweeps, with a method that can be set to fail."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from cse_core.evaluation import suite
from cse_core.method import Batch, Encode, Loss
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.seeding import seed_for
from experiments.schema.scales import SCALES
from experiments.schema.study import Row, Scale, Study
from experiments.searches.spaces import SEARCHES, LogUniform, Search
from experiments.studies import catalogue
from tests.support.polling import until

CORPUS = Corpus("synthetic", 320)
SCALE = Scale(name="tiny", title="", backbones={}, corpus=CORPUS, seeds=(42,), dev="synthetic_dev")


def die() -> None:
    """As the kernel ends a process that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_saving(state: object, path: Path) -> None:
    """In place of torch.save: a state that is half written."""
    mark("kill_saving")
    path.write_bytes(b"half a state")
    die()


def die_scoring(*given: object, **named: object) -> None:
    """In place of the evaluation."""
    mark("kill_scoring")
    die()


def no_space(state: object, path: Path) -> None:
    """In place of torch.save, once: a disk that is full."""
    torch.save = SAVE
    mark("full")
    path.write_bytes(b"half a state")
    torch.save(state, "/dev/full")  # where each write fails so


def hold() -> None:
    """Wait until released; meanwhile a file says what waits where."""
    with marker("held").open("a") as file:
        file.write(f"{os.getpid()} {os.getppid()}\n")
    until(lambda: marker("released").exists())


SAVE = torch.save
REPLACED = {
    "kill_saving": (torch, "save", die_saving),
    "kill_scoring": (suite, "evaluate", die_scoring),
    "full": (torch, "save", no_space),
}


def marker(fault: str) -> Path:
    """Is there when a fault that comes once has come."""
    return Path(f"{os.environ['TINY_MARKER']}-{fault}")


def mark(fault: str) -> None:
    """Remember it."""
    marker(fault).touch()


@dataclass(frozen=True, kw_only=True)
class Faulty(SimCSE):
    """SimCSE in which something fails from its sixth step on: by an error or a NaN always, by all else once."""

    name: ClassVar[str] = "faulty"
    fault: str = "none"

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """See Method."""
        sixth = batch.generator.initial_seed() == seed_for(42, "loss/5")
        found = SimCSE.loss(self, encode, batch, modules, targets)
        if sixth and self.fault == "raise":
            raise RuntimeError("set to fail")
        if sixth and self.fault == "nan":
            return Loss(found.total * float("nan"), found.terms)
        if sixth and self.fault.startswith("hold"):
            hold()
        if sixth and self.fault in REPLACED and not marker(self.fault).exists():
            setattr(*REPLACED[self.fault])
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
    runs = {"well": run(seed=1), "raises": broken, "nan": run("nan"), "after": taught(broken)}
    return study("faulty", scale, **runs)


def lost(scale: Scale) -> Study:
    """Workers that are killed while they write a state, and while they score; a disk that is full."""
    return study("lost", scale, **{fault: run(fault) for fault in REPLACED})


def lacking(scale: Scale) -> Study:
    """A run that is scored on a real set and taught by an encoder that is nowhere, beside one that could run."""
    absent = run(teachers=(Teacher(Pretrained("nobody/nothing")),))
    return replace(study("lacking", scale, a=run(seed=1), student=absent), columns=("stsb",))


def held(scale: Scale) -> Study:
    """Two runs that wait in the middle."""
    return study("held", scale, **{fault: run(fault) for fault in ("hold", "hold too")})


def searches() -> dict[str, Callable[[Scale], Search]]:
    """One that Optuna samples, of a run that needs another; a grid with a fault in half of it."""
    rates = {"learning_rate": LogUniform(1e-5, 1e-3), "student_temperature": (0.025, 0.05)}
    sampled = Search(name="tiny", source="", scale=SCALE, start=taught(run(seed=1)), space=rates, trials=3)
    values = {"temperature": (0.05, 1e-40)}  # a cosine over 1e-40 is no float32
    grid = Search(name="tiny-grid", source="", scale=SCALE, start=run(), space=values)
    return {"tiny": lambda scale: sampled, "tiny-grid": lambda scale: grid}


def main(command: str = "sweep") -> None:
    """The command line of a script of experiments/ with these studies beside the project's own."""
    SCALES["tiny"] = SCALE
    SEARCHES.update(searches())
    catalogue.STUDIES.update({"healthy": healthy, "faulty": faulty, "lost": lost, "held": held, "lacking": lacking})
    import_module(f"experiments.{command}").command()
