"""Remove runs from run folders, the record and MLflow: `python experiments/remove.py KEY`.

It lists everything that belongs to the runs, and asks before it removes anything. If interrupted, the same command
completes the removal.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.remove")

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from rich.prompt import Confirm

from cse_core.lookup import unknown
from experiments.cli.command import run_command
from experiments.cli.console import console, counted
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.schema.scales import RELEASED, SCALES
from experiments.storage.credentials import redact_credentials
from experiments.studies.catalogue import choose_studies, names_at
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.removal import Traces, record_folders, remove, traces_of

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Options:
    """Remove runs from the run folders, the record and MLflow."""

    keys: tyro.conf.Positional[tuple[str, ...]]
    """Keys of the runs."""
    yes: bool = False
    """Do not ask. Without it, a terminal to ask at is needed."""
    own: bool = False
    """Only what run.py and evaluate.py made, in the folder own of --mlruns. The record stays as it is."""
    mlruns: Path = csv_record.MLRUNS
    """Folder of the record, MLflow's database and the run folders."""
    store: Path | None = Path(os.environ["CSE_STORE"]) if os.environ.get("CSE_STORE") else None
    """Folder of the run folders, if not in --mlruns. If not given: CSE_STORE."""


def main(options: Options) -> int:
    """List, ask and remove; return 0, or 1 if the user declined or MLflow could not be reached."""
    if not options.keys:
        raise ValueError("no key of a run; expected one or more, as in runs.csv")
    by_hand = options.mlruns / csv_record.MANUAL_RUNS if options.own else None
    store, tracker = by_hand or options.store or options.mlruns / "store", Tracker(options.mlruns)
    check_database(options.mlruns)
    traces = traces_of(options.keys, options.mlruns, store, tracker, own=options.own)
    if traces.empty and not traces.unreachable:
        raise _nothing_of(options)
    print_traces(options, traces)
    for key in options.keys if len(options.keys) > 1 and not traces.unreachable else ():
        if traces_of([key], options.mlruns, store, tracker, own=options.own).empty:
            console.print(f"nothing of run {key}", style="yellow", highlight=False)
    if not traces.empty:
        if not options.yes and not sys.stdin.isatty():
            raise ValueError("nothing was removed: there is no terminal to ask at; expected --yes, which does not ask")
        if not options.yes and not Confirm.ask("Remove all of this?", console=console, default=False):
            console.print("nothing was removed")
            return 1
        failed = remove(options.keys, traces, store, tracker)
        traces = replace(traces, unreachable=traces.unreachable or failed)
        console.print("removed" if not traces.unreachable else "removed, but for MLflow's part")
    return _print_rest(options, traces)


def _nothing_of(options: Options) -> ValueError:
    if options.own:
        folder = options.mlruns / csv_record.MANUAL_RUNS
        return ValueError(f"nothing to remove in {folder}: expected keys of runs made by run.py, got {options.keys}")
    recorded = [key for folder in record_folders(options.mlruns) for key in csv_record.RUNS_TABLE.read(folder)["key"]]
    hint = str(unknown("run", options.keys[0], recorded)).partition("; known")[0]
    return ValueError(f"nothing to remove in {options.mlruns}: {hint}")


def print_traces(options: Options, traces: Traces) -> None:
    """Print everything that belongs to the runs, and the studies that use them."""
    for folder, size in traces.folders.items():
        console.print(f"folder {folder}: {size / MIB:.1f} MiB", highlight=False)
    for path, count in traces.lines.items():
        console.print(f"{counted(count, 'line')} of {path}", highlight=False)
    for folder, names in traces.arrays.items():
        console.print(f"{counted(len(names), 'file')} of arrays in {folder / 'figure_data'}", highlight=False)
    for run_id in traces.tracked:
        console.print(f"run {run_id} in MLflow", highlight=False)
    for line in () if options.own else users_of(options.keys):
        console.print(line, highlight=False)


def users_of(keys: tuple[str, ...]) -> list[str]:
    """Return a line for each study that uses one of these runs, in its rows or as a teacher or base."""
    lines = []
    for scale in (*SCALES, RELEASED.name):
        for study in choose_studies(names_at(scale), scale):
            if keys_used := set(keys) & jobs_of([study]).keys():
                rows = [row.label for row in study.rows if keys_used & set(row.keys().values())]
                nested = {run.key for row in study.rows for each in row.runs() for run in each.required_checkpoints()}
                what = [f"row {label}" for label in rows] + (["as a teacher or base"] if keys_used & nested else [])
                lines.append(f"used by {study.name}, scale {scale}: {'; '.join(what)}")
    return lines


def _print_rest(options: Options, traces: Traces) -> int:
    """Print what remains to be done; return the exit status, 1 if MLflow could not be reached."""
    if traces.lines or traces.arrays:
        console.print(
            "tables and figures still show it: python analysis/make_tables.py, python analysis/make_figures.py"
        )
    if traces.tracked and not traces.unreachable:
        console.print("MLflow keeps deleted runs until `mlflow gc`")
    if os.environ.get("CSE_SHARED"):
        console.print(
            f"shared storage is left as it is: {redact_credentials(os.environ['CSE_SHARED'])}", style="yellow"
        )
    if not traces.unreachable:
        return 0
    command = f"python experiments/remove.py {' '.join(options.keys)}"
    console.print(
        f"MLflow can't be reached, and may still have it ({redact_credentials(traces.unreachable)}); "
        f"when it is back, finish with the same command: {command}",
        style="red",
    )
    return 1


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
