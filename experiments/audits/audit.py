"""Train recorded runs again and compare them with the record.

Nothing is written to the record, to MLflow or to the sweeps' store. The runs that these runs need are also retrained,
and compared by their curves and dev scores.
"""

import json
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cse_core.data.atomic_write import atomic_write
from cse_core.training.run_state import History
from experiments.audits.agreement import ELSEWHERE, EXACT, Agreement, Recorded, compare
from experiments.audits.sample import Draw, draw, named
from experiments.cli.command import INTERRUPTED
from experiments.cli.console import Bar, console, counted
from experiments.execution.job import ExecutionSettings, Job, execute
from experiments.execution.sweep_setup import require_inputs, untrained_keys
from experiments.results.csv_record import commit_of
from experiments.results.provenance import commit
from experiments.schema.study import Study

MARKER = "audit.txt"  # a store without this file holds runs that no audit trained
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Audited:
    """A retrained run compared with its record; `failure` says why it could not be compared."""

    job: Job
    drawn: bool
    agreement: Agreement | None = None
    commit: str = ""
    failure: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the run could be compared and agrees."""
        return self.agreement is not None and not self.agreement.differences


def audit(
    studies: Sequence[Study],
    compared: Mapping[str, Job] | None = None,
    *,
    keys: Sequence[str] = (),
    count: int = 0,
    seed: int | None = None,
    mlruns: Path,
    store: Path | None = None,
    data: Path | None = None,
    device: str = "cpu",
    report: Path | None = None,
) -> int:
    """Retrain the runs of the keys, or `count` random ones. Return 0; 1 if one differs or failed; 130 if interrupted.

    `compared` has the jobs of comparisons, beside those of the studies.
    Without a store, use a temporary one and remove it if everything agrees. Runs that the store has from an earlier
    audit are not trained again.
    """
    scale = studies[0].scale.name
    recorded = Recorded.read(scale, mlruns, compared)
    if keys:
        sample = named(keys, studies, recorded, mlruns, device)
    else:
        chosen = random.randrange(10**6) if seed is None else seed
        sample = draw(studies, recorded, count, chosen, device)
    execution = ExecutionSettings(prepare(store), data, device=device)
    status = retrain(sample, recorded, execution, scale, report)
    if status == 0 and store is None:
        shutil.rmtree(execution.store)
    return status


def retrain(
    sample: Draw, recorded: Recorded, execution: ExecutionSettings, scale: str, report: Path | None = None
) -> int:
    """Retrain runs, compare them and print; return 0, 1 if a run differs or failed, or 130 if interrupted."""
    _print_draw(sample, execution.store)
    require_inputs(sample.jobs, untrained_keys(sample.jobs, execution.store), execution.data)
    audited: list[Audited] = []
    _write(report, _summary(sample, audited, scale))  # first, to find out whether it can be written
    try:
        for run in _train_all(sample, recorded, execution):
            audited.append(run)
            _write(report, _summary(sample, audited, scale))
    except KeyboardInterrupt:
        seed = "" if sample.seed is None else f"--seed {sample.seed} "
        resume = f"{seed}--store {execution.store}"
        console.print(f"interrupted: re-run the same command with {resume} to resume", soft_wrap=True)
        return INTERRUPTED
    _print_conclusion(audited, execution.store)
    return 0 if all(run.agrees for run in audited) else 1


def _write(report: Path | None, summary: Mapping[str, Any]) -> None:
    if report:
        atomic_write(report, json.dumps(summary, indent=1) + "\n")


def prepare(store: Path | None) -> Path:
    """Create the folder, or accept an earlier audit's; put caches in it too, so that no other run's cache is read."""
    folder = (store or Path(tempfile.mkdtemp(prefix="cse-audit-"))).resolve()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ValueError(f"--store {folder}: holds files that no audit made; expected an empty folder or a new one")
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / MARKER, "Runs that audit.py trained to check the record. They can be deleted.\n")
    os.environ["CSE_CACHE"] = str(folder / "cache")
    return folder


def _print_draw(sample: Draw, store: Path) -> None:
    nested = len(sample.jobs) - len(sample.drawn)
    many = f"{len(sample.drawn)} of {sample.candidates} recorded runs"
    drawn = "named" if sample.seed is None else f"drawn with seed {sample.seed}"
    console.print(f"{many} {drawn}, and {nested} that they need; retrained in {store}")
    if sample.undeclared:
        left = f"{sample.undeclared} recorded runs belong to none of these studies and are not drawn"
        console.print(left, style="yellow")
    if sample.elsewhere:
        left = f"{sample.elsewhere} recorded runs are of another kind of device, with other random numbers"
        console.print(f"{left}, and are not drawn", style="yellow")


def _train_all(sample: Draw, recorded: Recorded, execution: ExecutionSettings) -> Iterator[Audited]:
    with Bar({job.key: job.name for job in sample.jobs}) as bar:
        for job in sample.jobs:
            run = _train(job, recorded, execution, bar, drawn=job.key in sample.drawn)
            bar.end(job.key, failed=bool(run.failure))
            _print_run(run)
            yield run


def _train(job: Job, recorded: Recorded, execution: ExecutionSettings, bar: Bar, *, drawn: bool) -> Audited:
    def move(step: int, history: History) -> None:
        bar.move(job.key, 0.8 * step / history.steps)  # scoring takes the rest

    try:
        result = execute(job, execution, on_step=move)
    except Exception as error:  # noqa: BLE001 - after any error the other runs can still be audited
        return Audited(job, drawn, failure=f"{type(error).__name__}: {error}")
    by, here = commit_of(result["environment"]), commit_of(commit())
    if by != here:
        logger.warning("run %s in %s was trained by commit %s, this is %s", job.key, execution.store, by, here)
    return Audited(job, drawn, compare(job, result, recorded), by)


def _print_run(run: Audited) -> None:
    job, agreement = run.job, run.agreement
    head = f"{job.key}, {_study_names(job.studies)}, {job.name}"
    if agreement is None:
        console.print(f"{head}: failed: {run.failure}", style="red")
        return
    console.print(
        f"{head}: recorded on {agreement.recorded_on}, retrained on {agreement.trained_on}; "
        f"{agreement.cells} scores, largest difference {agreement.largest_cell:.2g}; "
        f"{agreement.points} points of curves, {agreement.largest_point:.2g}: "
        + ("agrees" if run.agrees else f"{len(agreement.differences)} differ"),
        style=None if run.agrees else "red",
    )
    for each in agreement.differences:
        cell = ", ".join(filter(None, (each.select, each.scorer, each.task, each.metric)))
        apart = "" if each.amount is None else f", difference {each.amount:.2g}"
        console.print(f"  {head}, {cell}: recorded {each.recorded}, retrained {each.retrained}{apart}", style="red")


def _study_names(studies: Sequence[str]) -> str:
    return " ".join(studies[:2]) + (f" and {len(studies) - 2} more" if len(studies) > 2 else "")


def _print_conclusion(audited: Sequence[Audited], store: Path) -> None:
    compared = [run.agreement for run in audited if run.agreement]
    cells, points = sum(run.cells for run in compared), sum(run.points for run in compared)
    wrong = [run for run in audited if not run.agrees]
    elsewhere = ", ".join(f"{name} {value:g}" for name, value in ELSEWHERE.items())
    console.print(
        f"{counted(len(audited), 'run')} retrained; {counted(cells, 'score')} and "
        f"{counted(points, 'point')} of curves compared. "
        f"Tolerances: {EXACT:g} on the same kind of processor; on another {elsewhere}"
    )
    if wrong:
        console.print(
            f"{counted(len(wrong), 'run')} with differences or failed; the folders are in {store}", style="red"
        )
    else:
        console.print("the record agrees")


def _summary(sample: Draw, audited: Sequence[Audited], scale: str) -> dict[str, Any]:
    """Return the audit as JSON, without paths or times, so that a repeated audit gives the same file."""
    runs = [
        {"key": run.job.key, "row": run.job.name, "studies": run.job.studies, "drawn": run.drawn, "commit": run.commit}
        | {"failure": run.failure}
        | (asdict(run.agreement) if run.agreement else {})
        for run in audited
    ]
    about = {"scale": scale, "seed": sample.seed, "asked": len(sample.drawn)}
    about |= {"candidates": sample.candidates, "undeclared": sample.undeclared}
    return about | {"tolerances": {"same processor": EXACT} | ELSEWHERE, "runs": runs}
