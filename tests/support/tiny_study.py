"""Studies that take seconds, for tests of real sweeps, with a method that can be set to fail."""

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
    """End this process as the kernel does when it takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_saving(state: object, path: Path) -> None:
    """A stand-in for torch.save that is killed half-way."""
    mark("kill_saving")
    path.write_bytes(b"half a state")
    die()


def die_scoring(*given: object, **named: object) -> None:
    """A stand-in for the evaluation that is killed."""
    mark("kill_scoring")
    die()


def no_space(state: object, path: Path) -> None:
    """A stand-in for torch.save that fails once, as on a full disk."""
    torch.save = SAVE
    mark("full")
    path.write_bytes(b"half a state")
    torch.save(state, "/dev/full")  # every write to it fails


def hold() -> None:
    """Wait until released; meanwhile a file has the ids of this process and its parent."""
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
    """The file that exists once a one-time fault has occurred."""
    return Path(f"{os.environ['TINY_MARKER']}-{fault}")


def mark(fault: str) -> None:
    """Record that the fault has occurred."""
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
    """A study of runs, given by label."""
    rows = tuple(Row(label=k, encoder=r, seeds=(r.seed,), select=scale.dev) for k, r in runs.items())
    return Study(name=name, source="", question="", scale=scale, rows=rows, columns=("synthetic",))


def healthy(scale: Scale) -> Study:
    """A teacher, its student and two more."""
    return study("healthy", scale, a=run(seed=1), b=run(seed=2), student=taught(run(seed=1)))


def faulty(scale: Scale) -> Study:
    """Runs that go wrong, and one that goes well."""
    broken = run("raise")
    runs = {"well": run(seed=1), "raises": broken, "nan": run("nan"), "after": taught(broken)}
    return study("faulty", scale, **runs)


def lost(scale: Scale) -> Study:
    """Workers killed while they write a state and while they score, and a full disk."""
    return study("lost", scale, **{fault: run(fault) for fault in REPLACED})


def lacking(scale: Scale) -> Study:
    """A run scored on a real set and taught by a missing encoder, and one that could run."""
    absent = run(teachers=(Teacher(Pretrained("nobody/nothing")),))
    return replace(study("lacking", scale, a=run(seed=1), student=absent), columns=("stsb",))


def held(scale: Scale) -> Study:
    """Two runs that wait half-way."""
    return study("held", scale, **{fault: run(fault) for fault in ("hold", "hold too")})


def searches() -> dict[str, Callable[[Scale], Search]]:
    """A search that Optuna samples, of a run that needs another one, and a grid of which half fails."""
    rates = {"learning_rate": LogUniform(1e-5, 1e-3), "student_temperature": (0.025, 0.05)}
    sampled = Search(name="tiny", source="", scale=SCALE, start=taught(run(seed=1)), space=rates, trials=3)
    values = {"temperature": (0.05, 1e-40)}  # a cosine divided by 1e-40 overflows float32
    grid = Search(name="tiny-grid", source="", scale=SCALE, start=run(), space=values)
    return {"tiny": lambda scale: sampled, "tiny-grid": lambda scale: grid}


def main(command: str = "sweep") -> None:
    """The command line of a script in experiments/, with these studies added to the project's."""
    SCALES["tiny"] = SCALE
    SEARCHES.update(searches())
    catalogue.STUDIES.update({"healthy": healthy, "faulty": faulty, "lost": lost, "held": held, "lacking": lacking})
    import_module(f"experiments.{command}").command()
