"""The options of sweep.py and of related commands, with the checks that come before anything is read or started."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import tyro

from experiments.cli.options import (
    Numbers,
    Words,
    above_zero,
    at_least,
    at_most,
    check_device,
    filled_data_folder,
    seeds_in_range,
    whole_gpus,
)
from experiments.schema.study_parts import Parts
from experiments.storage.record_folders import FRESH, MLRUNS, RESULTS_OF_OWN, TRIAL, folder_of, is_own_study
from experiments.storage.retries import SHARE_SECONDS

MOST_SEEDS = 10_000  # of each row
MOST_AT_ONCE = 100_000


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """What sweep.py, search.py, audit.py and estimate.py share."""

    scale: str = "small"
    """Size of the runs: small, small-1m or paper. Quickstart, released and minilm have studies of their own."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    mlruns: Path = MLRUNS
    """Folder of the record, MLflow's database and the run folders."""
    store: Path | None = Path(os.environ["CSE_STORE"]) if os.environ.get("CSE_STORE") else None
    """Folder of the run folders, if not in --mlruns; with --shared, on a local disk. If not given: CSE_STORE."""
    device: str = os.environ.get("CSE_DEVICE", "")
    """cpu or cuda. If not given: CSE_DEVICE, or cuda if there is a GPU. Set it if GPUs may join later."""


@dataclass(frozen=True, kw_only=True)
class RayOptions(SharedOptions):
    """How Ray starts runs, on this machine or on a cluster."""

    workers: int = 0
    """Number of runs at a time; 0 means one per core, or one per GPU."""
    gpus_per_run: float = 1.0
    """Share of a GPU for each run, or a whole number of GPUs. Ignored on CPUs."""
    compiled: bool = False
    """Use torch.compile for training on GPUs: it takes minutes at the start and pays off in long runs. Dropout then
    draws other random numbers, so scores are those of another draw (docs/gpu.md)."""
    address: str = os.environ.get("CSE_RAY", "local")
    """Address of the Ray cluster: `auto` on one of its machines, `local` for this machine. If not given: CSE_RAY."""
    shared: str = os.environ.get("CSE_SHARED", "")
    """URL of a folder that all machines of a cluster reach (s3://..., file://...), for the run folders. Without it,
    --mlruns must be on a disk that all machines share. If not given: CSE_SHARED."""
    share_seconds: float = SHARE_SECONDS
    """Seconds between uploads of a run's state to --shared: how much training a lost machine costs at most."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions(RayOptions):
    """Which studies are run, and which parts of them."""

    studies: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of studies, or of a paper for all of its studies, or `all`; without names, `quickstart`."""
    study: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Another way to name a study; can be repeated. A file with a study of your own (docs/own_study.md) has its record,
    tables and figures in a folder beside it, unless --mlruns is given."""
    rows: Words = ()
    """Only rows of these labels, or with these parts in their labels."""
    backbones: Words = ()
    """Only rows of these backbones, by the papers' names."""
    seeds: Numbers = ()
    """One number: the number of seeds of each row, the declared ones first. Several numbers: the seeds; a single one
    is written twice."""
    max_steps: int | None = None
    """To try something: end each run after this number of steps. Such runs have a record of their own, in trial/."""
    corpus_lines: int | None = None
    """To try something: train on this number of sentences. Such runs have a record of their own, in trial/."""
    fresh: bool = False
    """Train what is recorded too, in a record of its own, in fresh/; the scores are shown beside the recorded ones."""

    @property
    def parts(self) -> Parts:
        """The chosen parts of each study."""
        return Parts(
            rows=self.rows,
            backbones=self.backbones,
            seeds=self.seeds,
            max_steps=self.max_steps or 0,
            corpus_lines=self.corpus_lines or 0,
        )

    @property
    def short(self) -> bool:
        """Whether runs are cut short, to try something."""
        return bool(self.max_steps or self.corpus_lines)


@dataclass(frozen=True, kw_only=True)
class Options(StudyOptions):
    """Run studies: train and score what is not recorded yet, and record it."""

    list: bool = False
    """List the studies and exit: rows, imported cells, runs, pending runs and their hours, state."""
    dry_run: bool = False
    """Show what would run and how long it may take, and exit."""
    cluster: Path | None = None
    """With --dry-run: also show what would start on which machine of a cluster (sweep.yaml, experiments/clusters/)."""
    by_study: bool = False
    """Complete one study after another, for an early first table; otherwise runs that others need come first."""


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(StudyOptions):
    """Simulate a sweep on GPUs: its length, use of the GPUs, longest chain of nested runs, cost.

    All options of sweep.py are accepted, so its command line can be reused; those that cost no time change nothing.
    """

    gpus: Numbers = (1,)
    """Number of GPUs; several are compared."""
    price: float = 0.0
    """Price of a GPU-hour."""
    seconds_per_run: float | None = None
    """Training time of every run by itself on a GPU, in seconds, instead of measured times and the papers'."""


AnyStudies = TypeVar("AnyStudies", bound=StudyOptions)


def in_own_record(options: AnyStudies) -> AnyStudies:
    """Return the options with the record's folder: own studies, short runs and fresh runs have separate ones."""
    for name in filter(is_own_study, options.studies):
        options = _with_folders_in(options, RESULTS_OF_OWN.format(Path(name).stem))
    options = replace(options, mlruns=folder_of(options.studies, options.mlruns))
    for apart, name in ((options.short, TRIAL), (options.fresh, FRESH)):
        if apart:
            options = replace(_with_folders_in(options, name), mlruns=options.mlruns / name)
    return options


def _with_folders_in(options: AnyStudies, name: str) -> AnyStudies:
    """Return the options with a subfolder of this name in `store` and in `shared`, where these are given."""
    store = options.store / name if options.store else None
    return replace(options, store=store, shared=f"{options.shared.rstrip('/')}/{name}" if options.shared else "")


def check_ray(options: RayOptions) -> None:
    """Refuse invalid values of the options of all commands with Ray, before anything is read or started."""
    at_least(0, workers=options.workers, share_seconds=options.share_seconds)
    at_most(MOST_AT_ONCE, workers=options.workers)
    if options.share_seconds != SHARE_SECONDS and not options.shared:
        raise ValueError("--share-seconds: expected --shared beside it")
    whole_gpus(gpus_per_run=options.gpus_per_run)
    check_device(options.device, options.address)
    if options.data:
        filled_data_folder(options.data)


def checked(options: AnyStudies) -> AnyStudies:
    """Return the options with all names in `studies`; refuse invalid values before anything is read or started."""
    check_ray(options)
    at_least(1, max_steps=options.max_steps, corpus_lines=options.corpus_lines)
    if len(options.seeds) == 1:
        at_least(1, seeds=options.seeds[0])
        if options.seeds[0] > MOST_SEEDS:
            raise ValueError(
                f"--seeds: one number is how many seeds, expected at most {MOST_SEEDS:,}, got {options.seeds[0]}; "
                "write a single seed twice"
            )
    for seed in options.seeds:
        seeds_in_range(seeds=seed)
    return replace(options, studies=(*options.studies, *options.study), study=())


def check_estimate(options: EstimateOptions) -> None:
    """Refuse what estimate.py can't use, besides what `checked` refuses."""
    at_least(0, price=options.price)
    for gpus in options.gpus:
        at_least(1, gpus=gpus)
        at_most(MOST_AT_ONCE, gpus=gpus)
        if options.gpus_per_run > gpus:
            raise ValueError(f"--gpus-per-run {options.gpus_per_run:g}: expected no more than --gpus {gpus}")
    if options.workers:
        raise ValueError("--workers: an estimate has --gpus and --gpus-per-run in its place")
    above_zero(seconds_per_run=options.seconds_per_run)
    if options.short and options.seconds_per_run is None:
        raise ValueError("--max-steps, --corpus-lines: the time of such runs is unknown; give --seconds-per-run")
