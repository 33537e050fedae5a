"""Compare methods with equal tuning: the same number of trials chooses the settings of each.

    python experiments/compare.py simcse rankcse my_method.py:BothWays --trials 16 --searches 2 --finals 4
    python experiments/compare.py simcse compcse --corpus my.txt --backbone my/encoder --dev dev.tsv --evaluate test.tsv
    python experiments/compare.py simcse rankcse --dry-run
    python experiments/compare.py tuned
    python experiments/compare.py tuned simcse rankcse

The first method is the baseline. No test score is read before all settings of a method are chosen. The comparison keeps
its own record in mlruns/comparisons/NAME, so the same command resumes it. docs/compare.md has an example.
`Comparison.selected` in experiments/comparison/ chooses settings, and analysis/verdicts/comparison.py tests the gains.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.compare")

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import tyro
from rich.table import Table

from cse_core.data import own_pairs
from cse_core.lookup import look_up
from cse_core.run import Pretrained
from experiments.cli.command import INTERRUPTED, run_command
from experiments.cli.console import console, print_failures
from experiments.cli.options import Words, above_zero, at_least, device_here, filled_data_folder, flag
from experiments.cli.run_options import InputOptions
from experiments.cli.selection_warnings import few_scores_warning, shared_pairs_warnings
from experiments.cli.sweep_options import RayOptions, check_ray
from experiments.cli.user_inputs import check_corpus, check_pair_columns, encoder_size, with_inputs, with_own_pooling
from experiments.comparison.comparison import PUBLISHED, SAMPLERS, STAGES, Budget, Comparison, Entrant, Scores
from experiments.comparison.entrants import entrant, measures_of, tasks_of, tried_text, with_space
from experiments.comparison.recorded import check_inputs, read_scores
from experiments.comparison.tuned import COMPARISONS
from experiments.execution.job import Job
from experiments.execution.log_queue import log_results, record_results
from experiments.execution.schedule_estimate import expected_seconds, measured_seconds_of, runs_at_once
from experiments.execution.sweep_report import hours, print_mlflow_command
from experiments.execution.sweep_setup import (
    execution_settings,
    prepare_shared,
    ray_config,
    require_inputs,
    untrained_keys,
)
from experiments.results import csv_record
from experiments.schema.study_parts import shorten
from experiments.storage.needed_inputs import GIB, Writes
from experiments.storage.record_folders import MLRUNS
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker

DEFAULT = Budget()
FOLDER = MLRUNS / "comparisons" / "NAME"  # default folder of a comparison's record
OF_EXECUTION = {"methods", "by_method", "dry_run"} | {field.name for field in fields(RayOptions)} - {"scale"}


@dataclass(frozen=True, kw_only=True)
class Options(InputOptions, RayOptions):
    """Compare methods with equal tuning: the same number of trials chooses the settings of each."""

    methods: tyro.conf.Positional[tuple[str, ...]]
    """Names of methods, or FILE.py:CLASS for one of your own. The first is the baseline. Or the name of a declared
    comparison (tuned, tuned-medium), which is run as PLAN2.md says and enters the project's record; after it, methods
    of it to run now."""
    name: str = ""
    """Name of the comparison, in its files and in MLflow. If not given: the methods' names."""
    trials: int = DEFAULT.trials
    """Settings that each search draws and trains once. The best quarter gets two more seeds, unless it is a single
    one."""
    searches: int = DEFAULT.searches
    """Independent searches for each method: what is tested is the mean over them."""
    finals: int = DEFAULT.finals
    """Fresh seeds of each search's winner, and of the published settings; only these are scored on test sets."""
    sampler: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SAMPLERS) + "}")] = "random"
    """How settings are drawn: independently, or by Optuna's TPE from the dev scores before them."""
    margin: float = 0.5
    """Points within which two methods count as equivalent."""
    evaluate: Words = ()
    """Tasks, groups of tasks or files on which the finals are scored; the first decides. If not given: sts, and
    sts_disjoint, which leaves out pairs that STS-B's dev or train set has. At scale quickstart: synthetic."""
    mlruns: Path = FOLDER
    """Folder of the comparison's record. If not given: mlruns/comparisons/NAME."""
    by_method: bool = False
    """Complete one method after another. If not given, each stage runs for all methods together; methods that learn
    from the baseline (rankcse, rankencoder) come after the others."""
    dry_run: bool = False
    """Show the spaces, the runs, their hours and the size of the checkpoints that stay, and exit."""

    @property
    def budget(self) -> Budget:
        return Budget(trials=self.trials, searches=self.searches, finals=self.finals)


def check(options: Options) -> None:
    """Refuse invalid values before anything is read or started."""
    if not options.methods:
        raise ValueError("expected the names of methods to compare, or tuned; see --help")
    check_ray(options)
    filled_data_folder(options.data)
    at_least(1, trials=options.trials, searches=options.searches, finals=options.finals)
    at_least(1, corpus_lines=options.corpus_lines)
    above_zero(margin=options.margin)


def comparison_of(options: Options) -> Comparison:
    """Return the comparison that the options describe."""
    if options.name in COMPARISONS:
        raise ValueError(f"--name {options.name}: is a declared comparison of the project; expected another name")
    scale, backbone = with_inputs(options)
    entrants = [entrant(name, scale, backbone) for name in options.methods]
    if backbone != options.backbone:
        entrants = [replace(each, start=with_own_pooling(each.start)) for each in entrants]
    if options.corpus:  # also for methods whose recipe names another corpus
        entrants = [replace(each, start=replace(each.start, corpus=scale.corpus)) for each in entrants]
    # A method ranks all sentences of a corpus that has fewer than it would draw.
    entrants = [replace(each, start=shorten(each.start, each.start.max_steps, 0)) for each in entrants]
    for each in entrants:
        check_corpus(each.start)
    usual = ("synthetic",) if scale.name == "quickstart" else ("sts", "sts_disjoint")
    measures = measures_of(options.evaluate or usual, scale.dev, options.pair_columns)
    tasks = tasks_of(measures)
    check_pair_columns(options.pair_columns, (scale.dev, *tasks))
    return Comparison(
        name=options.name or "-".join(each.name for each in entrants),
        scale=scale,
        entrants=tuple(with_space(each, scale, encoder_size(each.start.backbone.name)[1], tasks) for each in entrants),
        measures=measures,
        dev=scale.dev,
        budget=options.budget,
        nested_seeds=(42, *range(1, max(2, options.searches))),  # searches share no teacher and no base
        sampler=options.sampler,
        margin=options.margin,
    )


def pair_files(options: Options) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """Return the files of pairs in --dev and --evaluate with their columns."""
    named = dict.fromkeys((options.dev, *options.evaluate))
    return tuple(
        (Path(name).expanduser().resolve(), options.pair_columns)
        for name in named
        if name and own_pairs.is_file(name) and Path(name).expanduser().is_file()
    )


def print_forecast(comparison: Comparison, entrants: Sequence[Entrant], workers: int, mlruns: Path) -> None:
    """Print each method's search space, runs and hours left, the time left, and the disk space of the finals."""
    table = Table(title=f"comparison {comparison.name}: {comparison.budget.runs} runs for each method", show_lines=True)
    for heading in ("method", "searched in"):
        table.add_column(heading)
    for heading in ("runs left", "hours left"):
        table.add_column(heading, justify="right")
    results, scores = read_scores(comparison, mlruns)
    timed, spent = csv_record.read_results(comparison.scale.name), {}
    for each in entrants:
        left = runs_left(comparison, each, scores)
        spent[each.name] = seconds_left(comparison, each, left, scores, timed, results)
        table.add_row(each.name, tried_text(comparison, each), str(left), hours(spent[each.name]))
    console.print(table)
    time = hours(sum(filter(None, spent.values())) / workers)
    if untimed := [name for name, seconds in spent.items() if seconds is None]:
        time = f"unknown before the first steps of {', '.join(untimed)}, as no run like theirs is recorded"
    console.print(
        f"time left with {workers} at a time: {time}; checkpoints of the finals: "
        f"{writes_left(comparison, entrants, scores, workers).kept / GIB:.1f} GiB",
        highlight=False,
    )


def writes_left(comparison: Comparison, entrants: Sequence[Entrant], scores: Scores, workers: int) -> Writes:
    """Return what the finals that have not ended keep in the store."""
    finals = comparison.budget.finals * (comparison.budget.searches + 1)
    left: list[tuple[Pretrained, int]] = []
    for each in entrants:
        ended = sum(map(scores.has_ended, comparison.stage("finals", scores, (each,))))
        left += [(each.start.backbone, 1)] * (finals - ended)
    return Writes.of(left, workers)


def runs_left(comparison: Comparison, entrant: Entrant, scores: Scores) -> int:
    """Return how many of a method's runs have not ended."""
    known = [trial for stage in STAGES for trial in comparison.stage(stage, scores, (entrant,))]
    every = len(known) if comparison.has_chosen(entrant, scores) else comparison.budget.runs
    return every - sum(map(scores.has_ended, known))


def seconds_left(
    comparison: Comparison, entrant: Entrant, left: int, scores: Scores, timed: pd.DataFrame, results: pd.DataFrame
) -> float | None:
    """Return the seconds of training that `left` runs take, with teachers and bases; None if they can't be estimated.

    Runs take as long as a trial on average. `results` is the comparison's own record, `timed` the project's.
    """
    if not left:
        return 0.0
    trials = comparison.stage("trials", scores, (entrant,))
    jobs = comparison.jobs(trials, final=False)
    nested = [jobs[key] for key in jobs.keys() - {trial.run.key for trial in trials} - set(results["key"])]
    # A trial without a measured time takes as long as the published settings, with its number of epochs.
    typical = {run.epochs: replace(entrant.start, epochs=run.epochs) for run in (trial.run for trial in trials)}
    others = expected_seconds([Job(run, comparison.scale.name, "") for run in typical.values()], timed)
    measured = measured_seconds_of(jobs.values(), results, on_gpus=True)
    seconds = [measured[t.run.key] or others[typical[t.run.epochs].key] for t in trials]
    known = [value for value in seconds if value is not None]
    more = [measured[key] or value for key, value in expected_seconds(nested, timed).items()]
    return statistics.mean(known) * left + sum(filter(None, more)) if known else None


def chosen(options: Options) -> tuple[Comparison, Options]:
    """Return the comparison, declared or described by the options, and the options with the folders of its record."""
    given = options.mlruns != FOLDER
    if options.methods[0] not in COMPARISONS:
        comparison = comparison_of(options)
        mlruns = options.mlruns if given else FOLDER.parent / comparison.name
        store = options.store / "comparisons" / comparison.name if options.store else None
        return comparison, replace(options, mlruns=mlruns, store=store)
    plain = Options(methods=options.methods)
    for field in fields(options):
        if field.name not in OF_EXECUTION and getattr(options, field.name) != getattr(plain, field.name):
            raise ValueError(f"comparison {options.methods[0]}: is declared; expected no {flag(field.name)} beside it")
    return COMPARISONS[options.methods[0]](), options if given else replace(options, mlruns=MLRUNS)


def to_run(options: Options, comparison: Comparison) -> tuple[Entrant, ...]:
    """Return the methods to run: all, or those that follow the name of a declared comparison."""
    by_name = {each.name: each for each in comparison.entrants}
    named = options.methods[1:] if options.methods[0] in COMPARISONS else ()
    return tuple(look_up("method", name, by_name) for name in named) or comparison.entrants


def in_turn(comparison: Comparison, entrants: Sequence[Entrant], *, by_method: bool) -> list[list[Entrant]]:
    """Return the methods that run together, one group after the other: those that need the baseline come after it."""
    if by_method:
        return [[each] for each in sorted(entrants, key=lambda each: each != comparison.entrants[0])]
    later = [each for each in entrants if comparison.needs_baseline(each)]
    return [group for group in ([each for each in entrants if each not in later], later) if group]


def check_ready(comparison: Comparison, entrants: Sequence[Entrant], waiting: Mapping[str, str]) -> None:
    """Refuse methods that wait for something that this command does not run."""
    baseline = comparison.entrants[0]
    if waiting and (baseline not in entrants or baseline.name in waiting):
        first = next(iter(waiting.values()))
        names = ", ".join(name for name, reason in waiting.items() if reason == first)
        raise ValueError(f"{names}: {first}")


def main(options: Options) -> int:
    """Run the command; return 0, 1 if a run failed, or 130 if interrupted."""
    check(options)
    comparison, options = chosen(options)
    entrants = to_run(options, comparison)
    execution = replace(execution_settings(options), pair_files=pair_files(options))
    workers = _at_a_time(options)
    if options.dry_run:
        print_forecast(comparison, entrants, workers, options.mlruns)
        return 0
    from analysis.comparison.report import write_report  # lazy: slow import
    from experiments.comparison.run_comparison import not_ready, run_comparison  # lazy: slow import

    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    files = {"", *(each.file for each in entrants)}
    for file in files:
        record_results(execution.store, options.mlruns, file)
    check_ready(comparison, entrants, not_ready(comparison, entrants, options.mlruns))
    finals = [trial for each in entrants for trial in comparison.finals(each, PUBLISHED, Scores({}))]
    jobs = list(comparison.jobs(finals, final=True).values())
    require_inputs(jobs, untrained_keys(jobs, execution.store), execution.data)
    if options.address == "local" and not options.shared:
        scores = read_scores(comparison, options.mlruns)[1]
        writes_left(comparison, entrants, scores, workers).check_room(execution.store)
    if options.methods[0] not in COMPARISONS:
        check_inputs(comparison, options.mlruns)
        tasks = tasks_of(comparison.measures)
        unsafe = [task for task in tasks if f"{task}_disjoint" not in tasks]  # whose twin is shown beside it
        few = {few_scores_warning(each.start, comparison.dev) for each in entrants} - {""}
        for warning in (*sorted(few), *shared_pairs_warnings(comparison.dev, unsafe, execution.data)):
            console.print(f"warning: {warning}", style="yellow")
    print_forecast(comparison, entrants, workers, options.mlruns)
    prepare_shared(options)
    cluster, tracker = ray_config(options), Tracker(options.mlruns)
    failed: dict[str, str] = {}
    for together in in_turn(comparison, entrants, by_method=options.by_method):
        more, ended = run_comparison(comparison, execution, cluster, tracker, together)
        failed |= more
        if not ended:
            return _say_stopped(comparison, options.mlruns, failed)
        report = write_report(comparison, options.mlruns, execution.store, failed)
    for file in files:
        log_results(execution.store, tracker, file)
    print_failures(_with_names(comparison, options.mlruns, failed), ended=True)
    for line in report:
        console.print(line, highlight=False)
    print_mlflow_command(tracker)
    return 1 if failed else 0


def _at_a_time(options: Options) -> int:
    """Return how many runs are trained at a time; of a cluster only --workers is known."""
    if options.address != "local" or device_here(options.device) != "cuda":
        return options.workers or os.cpu_count() or 1
    room = runs_at_once(torch.cuda.device_count(), options.gpus_per_run)
    return max(1, min(options.workers or room, room))


def _say_stopped(comparison: Comparison, mlruns: Path, failed: Mapping[str, str]) -> int:
    """Print why the comparison stopped, and how to resume it; return 130, or 1 after a failure of the machine."""
    from experiments.comparison.run_comparison import is_of_machine  # lazy: slow import

    stopped = any(map(is_of_machine, failed.values()))
    print_failures(_with_names(comparison, mlruns, failed), ended=stopped)
    if not stopped:
        return INTERRUPTED
    others = (
        f"name the others after {comparison.name}" if comparison.name in COMPARISONS else f"--name {comparison.name}"
    )
    console.print(
        "stopped, as such a failure may stop every method. What finished is kept: mend its cause and run the same "
        f"command again, or leave a method out ({others})",
        style="red",
    )
    return 1


def _with_names(comparison: Comparison, mlruns: Path, failed: Mapping[str, str]) -> dict[str, str]:
    """Return failures by the method, search and seed of each run in place of its key."""
    if not failed:
        return {}
    scores = read_scores(comparison, mlruns, failed)[1]
    every = [job for stage in STAGES for job in comparison.jobs(comparison.stage(stage, scores), final=False).values()]
    names = {job.key: f"{job.name} ({job.key})" for job in every}
    return {names.get(key, key): reason for key, reason in failed.items()}


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
