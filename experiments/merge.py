"""Add another machine's record to this one: `python experiments/merge.py FOLDER`, with that machine's mlruns/*.csv.

Runs, scores and arrays that are missing here are added; lines of this record never change.

If git stops in a merge because both sides added runs, keep your record and add the other side's:

    git worktree add --detach ../theirs MERGE_HEAD && git restore --source=HEAD --staged --worktree mlruns
    python experiments/merge.py ../theirs/mlruns && python analysis/make_tables.py && git add mlruns
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.merge")

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.command import run_command
from experiments.results import csv_record


@dataclass(frozen=True, kw_only=True)
class Options:
    """Add another machine's record to this one: the runs, scores and arrays that are missing here."""

    folder: tyro.conf.Positional[Path]
    """Folder of the other record: the other machine's mlruns."""
    mlruns: Path = csv_record.MLRUNS
    """Folder of the record to which it is added."""


def main(options: Options) -> None:
    """Merge and print how many lines are new."""
    csv_record.check_writable(options.mlruns)
    for name, count in csv_record.merge_folder(options.folder, options.mlruns).items():
        print(f"{count:>7} new in {options.mlruns / name}")


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
