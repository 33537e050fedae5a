"""Compare methods, each with its settings chosen by equally many trials.

    python experiments/compare.py simcse rankcse my_method.py:BothWays --trials 16 --searches 2 --finals 4
    python experiments/compare.py simcse compcse --corpus my.txt --backbone my/encoder --dev dev.tsv --evaluate test.tsv
    python experiments/compare.py simcse rankcse --dry-run
    python experiments/compare.py tuned
    python experiments/compare.py tuned simcse rankcse

The first method is the baseline. No test score is read before all settings of a method are chosen. The comparison has a
record of its own in mlruns/comparisons/NAME, so re-run the same command to resume. docs/compare.md has an example.
"""

if __name__ == "__main__":  # before the imports that take a second
    from cse_core.entry_point import end_on_interrupt

    end_on_interrupt()

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from cse_core.data import own_pairs
from cse_core.lookup import look_up
from cse_core.training.selection import SELECTION
from experiments.cli.command import INTERRUPTED, run_command
from experiments.cli.console import console, print_failures
from experiments.cli.options import Words, above_zero, at_least, check_device, filled_data_folder, flag, whole_gpus
from experiments.cli.user_inputs import check_corpus, encoder_size, with_inputs, with_own_pooling
from experiments.comparison.comparison import SAMPLERS, Budget, Comparison, Entrant, Scores
from experiments.comparison.entrants import entrant, measures_of, space_text, with_space
from experiments.comparison.tuned import COMPARISONS
from experiments.execution.job import ExecutionSettings
from experiments.execution.schedule_estimate import seconds_for
from experiments.execution.sweep_report import UNTIMED, hours, print_mlflow_command
from experiments.execution.sweep_setup import check_room, require_inputs, untrained_keys
from experiments.results import csv_record
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES
from experiments.storage.needed_inputs import GIB, Writes
from experiments.storage.record_folders import MLRUNS
from experiments.studies.own_study import loaded_files
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker

DEFAULT = Budget()
OF_EXECUTION = ("methods", "data", "mlruns", "workers", "gpus_per_run", "device", "compiled", "address", "shared")
OF_EXECUTION += ("by_method", "dry_run")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compare methods, each with its settings chosen by equally many trials."""

    methods: tyro.conf.Positional[tuple[str, ...]]
    """Names of methods, or FILE.py:CLASS for one of your own. The first is the baseline. Or the name of a declared
    comparison (tuned), which is run as PLAN2.md says and enters the project's record; after it, methods of it to run
    now."""
    name: str = ""
    """Name of the comparison, in its files and in MLflow. If not given: the methods' names."""
    trials: int = DEFAULT.trials
    """Settings that each search draws and trains once. The best quarter gets two more seeds."""
    searches: int = DEFAULT.searches
    """Independent searches for each method: what is tested is the mean over them."""
    finals: int = DEFAULT.finals
    """Fresh seeds of each search's winner, and of the published settings; only these are scored on test sets."""
    sampler: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SAMPLERS) + "}")] = "random"
    """How settings are drawn: independently, or by Optuna's TPE from the dev scores before them."""
    margin: float = 0.5
    """Points within which two methods count as equivalent."""
    scale: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SCALES) + "}")] = ""
    """Scale whose corpus and published settings are the starting point. If not given: small, and for an encoder of your
    own the published settings of the backbone that is nearest in depth and width."""
    backbone: str = BASE
    """Name of the backbone in the papers (a small scale uses a smaller encoder in its place), or a folder or hub name
    of any encoder."""
    corpus: str = ""
    """File to train on: .txt with one sentence a line, .tsv, .csv, .jsonl or .parquet; or a corpus of the data folder.
    If not given: the scale's."""
    columns: Words = ()
    """Columns of --corpus by name or number."""
    pair_columns: Words = ()
    """Columns of the files in --dev and --evaluate by name or number: two sentences and a score."""
    corpus_lines: int | None = None
    """Train on this number of first lines of the corpus."""
    dev: str = ""
    """What selects checkpoints and settings: stsb_dev, avg_sts or a file with two sentences and a score in each row. If
    not given: the scale's dev set."""
    evaluate: Words = ()
    """Tasks, groups of tasks or files on which the finals are scored; the first decides. If not given: sts, and
    sts_disjoint, which leaves out pairs that STS-B's dev or train set has."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    mlruns: Path | None = None
    """Folder of the comparison's record. If not given: mlruns/comparisons/NAME."""
    workers: int = 0
    """Number of runs at a time; 0 means one per core, or one per GPU."""
    gpus_per_run: float = 1.0
    """Share of a GPU for each run, or a whole number of GPUs. Ignored on CPUs."""
    device: str = os.environ.get("CSE_DEVICE", "")
    """cpu or cuda. If not given: CSE_DEVICE, or cuda if there is a GPU."""
    compiled: bool = False
    """Use torch.compile for training on GPUs."""
    address: str = os.environ.get("CSE_RAY", "local")
    """Address of the Ray cluster: `auto` on one of its machines, `local` for this machine. If not given: CSE_RAY."""
    shared: str = os.environ.get("CSE_SHARED", "")
    """URL of a folder that all machines of a cluster reach, for the run folders."""
    by_method: bool = False
    """Complete one method after another; else each stage runs for all methods together."""
    dry_run: bool = False
    """Show the spaces, the runs, their hours and the disk that they take, and exit."""

    @property
    def budget(self) -> Budget:
        return Budget(trials=self.trials, searches=self.searches, finals=self.finals)


def check(options: Options) -> None:
    """Refuse invalid values before anything is read or started."""
    if not options.methods:
        raise ValueError("expected the names of methods to compare, or tuned; see --help")
    at_least(1, trials=options.trials, searches=options.searches, finals=options.finals)
    at_least(1, corpus_lines=options.corpus_lines)
    at_least(0, workers=options.workers)
    above_zero(margin=options.margin)
    whole_gpus(gpus_per_run=options.gpus_per_run)
    check_device(options.device, options.address)
    if options.columns and not options.corpus:
        raise ValueError(f"--columns {' '.join(options.columns)}: requires --corpus")


def comparison_of(options: Options) -> Comparison:
    """Return the comparison that the options describe."""
    scale, backbone = with_inputs(
        options.scale, options.backbone, options.corpus, options.corpus_lines, options.columns
    )
    entrants = [entrant(name, scale, backbone) for name in options.methods]
    if backbone != options.backbone:
        entrants = [replace(each, start=with_own_pooling(each.start)) for each in entrants]
    if options.corpus:  # also where a method chooses its sentences itself
        entrants = [replace(each, start=replace(each.start, corpus=scale.corpus)) for each in entrants]
    for each in entrants:
        check_corpus(each.start)
    usual, dev = ("synthetic",) if scale.name == "quickstart" else ("sts", "sts_disjoint"), _dev(options) or scale.dev
    measures = measures_of(options.evaluate or usual, dev, options.pair_columns)
    tasks = [task for tasks in measures.values() for task in tasks]
    return Comparison(
        name=options.name or "-".join(each.name for each in entrants),
        scale=scale,
        entrants=tuple(with_space(each, scale, _width(each), tasks) for each in entrants),
        measures=measures,
        dev=dev,
        budget=options.budget,
        sampler=options.sampler,
        margin=options.margin,
    )


def _width(each: Entrant) -> int:
    return encoder_size(each.start.backbone.name)[1]


def _dev(options: Options) -> str:
    """Return the rule that --dev names, with a file's set."""
    if options.dev in SELECTION or not own_pairs.is_file(options.dev):
        return options.dev
    return own_pairs.add(options.dev, options.pair_columns)


def pair_files(options: Options) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """Return the files of pairs in --dev and --evaluate with their columns."""
    named = dict.fromkeys((options.dev, *options.evaluate))
    return tuple(
        (Path(name).expanduser().resolve(), options.pair_columns)
        for name in named
        if name and own_pairs.is_file(name) and Path(name).expanduser().is_file()
    )


def print_forecast(comparison: Comparison, entrants: Sequence[Entrant], workers: int) -> None:
    """Print each method's space, and what running them takes."""
    table = Table(title=f"comparison {comparison.name}: {comparison.budget.runs} runs for each method", show_lines=True)
    for heading in ("method", "searched in"):
        table.add_column(heading)
    table.add_column("hours", justify="right")
    results, total = csv_record.read_results(comparison.scale.name), []
    for each in entrants:
        trials = comparison.stage("trials", Scores({}), (each,))
        keys = {trial.run.key for trial in trials}
        seconds = {key: seconds_for([job], results) for key, job in comparison.jobs(trials, final=False).items()}
        known = {key: value for key, value in seconds.items() if value is not None}
        own = [value for key, value in known.items() if key in keys]
        others = sum(value for key, value in known.items() if key not in keys)  # teachers and bases, trained once
        spent = statistics.mean(own) * comparison.budget.runs + others if own else None
        total.append(spent)
        table.add_row(each.name, space_text(each.space), hours(spent))
    console.print(table)
    kept = comparison.budget.finals * (comparison.budget.searches + 1)
    writes = Writes.of([(each.start.backbone, kept) for each in entrants], workers)
    known = [value for value in total if value is not None]
    time = hours(sum(known) / workers) if len(known) == len(total) else UNTIMED
    console.print(
        f"time with {workers} at a time: {time}; checkpoints of the finals: {writes.kept / GIB:.1f} GiB",
        highlight=False,
    )


def chosen(options: Options) -> tuple[Comparison, Path]:
    """Return the comparison, declared or described by the options, and the folder of its record."""
    if options.methods[0] not in COMPARISONS:
        comparison = comparison_of(options)
        return comparison, options.mlruns or MLRUNS / "comparisons" / comparison.name
    plain = Options(methods=options.methods)
    for field in fields(options):
        if field.name not in OF_EXECUTION and getattr(options, field.name) != getattr(plain, field.name):
            raise ValueError(f"comparison {options.methods[0]}: is declared; expected no {flag(field.name)} beside it")
    return COMPARISONS[options.methods[0]](), options.mlruns or MLRUNS


def to_run(options: Options, comparison: Comparison) -> tuple[Entrant, ...]:
    """Return the methods that this command runs: all, or those that are named after a declared comparison."""
    by_name = {each.name: each for each in comparison.entrants}
    named = options.methods[1:] if options.methods[0] in COMPARISONS else ()
    return tuple(look_up("method", name, by_name) for name in named) or comparison.entrants


def execution_of(options: Options, mlruns: Path) -> ExecutionSettings:
    """Return the settings of the execution."""
    data = filled_data_folder(options.data)
    return ExecutionSettings(
        (mlruns / "store").resolve(),
        data.resolve() if data else None,
        compiled=options.compiled,
        shared=options.shared,
        pair_files=pair_files(options),
    )


def main(options: Options) -> int:
    """Run the command; return 0, 1 if a run failed, or 130 if interrupted."""
    check(options)
    comparison, mlruns = chosen(options)
    entrants = to_run(options, comparison)
    execution = execution_of(options, mlruns)
    workers = options.workers or os.cpu_count() or 1
    if options.dry_run:
        print_forecast(comparison, entrants, workers)
        return 0
    from analysis.comparison.report import write_report  # lazy: slow import
    from experiments.comparison.run_comparison import run_comparison  # lazy: slow import
    from experiments.execution.ray_sweep import RayConfig  # lazy: slow import

    csv_record.check_writable(mlruns)
    check_database(mlruns)
    finals = [
        comparison.trial(each, 0, each.published, seed) for each in entrants for seed in range(comparison.budget.finals)
    ]
    jobs = list(comparison.jobs(finals, final=True).values())
    require_inputs(jobs, untrained_keys(jobs, execution.store), execution.data)
    cluster = RayConfig(options.address, options.workers, options.gpus_per_run, options.device, loaded_files())
    if options.address == "local":
        check_room(jobs, {job.key for job in jobs}, execution, options.workers)
    print_forecast(comparison, entrants, workers)
    tracker = Tracker(mlruns)
    failed: dict[str, str] = {}
    for together in [(each,) for each in entrants] if options.by_method else [entrants]:
        more, ended = run_comparison(comparison, execution, cluster, tracker, together)
        failed |= more
        if not ended:
            print_failures(failed, ended)
            return INTERRUPTED
        report = write_report(comparison, mlruns, failed)
    print_failures(failed, ended=True)
    for line in report:
        console.print(line, highlight=False)
    print_mlflow_command(tracker)
    return 1 if failed else 0


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))


if __name__ == "__main__":
    command()
