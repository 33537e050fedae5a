"""Fill MLflow from the committed record, to compare its runs there: `python experiments/import_record.py`.

Every recorded run of a present study or comparison is logged with its settings, scores and curves, to the database in
the mlruns folder or to the server MLFLOW_TRACKING_URI. A run in MLflow with the same scores and curves stays; one with
others is replaced.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.import_record")

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from rich.progress import MofNCompleteColumn, Progress

from experiments.cli.command import run_command
from experiments.cli.console import console, counted, plain_columns
from experiments.execution.job import Job
from experiments.execution.plan import jobs_of, merge_jobs
from experiments.execution.recorded_runs import recorded_results
from experiments.results import csv_record
from experiments.results.run_result import read_result
from experiments.schema.study import Study
from experiments.storage.credentials import redact_credentials
from experiments.studies.catalogue import choose_studies, names_at
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker, run_files
from experiments.tracking.run_content import run_content

AT_ONCE = 100  # runs in a transaction


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fill MLflow from the record."""

    mlruns: Path = csv_record.MLRUNS
    """Folder of MLflow's database, if MLFLOW_TRACKING_URI names no server."""
    record: Path | None = None
    """Folder of the record. If not given: --mlruns."""


def studies_by_scale(record: Path) -> dict[str, list[Study]]:
    """Return, by scale, all studies of the scales that have recorded runs."""
    runs = csv_record.read_runs("", record)
    scales = {name: choose_studies(names_at(name), name) for name in dict.fromkeys(runs["scale"])}
    if len(csv_record.read_runs("quickstart", record)):
        scales["quickstart"] = choose_studies(["quickstart"], "quickstart")
    return scales


def recorded_at(record: Path) -> dict[str, int]:
    """Return, by key, when each run was recorded, in milliseconds. Git knows it: the record has no times."""
    given = ["git", "-C", str(record), "log", "--reverse", "--format=@%ct", "-U0", "-p", "--", "runs.csv"]
    try:
        log = subprocess.run(given, capture_output=True, text=True, check=False).stdout
    except OSError:  # a machine without git
        return {}
    times: dict[str, int] = {}
    at = 0
    for line in log.splitlines():
        if line.startswith("@") and line[1:].isdecimal():
            at = 1000 * int(line[1:])
        elif line.startswith("+") and not line.startswith("+++"):
            times.setdefault(line[1:].partition(",")[0], at)
    return times


def fill(
    jobs: Mapping[str, Job], scale: str, record: Path, tracker: Tracker, times: Mapping[str, int]
) -> tuple[set[str], int]:
    """Log the recorded runs of a scale's jobs that MLflow does not have; return all keys, and how many were logged.

    The jobs of teachers and bases come first, so that their students can link to them. If a run's folder is in the
    store, its files are logged too, with the environment, data, warnings and end time of its result.json.
    """
    contents, commands, folders = [], {}, {}
    for result in recorded_results(jobs, scale, record):
        stored = read_result(tracker.mlruns / "store" / result["key"]) or {}
        of_folder = {name: stored[name] for name in ("environment", "data", "warnings", "finished") if name in stored}
        content = run_content(result | of_folder)
        contents.append(content if content.finished else replace(content, finished=times.get(content.key, 0)))
        commands[content.key] = command_of(result["studies"][0], scale)
        folders |= {content.key: tracker.mlruns / "store" / content.key} if stored else {}
    missing = tracker.missing(contents)
    with Progress(*plain_columns(), MofNCompleteColumn(), console=console) as progress:
        name, done = f"runs at scale {scale}", len(contents) - len(missing)
        task = progress.add_task(name, total=len(contents), completed=done)
        for i in range(0, len(missing), AT_ONCE):
            part = missing[i : i + AT_ONCE]
            for content in part:
                if content.key in folders:
                    tracker.write(content, run_files(folders[content.key]), commands[content.key])
            tracker.write_all((content, commands[content.key]) for content in part if content.key not in folders)
            progress.advance(task, len(part))
    return {content.key for content in contents}, len(missing)


def command_of(name: str, scale: str) -> str:
    """Return the command that runs a study or a declared comparison."""
    from experiments.comparison.tuned import COMPARISONS  # lazy: slow import

    return f"python experiments/{f'compare.py {name}' if name in COMPARISONS else f'sweep.py {name} --scale {scale}'}"


def main(options: Options) -> None:
    """Import every scale; print how many runs are new, what is left out, and how to look at them."""
    from experiments.comparison.tuned import recorded_jobs  # lazy: slow import

    record = options.record or options.mlruns
    check_database(options.mlruns)
    csv_record.check_writable(options.mlruns)
    tracker = Tracker(options.mlruns)
    by_scale = studies_by_scale(record)
    if not by_scale:
        raise FileNotFoundError(f"{record}: no runs to import; expected a record, runs.csv and the files beside it")
    imported: set[str] = set()
    for scale, studies in by_scale.items():
        place = csv_record.folder_for(scale, record)
        jobs = merge_jobs([jobs_of(studies), recorded_jobs(scale, record)])
        keys, logged = fill(jobs, scale, record, tracker, recorded_at(place))
        imported |= keys
        console.print(f"{scale}: {logged} of {len(keys)} runs logged, MLflow had the others")
    print_left_out(record, imported)
    local = tracker.uri.startswith("sqlite")
    console.print(f"compare them: {'mlflow ui --backend-store-uri ' * local}{redact_credentials(tracker.uri)}")


def print_left_out(record: Path, imported: set[str]) -> None:
    """Print how many recorded runs are not imported, and why."""
    import pandas as pd  # lazy: slow import

    runs = pd.concat([csv_record.read_runs(scale, record) for scale in ("", "quickstart")])
    left = runs[~runs["key"].isin(imported)]
    for scale, count in left["scale"].value_counts().items():
        console.print(
            f"{scale}: {counted(count, 'recorded run')} left out: of no study or comparison today, or without a score"
        )


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
