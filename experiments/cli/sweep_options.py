"""The options of sweep.py, and what is refused before anything is read or started."""

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

import tyro

from experiments.cli.options import Numbers, Words, above_zero, at_least, check_device, flag, seeds_in_range, whole_gpus
from experiments.schema.study_parts import Parts
from experiments.storage.record_folders import FRESH, MLRUNS, RESULTS_OF_OWN, TRIAL, folder_of, is_own_study
from experiments.storage.retries import SHARE_SECONDS

MOST_SEEDS = 10_000  # of each row
ONE_OF = ("audit", "rerun", "search", "plan")  # what to do in place of running studies
BELONGS_TO = {
    "audit_seed": "audit",
    "audit_report": "audit",
    "trials": "search",
    "minutes": "search",
    "gpus": "plan",
    "price": "plan",
    "seconds_per_run": "plan",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run studies: train and score what the record lacks, and add it to the record."""

    studies: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of studies, or of a paper for all of its studies, or `all`; without names, `quickstart`."""
    scale: str = "small"
    """Size of the runs: small, small-1m or paper. Quickstart and released have fixed ones."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    mlruns: Path = MLRUNS
    """Folder of the record, MLflow's database and the run folders."""
    store: Path | None = Path(os.environ["CSE_STORE"]) if os.environ.get("CSE_STORE") else None
    """Folder of the run folders, if not in --mlruns; with --shared, on a local disk. If not given: CSE_STORE."""
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
    list: bool = False
    """List the studies and exit: rows, imported cells, runs, pending runs and their hours, state."""
    search: bool = False
    """Run hyperparameter searches by dev scores instead; names are searches, or a method for all of its searches."""
    trials: int | None = None
    """With --search: make at most this number of further trials of each search."""
    minutes: float | None = None
    """With --search: begin no further trial of a search after these minutes; those in progress end."""
    rerun: Words = ()
    """Train the recorded runs of these keys again, in --store or a new folder (rerun/1, rerun/2 ...), and compare them
    with the record, which does not change. The exit status is 1 if a run differs."""
    audit: int | None = None
    """Retrain N recorded runs, drawn at random, in --store or a temporary folder, and compare them with the record. The
    exit status is 1 if a run differs."""
    audit_seed: int | None = None
    """Draw the same runs as the audit that printed this seed; with the same --store, resume an interrupted audit."""
    audit_report: Path | None = None
    """Write the results of --audit to this JSON file."""
    study: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Another way to name a study; can be repeated. A file with a study of your own (docs/own_study.md) has its record,
    tables and figures in a folder beside it, unless --mlruns is given."""
    dry_run: bool = False
    """Show what would run and how long it may take, and exit."""
    cluster: Path | None = None
    """With --dry-run: also show the machines of a cluster and what they lack (sweep.yaml, experiments/clusters/)."""
    plan: bool = False
    """Simulate the sweep on --gpus and exit: its length, use of the GPUs, longest chain of nested runs, cost."""
    gpus: Numbers = (1,)
    """Number of GPUs for --plan; several are compared."""
    by_study: bool = False
    """Complete one study after another, so that a first table is there early; else runs that others need come first."""
    price: float = 0.0
    """Price of a GPU-hour, for --plan."""
    seconds_per_run: float | None = None
    """Training time of every run in seconds, for --plan, instead of measured times and the papers'."""
    workers: int = 0
    """Number of runs at a time; 0 means one per core, or one per GPU."""
    gpus_per_run: float = 1.0
    """Share of a GPU for each run, or a whole number of GPUs. Ignored on CPUs."""
    device: str = os.environ.get("CSE_DEVICE", "")
    """cpu or cuda. If not given: CSE_DEVICE, or cuda if there is a GPU. Set it if GPUs may join later."""
    compiled: bool = False
    """Use torch.compile for training on GPUs: it takes minutes at the start and pays off in long runs."""
    address: str = os.environ.get("CSE_RAY", "local")
    """Address of the Ray cluster: `auto` on one of its machines, `local` for this machine. If not given: CSE_RAY."""
    shared: str = os.environ.get("CSE_SHARED", "")
    """URL of a folder that all machines of a cluster reach (s3://..., file://...), for the run folders. Without it,
    --mlruns must be on a disk that all machines share. If not given: CSE_SHARED."""
    share_seconds: float = SHARE_SECONDS
    """Seconds between uploads of a run's state to --shared: how much training a lost machine costs at most."""

    @property
    def parts(self) -> Parts:
        """What is chosen of each study."""
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


def in_own_record(options: Options) -> Options:
    """Return the options with the folder of the record, for runs that never enter it one beside it."""
    for name in filter(is_own_study, options.studies):
        options = _with_folders_in(options, RESULTS_OF_OWN.format(Path(name).stem))
    options = replace(options, mlruns=folder_of(options.studies, options.mlruns))
    for apart, name in ((options.short, TRIAL), (options.fresh, FRESH)):
        if apart:
            options = replace(_with_folders_in(options, name), mlruns=options.mlruns / name)
    return options


def _with_folders_in(options: Options, name: str) -> Options:
    """Return the options with a folder of this name in the run folders and the shared storage that they name."""
    store = options.store / name if options.store else None
    return replace(options, store=store, shared=f"{options.shared.rstrip('/')}/{name}" if options.shared else "")


def _check_together(options: Options) -> None:
    """Refuse options that would be ignored beside another, or without the one that they belong to."""
    chosen = [name for name in ONE_OF if getattr(options, name)]
    shown = [name for name in ("list", "dry_run") if getattr(options, name)]
    ignored = chosen[1:] or (shown if {"audit", "rerun"} & {*chosen} else [])
    if ignored:
        raise ValueError(f"{flag(chosen[0])}: expected no {flag(ignored[0])} beside it")
    for field in fields(options):
        owner = BELONGS_TO.get(field.name)
        if owner and getattr(options, field.name) != field.default and not getattr(options, owner):
            raise ValueError(f"{flag(field.name)}: expected {flag(owner)} beside it")


def check(options: Options) -> None:
    """Refuse invalid values before anything is read or started."""
    at_least(0, workers=options.workers, price=options.price, share_seconds=options.share_seconds)
    at_least(1, audit=options.audit)
    for gpus in options.gpus:
        at_least(1, gpus=gpus)
    above_zero(seconds_per_run=options.seconds_per_run)
    whole_gpus(gpus_per_run=options.gpus_per_run)
    at_least(1, trials=options.trials)
    above_zero(minutes=options.minutes)
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
    seeds_in_range(audit_seed=options.audit_seed)
    if (options.parts != Parts() or options.fresh) and (options.search or options.audit or options.rerun):
        raise ValueError(
            "--rows, --backbones, --seeds, --max-steps, --corpus-lines, --fresh: expected no "
            f"--{'search' if options.search else 'audit' if options.audit else 'rerun'} beside them"
        )
    if options.short and options.plan and options.seconds_per_run is None:
        raise ValueError(
            "--plan with --max-steps or --corpus-lines: the time of such runs is unknown; give --seconds-per-run"
        )
    if options.cluster and (not options.dry_run or options.search or options.audit):
        raise ValueError(f"--cluster {options.cluster}: expected --dry-run beside it, and studies")
    _check_together(options)
    check_device(options.device, options.address)
