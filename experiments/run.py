"""Train and score one run: a method with its published settings at a scale, of which any can be changed.

    python experiments/run.py rankcse --rank list_mle --student-temperature 0.1 --seed 1
    python experiments/run.py simcse --seeds 1 2 3
    python experiments/run.py simcse --corpus my_sentences.txt --backbone my/encoder --dev my_pairs.tsv
    python experiments/run.py rankcse --teachers my/encoder:0.5 glove-6b-50d:0.5

The scores are printed and logged to MLflow, but not recorded: the record has the runs of studies only.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.run")

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from cse_core.data.locate import data_folder
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.lookup import look_up, not_among
from cse_core.methods import METHODS
from cse_core.run import NGRAM_POOLINGS, Run
from cse_core.training.loop import DivergedError
from cse_core.training.selection import dev_sets
from experiments.cli.command import run_command
from experiments.cli.console import Bar, console, print_failures
from experiments.cli.options import (
    at_least,
    check_device,
    check_threads,
    device_here,
    filled_data_folder,
    flag,
    seeds_in_range,
)
from experiments.cli.run_options import CommonOptions, choices_of, options_for
from experiments.cli.selection_warnings import selection_warnings
from experiments.cli.user_inputs import (
    check_corpus,
    check_pair_columns,
    encoder_size,
    read_dev,
    read_encoder,
    read_teachers,
    with_inputs,
    with_own_pooling,
)
from experiments.execution import sweep_report
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job, Scoring, describe, execute
from experiments.execution.log_queue import say_not_logged
from experiments.execution.schedule_estimate import expected_seconds
from experiments.execution.sweep_setup import check_room, require_inputs, untrained_keys
from experiments.results import csv_record
from experiments.results.score_tables import main_scores, print_over_seeds, print_scores, print_warnings
from experiments.schema.recipes import BACKBONES, RUNS
from experiments.schema.rows import AS_IS
from experiments.schema.scales import SCALES, scale_for
from experiments.schema.study import pretrained_key
from experiments.schema.study_parts import shorten
from experiments.tracking.live_log import LiveLog
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import run_content
from experiments.tracking.run_reports import Reporter


def build(name: str, options: Any) -> Run:
    """Return the run that the options describe."""
    scale, backbone = with_inputs(options)
    common = {f.name for f in fields(CommonOptions)}
    given = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in common}
    given = {key: value for key, value in given.items() if value is not None}
    for key, choices in choices_of(name).items():
        if given.get(key, choices[0]) not in choices:
            raise not_among(flag(key), given[key], choices)
    if "generator" in given:
        given["generator"] = read_encoder(given["generator"])
    if "teachers" in given:
        given["teachers"] = read_teachers(given["teachers"], scale, backbone)
    of_run = {f.name for f in fields(Run)}
    run = RUNS[name](scale, backbone, **{k: v for k, v in given.items() if k not in of_run})
    if run is None:
        known_names = ", ".join(scale.backbones)
        raise ValueError(f"scale {scale.name} has no backbone {backbone!r}; known: {known_names}")
    if backbone != options.backbone:
        run = with_own_pooling(run)
    if options.corpus:  # also for methods whose recipe names another corpus
        run = replace(run, corpus=scale.corpus)
    run = replace(run, **{k: v for k, v in given.items() if k in of_run})
    if "corpus_size" in given:  # otherwise `shorten` reduces it
        check_corpus(run)
    if run.max_steps or options.corpus_lines:
        run = shorten(run, run.max_steps, options.corpus_lines or 0)
    check_corpus(run)
    return run


@dataclass(frozen=True)
class Plan:
    """The rules that select checkpoints, the first one for summaries, and the tasks to score."""

    rules: tuple[str, ...]
    tasks: tuple[str, ...]


def make_plan(options: CommonOptions) -> Plan:
    """Return the rules and tasks of a command line; refuse unknown ones before anything is trained."""
    scale = look_up("scale", options.scale or "small", SCALES)
    columns = options.pair_columns
    rule = read_dev(options.dev or scale.dev, columns)
    dev_sets(rule)
    tasks = options.evaluate or (("synthetic",) if scale.name == "quickstart" else ("sts",))
    names = suite.expand_names(tasks, columns)
    check_pair_columns(columns, (rule, *names))
    suite.check_scorer(Cosine(), names)
    return Plan(tuple(dict.fromkeys((rule, "last"))), names)


def train_and_score(
    runs: Sequence[Run], plan: Plan, options: CommonOptions
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Score the untrained backbone, then train and score the runs and those that they need; log all to MLflow.

    Return the results by key, and why runs failed. Of several seeds, one that diverges or has no score stops no other.
    """
    device = device_here(options.device)
    execution = ExecutionSettings(
        store_of(options).resolve(), data_folder(options.data), device=device, threads=options.threads
    )
    jobs = {job.key: job for run in runs for job in _jobs(run, plan, options)}
    _look_ahead(list(jobs.values()), execution)
    results: dict[str, Mapping[str, Any]] = {}
    failed: dict[str, str] = {}
    several = {run.key for run in runs} if len(runs) > 1 else set()
    live = LiveLog(Tracker(options.mlruns), execution.store, lambda key: run_content(describe(jobs[key])))
    with closing(live), Bar({key: job.name for key, job in jobs.items()}) as bar:
        for key, job in jobs.items():
            reporter = Reporter(job.eval_steps, partial(_show, bar, live, key), every=1.0)
            end = live.finish
            try:
                results[key] = execute(job, execution, on_step=reporter.step, progress=reporter.prepare)
            except (FailedTasksError, DivergedError) as error:
                if isinstance(job.encoder, Run):
                    if key not in several:
                        raise
                    failed[key] = f"{type(error).__name__}: {error}"
                # An untrained encoder may have no score: nothing depends on it.
                if isinstance(error, FailedTasksError):
                    results[key] = error.result
                else:
                    results[key] = {"cells": [], "warnings": []}
                    end = live.stop  # there is no result to log
            bar.end(key)
            end(key)
    if live.unlogged:
        say_not_logged(len(live.unlogged), next(filter(None, live.unlogged.values()), ""))
    return results, failed


def _look_ahead(jobs: Sequence[Job], execution: ExecutionSettings) -> None:
    """Check inputs and disk space before anything is trained; print warnings and the expected time."""
    keys = untrained_keys(jobs, execution.store)
    require_inputs(jobs, keys, execution.data)
    check_room(jobs, keys, execution, 1)
    sweep_report.warn_slow_precision([job.encoder for job in jobs], execution.device)
    left = [job for job in jobs if job.key in keys]
    if left:
        seconds = expected_seconds(left, csv_record.read_results(jobs[0].scale)).values()
        known = [each for each in seconds if each is not None]
        time = sweep_report.hours(sum(known)) if len(known) == len(left) else sweep_report.UNTIMED
        console.print(f"runs to train: {len(left)}, time: {time}")


def untrained_scoring(run: Run, plan: Plan) -> Scoring | None:
    """Return the scoring of a run's backbone as it is before training; None if its pooling has its own weights."""
    if run.pooling in NGRAM_POOLINGS:
        return None
    return Scoring(AS_IS, Cosine(run.pooling, run.template), plan.tasks)


def _jobs(run: Run, plan: Plan, options: CommonOptions) -> list[Job]:
    scale, name, before = options.scale or "small", Path(run.backbone.name).name, untrained_scoring(run, plan)
    rules_of = run.required_checkpoints() | {run: plan.rules}
    return [
        *([Job(run.backbone, scale, f"untrained {name}", (before,))] if before else []),
        *(
            Job(
                each,
                scale,
                f"{each.method.name} {Path(each.backbone.name).name}",
                tuple(Scoring(rule, Cosine(), plan.tasks) for rule in rules),
            )
            for each, rules in rules_of.items()
        ),
    ]


def store_of(options: CommonOptions) -> Path:
    """Return the folder of the run folders."""
    return options.mlruns / csv_record.MANUAL_RUNS


def _show(bar: Bar, live: LiveLog, key: str, report: Mapping[str, Any]) -> None:
    bar.move(key, report["fraction"], report["status"])
    live.add_points(key, report["points"])


def main(arguments: list[str]) -> int:
    """Train, score, print and log the runs of a command line; return 1 if one of several seeds failed."""
    if arguments and not arguments[0].startswith("-"):
        look_up("method", arguments[0], METHODS)
    options: Any = tyro.extras.subcommand_cli_from_dict(
        {name: options_for(name) for name in METHODS}, args=arguments, description=__doc__
    )
    check_threads(options.threads)
    at_least(1, corpus_lines=options.corpus_lines, max_steps=options.max_steps)
    check_device(options.device)
    filled_data_folder(options.data)
    runs, plan = build_all(type(options).__name__, options), make_plan(options)
    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    say_settings(runs[0], options)
    for warning in selection_warnings(runs[0], plan.rules[0], plan.tasks, data_folder(options.data)):
        console.print(f"warning: {warning}", style="yellow")
    results, failed = train_and_score(runs, plan, options)
    ended = [run for run in runs if run.key not in failed]
    for run in ended:
        console.print(f"run {run.key}: seed {run.seed} {results[run.key]['settings']}")
    if len(runs) == 1:
        print_scores(results[runs[0].key], only=set(plan.tasks), selects=plan.rules)
    else:
        print_warnings(list(results.values()))
    before = untrained_scoring(runs[0], plan)
    untrained = results[pretrained_key(runs[0].backbone)] if before else None
    shown = main_scores(untrained, AS_IS, plan.tasks, str(before.scorer)) if before and untrained else {}
    for rule in reversed(plan.rules if len(runs) > 1 else plan.rules[:1]):  # the chosen checkpoint's last
        print_over_seeds({run.seed: results[run.key] for run in runs}, rule, plan.tasks, shown)
    print_failures({f"seed {run.seed} ({run.key})": failed[run.key] for run in runs if run.key in failed}, ended=True)
    if ended:
        print_next_steps([store_of(options) / run.key / plan.rules[0] for run in ended], options)
    return 1 if failed else 0


def say_settings(run: Run, options: CommonOptions) -> None:
    """Print whose settings the user's own encoder gets, and why, unless a scale was named."""
    if options.scale or options.backbone in BACKBONES:
        return
    layers, width = encoder_size(options.backbone)
    scale, paper = scale_for(run.backbone, layers, width, run.corpus)
    whose = BACKBONES[paper] if scale.width is None else "scale small"
    console.print(
        f"settings of {whose}: learning rate {run.learning_rate:g}, dropout {run.dropout:g}, because the encoder has "
        f"{layers} layers of {width}; --scale, or an option for each setting, gives others",
        highlight=False,
    )


def build_all(name: str, options: Any) -> list[Run]:
    """Return the run of each seed."""
    if options.seeds and options.seed is not None:
        raise ValueError(f"--seed {options.seed} and --seeds {' '.join(map(str, options.seeds))}: give one of the two")
    run = build(name, options)
    seeds = dict.fromkeys(options.seeds or (run.seed,))
    for seed in seeds:
        seeds_in_range(**{"seeds" if options.seeds else "seed": seed})
    return [replace(run, seed=seed) for seed in seeds]


def print_next_steps(checkpoints: Sequence[Path], options: CommonOptions) -> None:
    """Print where the checkpoints are, and commands that score, export and compare them."""
    for path in checkpoints:
        console.print(f"checkpoint: {path}")
    console.print(f"more scores: python experiments/evaluate.py {checkpoints[0]} --tasks transfer")
    console.print(f"export: python experiments/export.py {checkpoints[0]} FOLDER")
    sweep_report.print_mlflow_command(Tracker(options.mlruns))


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(sys.argv[1:]), (ValueError, OSError, ArithmeticError))
