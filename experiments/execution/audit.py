"""Audit the record: train recorded runs anew, drawn at random, and compare them with what the record says.

    python experiments/sweep.py --audit 5 --study rankcse-table4

Nothing is written to the record, to MLflow or to the store of sweeps. The runs that a drawn run needs are trained anew
as well, and compared by their curves and dev scores.
"""

import json
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cse_core.data.atomic_write import atomic_write
from cse_core.run import Run
from cse_core.training.run_state import History
from experiments.cli.command import INTERRUPTED
from experiments.cli.console import Bar, console
from experiments.execution.agreement import ELSEWHERE, EXACT, Agreement, Difference, Recorded, compare
from experiments.execution.job import ExecutionSettings, Job, execute
from experiments.execution.plan import jobs_of
from experiments.results.csv_record import commit_of
from experiments.results.provenance import commit
from experiments.schema.study import Study

MARKER = "audit.txt"  # a store without it holds runs that no audit trained
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Draw:
    """Which runs to train anew: those drawn, and `jobs` for them and for what they need, which stands before them."""

    seed: int
    drawn: tuple[str, ...]
    jobs: tuple[Job, ...]
    candidates: int
    undeclared: int  # recorded runs that no chosen study declares: the record does not say how to train them


@dataclass(frozen=True)
class Audited:
    """A run trained anew beside its record; a failure says why it could not be compared."""

    job: Job
    drawn: bool
    agreement: Agreement | None = None
    commit: str = ""
    failure: str = ""

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What the record says otherwise."""
        return self.agreement.differences if self.agreement else ()

    @property
    def passed(self) -> bool:
        """Whether the run could be compared and agrees."""
        return not self.failure and not self.differences


def draw(studies: Sequence[Study], recorded: Recorded, count: int, seed: int) -> Draw:
    """Draw trained runs of the studies that the record has. A larger count adds runs to those of a smaller one."""
    declared, cells = jobs_of(studies), recorded.cells()
    candidates = sorted(key for key in declared if key in cells and isinstance(declared[key].encoder, Run))
    if not candidates:
        raise ValueError("nothing to audit: the record has no trained run of the chosen studies")
    shuffled = list(candidates)
    random.Random(seed).shuffle(shuffled)
    drawn = tuple(shuffled[:count])
    needed = dict.fromkeys(run.key for key in drawn for run in _with_nested(declared[key].encoder))
    dev = studies[0].scale.dev
    jobs = tuple(_recorded_part(declared[key], cells.get(key, set()), "" if key in drawn else dev) for key in needed)
    undeclared = set(recorded.runs["key"]) - set(declared)
    return Draw(seed, drawn, jobs, len(candidates), len(undeclared))


def _with_nested(run: object) -> Iterator[Run]:
    if isinstance(run, Run):
        for nested in run.nested():
            yield from _with_nested(nested)
        yield run


def _recorded_part(job: Job, cells: set[tuple[str, str, str]], only: str) -> Job:
    """Keep the tasks that are recorded, `only` one of them if named. Selection rules without tasks stay."""
    scorings = []
    for one in job.scorings:
        tasks = (task for task in one.tasks if (one.select, str(one.scorer), task) in cells and only in ("", task))
        scorings.append(replace(one, tasks=tuple(tasks)))
    return replace(job, scorings=tuple(scorings))


def audit(
    studies: Sequence[Study],
    count: int,
    seed: int | None = None,
    *,
    mlruns: Path,
    store: Path | None = None,
    data: Path | None = None,
    device: str = "cpu",
    report: Path | None = None,
) -> int:
    """Draw, train, compare and print; the exit status: 0, 1 if something differs or failed, 130 if interrupted.

    Without a store there is a temporary one, which is removed if everything agrees. Runs that a store has from the same
    draw, interrupted or not, are not trained again.
    """
    recorded = Recorded.read(studies[0].scale.name, mlruns)
    found = draw(studies, recorded, count, random.randrange(10**6) if seed is None else seed)
    place = ExecutionSettings(_prepared(store), data, device=device)
    _announce(found, place.store)
    audited: list[Audited] = []
    try:
        for one in _train_all(found, recorded, place):
            audited.append(one)
            if report:
                atomic_write(report, json.dumps(_summary(found, audited, studies[0].scale.name), indent=1) + "\n")
    except KeyboardInterrupt:
        again = f"--audit-seed {found.seed} --store {place.store}"
        console.print(f"interrupted: the same command with {again} goes on", soft_wrap=True)
        return INTERRUPTED
    passed = all(one.passed for one in audited)
    _conclude(audited, place.store)
    if passed and store is None:
        shutil.rmtree(place.store)
    return 0 if passed else 1


def _prepared(store: Path | None) -> Path:
    """Make the folder, or accept one of an earlier audit; caches lie in it too, so that no other run's are read."""
    folder = (store or Path(tempfile.mkdtemp(prefix="cse-audit-"))).resolve()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ValueError(f"--store {folder}: holds files that no audit made; name an empty folder or a new one")
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / MARKER, "Runs that sweep.py --audit trained to check the record. They can be deleted.\n")
    os.environ["CSE_CACHE"] = str(folder / "cache")
    return folder


def _announce(found: Draw, store: Path) -> None:
    nested = len(found.jobs) - len(found.drawn)
    console.print(
        f"{len(found.drawn)} of {found.candidates} recorded runs drawn with seed {found.seed}, "
        f"and {nested} that they need; trained anew in {store}"
    )
    if found.undeclared:
        left = f"{found.undeclared} recorded runs belong to none of these studies: they are not drawn"
        console.print(left, style="yellow")


def _train_all(found: Draw, recorded: Recorded, place: ExecutionSettings) -> Iterator[Audited]:
    with Bar([job.key for job in found.jobs]) as bar:
        for job in found.jobs:
            one = _train(job, recorded, place, bar, drawn=job.key in found.drawn)
            bar.end(job.key)
            _print(one)
            yield one


def _train(job: Job, recorded: Recorded, place: ExecutionSettings, bar: Bar, *, drawn: bool) -> Audited:
    def move(step: int, history: History) -> None:
        bar.move(job.key, 0.8 * step / history.steps)  # scoring takes the rest

    try:
        result = execute(job, place, on_step=move)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs can still be audited
        return Audited(job, drawn, failure=f"{type(error).__name__}: {error}")
    by, here = commit_of(result["environment"]), commit_of(commit())
    if by != here:
        logger.warning("run %s in %s was trained by commit %s, this is %s", job.key, place.store, by, here)
    return Audited(job, drawn, compare(job, result, recorded), by)


def _print(one: Audited) -> None:
    job, agreement = one.job, one.agreement
    head = f"{job.key}, {_shown(job.studies)}, {job.name}"
    if agreement is None:
        console.print(f"{head}: failed: {one.failure}", style="red")
        return
    console.print(
        f"{head}: recorded on {agreement.recorded_on}, trained anew on {agreement.trained_on}; "
        f"{agreement.cells} scores, largest difference {agreement.largest_cell:.2g}; "
        f"{agreement.points} points of curves, {agreement.largest_point:.2g}: "
        + (f"{len(one.differences)} differ" if one.differences else "agrees"),
        style="red" if one.differences else None,
    )
    for each in one.differences:
        place = ", ".join(filter(None, (each.select, each.scorer, each.task, each.metric)))
        apart = "" if each.amount is None else f", difference {each.amount:.2g}"
        console.print(f"  {head}, {place}: recorded {each.recorded}, found {each.found}{apart}", style="red")


def _shown(studies: Sequence[str]) -> str:
    return " ".join(studies[:2]) + (f" and {len(studies) - 2} more" if len(studies) > 2 else "")


def _conclude(audited: Sequence[Audited], store: Path) -> None:
    compared = [one.agreement for one in audited if one.agreement]
    cells, points = sum(one.cells for one in compared), sum(one.points for one in compared)
    wrong = [one for one in audited if not one.passed]
    elsewhere = ", ".join(f"{name} {value:g}" for name, value in ELSEWHERE.items())
    console.print(
        f"{len(audited)} runs trained anew; {cells} scores and {points} points of curves compared. "
        f"Tolerances: {EXACT:g} on the same kind of processor; on another {elsewhere}"
    )
    if wrong:
        console.print(f"{len(wrong)} runs differ or failed; their folders are in {store}", style="red")
    else:
        console.print("the record agrees")


def _summary(found: Draw, audited: Sequence[Audited], scale: str) -> dict[str, Any]:
    """The audit as JSON; without the paths and times that would differ when it is repeated."""
    runs = [
        {"key": one.job.key, "row": one.job.name, "studies": one.job.studies, "drawn": one.drawn, "commit": one.commit}
        | {"failure": one.failure}
        | (asdict(one.agreement) if one.agreement else {})
        for one in audited
    ]
    about = {"scale": scale, "seed": found.seed, "asked": len(found.drawn)}
    about |= {"candidates": found.candidates, "undeclared": found.undeclared}
    return about | {"tolerances": {"same processor": EXACT} | ELSEWHERE, "runs": runs}
