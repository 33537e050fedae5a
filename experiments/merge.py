"""Add another machine's record to this one's: `python experiments/merge.py FOLDER`, with that machine's mlruns/*.csv.

What this record has stays as it is; of the other one come the runs, scores and arrays that it lacks.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments import record


@dataclass(frozen=True, kw_only=True)
class Options:
    """The other record's folder, and the one that it is added to."""

    folder: tyro.conf.Positional[Path]
    mlruns: Path = record.MLRUNS


def main(options: Options) -> None:
    """Merge and say how much came."""
    record.check_writable(options.mlruns)
    for name, count in record.merge_folder(options.folder, options.mlruns).items():
        print(f"{count:>7} new in {options.mlruns / name}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Options))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
