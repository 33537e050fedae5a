"""Add another machine's record to this one's: `python experiments/merge.py FOLDER`, with that machine's mlruns/*.csv.

What this record has stays as it is; of the other one come the runs, scores and arrays that it lacks. Both are checked
against their SHA256SUMS first: a file that something else changed is named, and nothing is merged.

Git must not merge two people's records: both sides may name one cell, and SHA256SUMS would fit neither, so that git
stops with a conflict. Then keep your side whole and merge the other side's folder into it:

    git worktree add --detach ../theirs MERGE_HEAD
    git restore --source=HEAD --staged --worktree mlruns analysis
    python experiments/merge.py ../theirs/mlruns
    python analysis/make_tables.py && python analysis/make_figures.py
    git add mlruns analysis REPORT.md && git worktree remove ../theirs
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.command import run_command
from experiments.results import csv_record


@dataclass(frozen=True, kw_only=True)
class Options:
    """The other record's folder, and the one that it is added to."""

    folder: tyro.conf.Positional[Path]
    mlruns: Path = csv_record.MLRUNS


def main(options: Options) -> None:
    """Merge and say how much came."""
    csv_record.check_writable(options.mlruns)
    for name, count in csv_record.merge_folder(options.folder, options.mlruns).items():
        print(f"{count:>7} new in {options.mlruns / name}")


if __name__ == "__main__":
    run_command(lambda: main(tyro.cli(Options)))
