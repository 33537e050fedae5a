"""One run from the command line: a method as published at a scale, with any field changed.

    python experiments/run.py rankcse --rank list_mle --student-temperature 0.1 --seed 1

It is trained, scored, logged to MLflow and printed like a sweep's runs, but stays out of the record: that holds what a
study declares, and nothing else.
"""

import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.progress import Progress, TaskID

from cse_core.data.locate import data_folder
from cse_core.data.senteval import STS_TEST
from cse_core.evaluation.scorers import Cosine
from cse_core.lookup import look_up
from cse_core.methods import METHODS
from cse_core.run import Run
from cse_core.training.run_state import History
from experiments.cli.command import run_command
from experiments.cli.console import console
from experiments.cli.options import at_least
from experiments.execution import sweep_report
from experiments.execution.job import ExecutionSettings, Job, Scoring, execute
from experiments.execution.log_queue import say_not_logged
from experiments.results import csv_record
from experiments.results.mlflow_log import UNREACHABLE_ERRORS, Tracker, check_database
from experiments.results.score_tables import print_scores
from experiments.schema.recipes import RUNS
from experiments.schema.scales import SCALES


@dataclass(frozen=True, kw_only=True)
class Where:
    """Which settings a run starts from, and where it works."""

    scale: str = "small"
    """quickstart, small, small-1m or paper: its corpus and training settings are the starting point."""
    backbone: str = "bert-base-uncased"
    """The papers' name of the backbone; the scale says what stands for it."""
    data: Path | None = None
    """Folder with the data; else CSE_DATA, the Hugging Face cache, the hub."""
    mlruns: Path = csv_record.MLRUNS
    """Where MLflow's database and the runs' folders lie."""
    threads: int = 1
    """Torch's threads; the record's runs have one, and another number changes the rounding."""


def _option(of: Field[Any]) -> tuple[str, Any, Any]:
    kind = {"int": int, "float": float, "bool": bool, "tuple": tuple[str, ...]}.get(
        str(getattr(of.type, "__name__", of.type)).split(" |")[0], str
    )
    return of.name, kind | None, field(default=None, kw_only=True)


def options_for(name: str) -> type:
    """The command line of a method: its own fields and the run's, each unset unless given."""
    skip = {"method", "backbone", "corpus", "teachers", "weights"}
    own = [f for kind in (METHODS[name], Run) for f in fields(kind) if f.name not in skip]  # ty: ignore[invalid-argument-type]
    made = make_dataclass(name, [_option(f) for f in own], bases=(Where,), frozen=True)
    made.__doc__ = (METHODS[name].__doc__ or "") + " Unset fields are as published, at the scale."
    return made


def build(name: str, options: Any) -> Run:
    """The run that a command line asks for."""
    scale = look_up("scale", options.scale, SCALES)
    where = {f.name for f in fields(Where)}
    given = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in where}
    given = {key: value for key, value in given.items() if value is not None}
    of_run = {f.name for f in fields(Run)}
    run = RUNS[name](scale, options.backbone, **{k: v for k, v in given.items() if k not in of_run})
    if run is None:
        known = ", ".join(scale.backbones)
        raise ValueError(f"scale {scale.name} has no backbone {options.backbone!r}; known: {known}")
    return replace(run, **{k: v for k, v in given.items() if k in of_run})


def train_and_score(run: Run, options: Where) -> Mapping[str, Any]:
    """The run and first the runs that it needs, with a progress bar each."""
    scale = SCALES[options.scale]
    tasks = ("synthetic",) if scale.name == "quickstart" else STS_TEST
    data = data_folder(options.data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    place = ExecutionSettings((options.mlruns / csv_record.OWN).resolve(), data, device=device, threads=options.threads)
    sweep_report.slow_precision([*run.nested(), run], device)
    result: Mapping[str, Any] = {}
    for each in (*run.nested(), run):
        scorings = tuple(Scoring(rule, Cosine(), tasks) for rule in (scale.dev, "last"))
        job = Job(each, scale.name, f"{each.method.name} {each.backbone.name}", scorings)
        with Progress(console=console) as progress:
            result = execute(job, place, on_step=partial(_move, progress, progress.add_task(job.name)))
    return result


def _move(progress: Progress, task: TaskID, step: int, history: History) -> None:
    progress.update(task, completed=step, total=history.steps)


def main(arguments: list[str]) -> None:
    """Parse, train, score, print."""
    if arguments and not arguments[0].startswith("-"):
        look_up("method", arguments[0], METHODS)
    options: Any = tyro.extras.subcommand_cli_from_dict(
        {name: options_for(name) for name in METHODS}, args=arguments, prog="run.py", description=__doc__
    )
    at_least(1, threads=options.threads)
    run = build(type(options).__name__, options)
    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    result = train_and_score(run, options)
    console.print(f"run {run.key}: {result['settings']}")
    print_scores(result)
    keys = [each.key for each in (*run.nested(), run)]
    tracker = Tracker(options.mlruns)
    try:
        for key in tuple(keys):
            tracker.log(options.mlruns / csv_record.OWN / key)
            keys = keys[1:]
    except UNREACHABLE_ERRORS as error:
        say_not_logged(len(keys), error)


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]), (ValueError, OSError, ArithmeticError))
