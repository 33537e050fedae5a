"""Train and score one run: a method with its published settings at a scale, and any setting changed.

    python experiments/run.py rankcse --rank list_mle --student-temperature 0.1 --seed 1
    python experiments/run.py simcse --seeds 1 2 3
    python experiments/run.py simcse --corpus my_sentences.txt --backbone my/encoder --dev my_pairs.tsv
    python experiments/run.py rankcse --teachers my/encoder:0.5 glove-6b-50d:0.5

The scores are printed and logged to MLflow, but not recorded: the record has the runs of studies only.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import Field, dataclass, field, fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro

from cse_core.data import own_pairs
from cse_core.data.locate import data_folder
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.lookup import look_up
from cse_core.methods import METHODS
from cse_core.run import Run
from cse_core.training.selection import SELECTION, dev_sets
from experiments.cli.command import run_command
from experiments.cli.console import Bar, console
from experiments.cli.options import at_least, seeds_in_range
from experiments.cli.user_inputs import read_corpus, read_teachers, with_inputs, with_own_pooling
from experiments.execution import sweep_report
from experiments.execution.job import ExecutionSettings, Job, Scoring, describe, execute
from experiments.execution.log_queue import say_not_logged
from experiments.results import csv_record
from experiments.results.score_tables import print_over_seeds, print_scores
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
    """Name of the backbone in the papers (a small scale uses a smaller encoder in its place), or a folder or hub name
    of any encoder like BERT or RoBERTa: it gets the scale's settings for BERT-base, and keeps its own pooling."""
    corpus: str = ""
    """File to train on: .txt with one sentence a line, .tsv, .csv, .jsonl or .parquet; or a corpus of the data folder.
    If not given: the scale's."""
    columns: tuple[str, ...] = ()
    """Columns of --corpus by name or number: a sentence, or also its positive, or also a hard negative (sent0 sent1
    hard_neg). If not given: those with known names."""
    pair_columns: tuple[str, ...] = ()
    """Columns of the files in --dev and --evaluate by name or number: two sentences and a score. If not given: those
    with known names, or all three."""
    corpus_lines: int | None = None
    """Train on the first lines of --corpus only; required if it is no file."""
    seeds: tuple[int, ...] = ()
    """Train once with each of these seeds, and print the mean and the standard deviation of the scores."""
    evaluate: tuple[str, ...] = ()
    """Tasks or groups of tasks to score, as in evaluate.py. If not given: sts."""
    dev: str = ""
    """What selects the checkpoint: stsb_dev, avg_sts, last, ... or a file (.tsv, .csv, .jsonl, .parquet) with two
    sentences and a score in each row. If not given: the scale's dev set."""
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
    skip = {"method", "backbone", "corpus", "weights"}
    settings = [f for kind in (METHODS[name], Run) for f in fields(kind) if f.name not in skip]  # ty: ignore[invalid-argument-type]
    made = make_dataclass(name, [_option(f) for f in settings], bases=(CommonOptions,), frozen=True)
    made.__doc__ = f"Train and score {name}. Settings that are not given are as published, at the scale."
    if METHODS[name].__doc__:
        made.__doc__ += f" {METHODS[name].__doc__}"
    return made


def build(name: str, options: Any) -> Run:
    """Return the run that the options describe."""
    if options.columns and not options.corpus:
        raise ValueError(f"--columns {' '.join(options.columns)}: requires --corpus")
    corpus = read_corpus(options.corpus, options.corpus_lines, options.columns) if options.corpus else None
    scale, backbone = with_inputs(look_up("scale", options.scale, SCALES), options.backbone, corpus)
    common = {f.name for f in fields(CommonOptions)}
    given = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in common}
    given = {key: value for key, value in given.items() if value is not None}
    if "teachers" in given:
        given["teachers"] = read_teachers(given["teachers"], scale, backbone)
    of_run = {f.name for f in fields(Run)}
    run = RUNS[name](scale, backbone, **{k: v for k, v in given.items() if k not in of_run})
    if run is None:
        known_names = ", ".join(scale.backbones)
        raise ValueError(f"scale {scale.name} has no backbone {backbone!r}; known: {known_names}")
    if backbone != options.backbone:
        run = with_own_pooling(run)
    if corpus:  # also where a method chooses its sentences itself
        run = replace(run, corpus=corpus)
    return replace(run, **{k: v for k, v in given.items() if k in of_run})


@dataclass(frozen=True)
class Plan:
    """The rules that select checkpoints, of which the first is shown in summaries, and the tasks to score."""

    rules: tuple[str, ...]
    tasks: tuple[str, ...]


def make_plan(options: CommonOptions) -> Plan:
    """Return what a command line scores; refuse unknown tasks and rules before anything is trained."""
    scale = look_up("scale", options.scale, SCALES)
    dev = options.dev or scale.dev
    columns = options.pair_columns
    rule = own_pairs.add(dev, columns) if dev not in SELECTION and own_pairs.is_file(dev) else dev
    dev_sets(rule)
    tasks = options.evaluate or (("synthetic",) if scale.name == "quickstart" else ("sts",))
    names = suite.expand_names(tasks, columns)
    if columns and not any(map(own_pairs.is_own, (rule, *names))):
        raise ValueError(f"--pair-columns {' '.join(columns)}: requires a file in --dev or --evaluate")
    suite.check_scorer(Cosine(), names)
    return Plan(tuple(dict.fromkeys((rule, "last"))), names)


def train_and_score(runs: Sequence[Run], plan: Plan, options: CommonOptions) -> list[Mapping[str, Any]]:
    """Train the runs that each run needs, then train and score it, with progress bars; log all to MLflow."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    execution = ExecutionSettings(
        store_of(options).resolve(), data_folder(options.data), device=device, threads=options.threads
    )
    jobs = {run.key: job for each in runs for run, job in _jobs(each, plan, options).items()}
    sweep_report.warn_slow_precision([job.encoder for job in jobs.values()], device)
    results: dict[str, Mapping[str, Any]] = {}
    live = LiveLog(Tracker(options.mlruns), execution.store, lambda key: run_content(describe(jobs[key])))
    with closing(live), Bar({key: job.name for key, job in jobs.items()}) as bar:
        for key, job in jobs.items():
            reporter = Reporter(job.eval_steps, partial(_show, bar, live, key), every=1.0)
            results[key] = execute(job, execution, on_step=reporter.step, progress=reporter.prepare)
            bar.end(key)
            live.finish(key)
    if live.unlogged:
        say_not_logged(len(live.unlogged), next(filter(None, live.unlogged.values()), ""))
    return [results[run.key] for run in runs]


def _jobs(run: Run, plan: Plan, options: CommonOptions) -> dict[Run, Job]:
    rules_of = run.required_checkpoints() | {run: plan.rules}
    return {
        each: Job(
            each,
            options.scale,
            f"{each.method.name} {Path(each.backbone.name).name}",
            tuple(Scoring(rule, Cosine(), plan.tasks) for rule in rules),
        )
        for each, rules in rules_of.items()
    }


def store_of(options: CommonOptions) -> Path:
    """Return the folder of the run folders."""
    return options.mlruns / csv_record.MANUAL_RUNS


def _show(bar: Bar, live: LiveLog, key: str, report: Mapping[str, Any]) -> None:
    bar.move(key, report["fraction"], report["status"])
    live.add_points(key, report["points"])


def main(arguments: list[str]) -> None:
    """Train, score, print and log the runs of a command line."""
    if arguments and not arguments[0].startswith("-"):
        look_up("method", arguments[0], METHODS)
    options: Any = tyro.extras.subcommand_cli_from_dict(
        {name: options_for(name) for name in METHODS}, args=arguments, prog="run.py", description=__doc__
    )
    at_least(1, threads=options.threads, corpus_lines=options.corpus_lines)
    runs, plan = build_all(type(options).__name__, options), make_plan(options)
    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    results = train_and_score(runs, plan, options)
    for run, result in zip(runs, results, strict=True):
        console.print(f"run {run.key}: {result['settings']}")
        print_scores(result, only=set(plan.tasks), selects=plan.rules)
    if len(runs) > 1:
        print_over_seeds({result["seed"]: result for result in results}, plan.rules[0], plan.tasks)
    print_next_steps([store_of(options) / run.key / plan.rules[0] for run in runs], options)


def build_all(name: str, options: Any) -> list[Run]:
    """Return the run of each seed."""
    if options.seeds and options.seed is not None:
        raise ValueError(f"--seed {options.seed} and --seeds {' '.join(map(str, options.seeds))}: give one of the two")
    run = build(name, options)
    seeds = dict.fromkeys(options.seeds or (run.seed,))
    for seed in seeds:
        seeds_in_range(seed=seed)
    return [replace(run, seed=seed) for seed in seeds]


def print_next_steps(checkpoints: Sequence[Path], options: CommonOptions) -> None:
    """Print where the checkpoints are, and commands that score, export and compare them."""
    for path in checkpoints:
        console.print(f"checkpoint: {path}")
    console.print(f"more scores: python experiments/evaluate.py {checkpoints[0]} --tasks transfer")
    console.print(f"export: python experiments/export.py {checkpoints[0]} FOLDER")
    sweep_report.print_mlflow_command(Tracker(options.mlruns))


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]), (ValueError, OSError, ArithmeticError))
