"""Train and score one run: a method with its published settings at a scale, and any setting changed.

    python experiments/run.py rankcse --rank list_mle --student-temperature 0.1 --seed 1

The scores are printed and logged to MLflow, but not recorded: the record has the runs of studies only.
"""

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import Field, dataclass, field, fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro

from cse_core.data.locate import data_folder
from cse_core.data.senteval import STS_TEST
from cse_core.evaluation.scorers import Cosine
from cse_core.lookup import look_up
from cse_core.methods import METHODS
from cse_core.run import Run
from experiments.cli.command import run_command
from experiments.cli.console import Bar, console
from experiments.cli.options import at_least
from experiments.execution import sweep_report
from experiments.execution.job import ExecutionSettings, Job, Scoring, describe, execute
from experiments.execution.log_queue import say_not_logged
from experiments.results import csv_record
from experiments.results.score_tables import print_scores
from experiments.schema.recipes import RUNS
from experiments.schema.scales import SCALES
from experiments.tracking.live_log import LiveLog
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import run_content
from experiments.tracking.run_reports import Reporter


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of all methods: the scale whose settings a run starts from, and its folders."""

    scale: str = "small"
    """Scale whose corpus and training settings are the starting point: quickstart, small, small-1m or paper."""
    backbone: str = "bert-base-uncased"
    """Name of the backbone in the papers; a small scale uses a smaller encoder in its place."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    mlruns: Path = csv_record.MLRUNS
    """Folder of MLflow's database and the run folders."""
    threads: int = 1
    """Number of torch's threads. Recorded runs have 1; another number changes the rounding."""


def _option(of: Field[Any]) -> tuple[str, Any, Any]:
    kind = {"int": int, "float": float, "bool": bool, "tuple": tuple[str, ...]}.get(
        str(getattr(of.type, "__name__", of.type)).split(" |")[0], str
    )
    return of.name, kind | None, field(default=None, kw_only=True)


def options_for(name: str) -> type:
    """Return the options of a method: its fields and those of a run, all None by default."""
    skip = {"method", "backbone", "corpus", "teachers", "weights"}
    settings = [f for kind in (METHODS[name], Run) for f in fields(kind) if f.name not in skip]  # ty: ignore[invalid-argument-type]
    made = make_dataclass(name, [_option(f) for f in settings], bases=(CommonOptions,), frozen=True)
    made.__doc__ = f"Train and score {name}. Settings that are not given are as published, at the scale."
    if METHODS[name].__doc__:
        made.__doc__ += f" {METHODS[name].__doc__}"
    return made


def build(name: str, options: Any) -> Run:
    """Return the run that the options describe."""
    scale = look_up("scale", options.scale, SCALES)
    common = {f.name for f in fields(CommonOptions)}
    given = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in common}
    given = {key: value for key, value in given.items() if value is not None}
    of_run = {f.name for f in fields(Run)}
    run = RUNS[name](scale, options.backbone, **{k: v for k, v in given.items() if k not in of_run})
    if run is None:
        known_names = ", ".join(scale.backbones)
        raise ValueError(f"scale {scale.name} has no backbone {options.backbone!r}; known: {known_names}")
    return replace(run, **{k: v for k, v in given.items() if k in of_run})


def train_and_score(run: Run, options: CommonOptions, tracker: Tracker) -> Mapping[str, Any]:
    """Train and score the runs that a run needs, then the run, each with a progress bar; log them to MLflow."""
    scale = SCALES[options.scale]
    tasks = ("synthetic",) if scale.name == "quickstart" else STS_TEST
    data = data_folder(options.data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    execution = ExecutionSettings(
        (options.mlruns / csv_record.MANUAL_RUNS).resolve(), data, device=device, threads=options.threads
    )
    sweep_report.warn_slow_precision([*run.nested(), run], device)
    scorings = tuple(Scoring(rule, Cosine(), tasks) for rule in (scale.dev, "last"))
    jobs = {
        each.key: Job(each, scale.name, f"{each.method.name} {each.backbone.name}", scorings)
        for each in (*run.nested(), run)
    }
    result: Mapping[str, Any] = {}
    live = LiveLog(tracker, execution.store, lambda key: run_content(describe(jobs[key])))
    with closing(live), Bar({key: job.name for key, job in jobs.items()}) as bar:
        for key, job in jobs.items():
            reporter = Reporter(job.eval_steps, partial(_show, bar, live, key), every=1.0)
            result = execute(job, execution, on_step=reporter.step, progress=reporter.prepare)
            bar.end(key)
            live.finish(key)
    if live.unlogged:
        say_not_logged(len(live.unlogged), next(filter(None, live.unlogged.values()), ""))
    return result


def _show(bar: Bar, live: LiveLog, key: str, report: Mapping[str, Any]) -> None:
    bar.move(key, report["fraction"], report["status"])
    live.add_points(key, report["points"])


def main(arguments: list[str]) -> None:
    """Train, score, print and log the run of a command line."""
    if arguments and not arguments[0].startswith("-"):
        look_up("method", arguments[0], METHODS)
    options: Any = tyro.extras.subcommand_cli_from_dict(
        {name: options_for(name) for name in METHODS}, args=arguments, prog="run.py", description=__doc__
    )
    at_least(1, threads=options.threads)
    run = build(type(options).__name__, options)
    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    result = train_and_score(run, options, Tracker(options.mlruns))
    console.print(f"run {run.key}: {result['settings']}")
    print_scores(result)


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]), (ValueError, OSError, ArithmeticError))
