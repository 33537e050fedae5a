"""Retrain recorded runs, named by key or drawn at random, and compare every score with the record.

    python experiments/audit.py c4bb688a65d9 --data FOLDER
    python experiments/audit.py --count 5 --study rankcse-table4 --data FOLDER

The record does not change. The exit status is 1 if a run differs.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.audit")

from dataclasses import dataclass
from pathlib import Path

import tyro

from cse_core.data.locate import data_folder
from experiments.cli.command import run_command
from experiments.cli.options import at_least, check_device, device_here, seeds_in_range
from experiments.cli.sweep_options import SharedOptions
from experiments.storage.record_folders import folder_of
from experiments.studies.catalogue import choose_studies, names_at


@dataclass(frozen=True, kw_only=True)
class Options(SharedOptions):
    """Train recorded runs again and compare them with the record, which does not change."""

    keys: tyro.conf.Positional[tuple[str, ...]] = ()
    """Keys of recorded runs."""
    count: int | None = None
    """In place of keys: draw this number of recorded runs at random."""
    seed: int | None = None
    """With --count: draw the same runs as the audit that printed this seed."""
    study: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Only runs and columns of this study; can be repeated. If not given: all studies and comparisons at the scale."""
    store: Path | None = None
    """Folder of the runs that are trained; with the same one an interrupted audit resumes. If not given: a temporary
    folder, which is removed if all runs agree."""
    report: Path | None = None
    """Write the results to this JSON file."""


def main(options: Options) -> int:
    """Retrain, compare and print; return 0, 1 if a run differs or failed, or 130 if interrupted."""
    at_least(1, count=options.count)
    seeds_in_range(seed=options.seed)
    check_device(options.device)
    if bool(options.keys) == bool(options.count) or (options.keys and options.seed is not None):
        raise ValueError("expected keys of recorded runs, or --count N (and --seed) to draw some, and not both")
    from experiments.audits.audit import audit  # lazy: slow import
    from experiments.comparison.tuned import recorded_jobs  # lazy: slow import

    return audit(
        choose_studies(list(options.study) or names_at(options.scale), options.scale),
        {} if options.study else recorded_jobs(options.scale, options.mlruns),
        keys=options.keys,
        count=options.count or 0,
        seed=options.seed,
        mlruns=folder_of(options.study, options.mlruns),
        store=options.store,
        data=data_folder(options.data),
        device=device_here(options.device),
        report=options.report,
    )


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
