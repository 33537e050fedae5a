"""Fill MLflow from the committed record, to compare its runs there: `python experiments/import_record.py`.

Every recorded run of a study of today is logged with its settings, scores and curves, into the database in the mlruns
folder or the server MLFLOW_TRACKING_URI. Runs that MLflow has are left as they are, or completed.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.progress import MofNCompleteColumn, Progress

from experiments.cli.command import run_command
from experiments.cli.console import console, plain_columns
from experiments.execution.recorded_runs import recorded_results
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.storage.credentials import redact_credentials
from experiments.studies.catalogue import choose_studies, names_at
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import run_content
from experiments.tracking.run_differences import holds

AT_ONCE = 100  # runs in a transaction


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fill MLflow from the record."""

    mlruns: Path = csv_record.MLRUNS
    """Folder of MLflow's database, if MLFLOW_TRACKING_URI names no server."""
    record: Path | None = None
    """Folder of the record. If not given: --mlruns."""


def studies_by_scale(record: Path) -> dict[str, list[Study]]:
    """Return all studies at each scale of which the record has runs."""
    runs = csv_record.read_runs("", record)
    scales = {name: choose_studies(names_at(name), name) for name in dict.fromkeys(runs["scale"])}
    if len(csv_record.read_runs("quickstart", record)):
        scales["quickstart"] = choose_studies(["quickstart"], "quickstart")
    return scales


def fill(studies: list[Study], record: Path, tracker: Tracker) -> tuple[int, int]:
    """Log what MLflow lacks of the recorded runs of a scale's studies; return how many there are, and how many lacked.

    The runs that others need come first, so that these can be linked.
    """
    contents = [(run_content(result), result["studies"][0]) for result in recorded_results(studies, record)]
    scale = studies[0].scale.name
    logged = tracker.runs(scale)
    lacking = [
        (content, f"python experiments/sweep.py {study} --scale {scale}")
        for content, study in contents
        if not holds(logged.get(content.key), content)
    ]
    whole = [new for new in lacking if tracker.has_local_database and new[0].key not in logged]
    with Progress(*plain_columns(), MofNCompleteColumn(), console=console) as progress:
        task = progress.add_task(f"runs at scale {scale}", total=len(contents), completed=len(contents) - len(lacking))
        for start in range(0, len(whole), AT_ONCE):
            part = whole[start : start + AT_ONCE]
            tracker.log_new(scale, part)
            progress.advance(task, len(part))
        for content, command in lacking:
            if not tracker.has_local_database or content.key in logged:
                tracker.complete(content, logged.get(content.key), command=command)
                progress.advance(task)
    return len(contents), len(lacking)


def main(options: Options) -> None:
    """Import every scale; print how many runs are new, and how to look at them."""
    record = options.record or options.mlruns
    check_database(options.mlruns)
    csv_record.check_writable(options.mlruns)
    tracker = Tracker(options.mlruns)
    by_scale = studies_by_scale(record)
    if not by_scale:
        raise FileNotFoundError(f"{record}: no runs to import; expected a record, runs.csv and the files beside it")
    for scale, studies in by_scale.items():
        count, lacking = fill(studies, record, tracker)
        left = (csv_record.read_runs(scale, record)["scale"] == scale).sum() - count
        others = f"; {left} recorded runs belong to no study today and are not imported" if left else ""
        console.print(f"{scale}: {lacking} of {count} runs logged, MLflow had the others{others}")
    local = tracker.uri.startswith("sqlite")
    console.print(f"compare them: {'mlflow ui --backend-store-uri ' * local}{redact_credentials(tracker.uri)}")


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))


if __name__ == "__main__":
    command()
