"""The sentences of the seven STS sets as a corpus to train on, as ConSERT does (Yan et al., ACL 2021).

The corpus has both sides of every pair of all splits, without scores. It includes duplicates, the unscored pairs of
STS15 and STS16, and the test sentences: 70 % of the lines are sentences of scored test pairs.
"""

import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from cse_core.data.locate import locate_senteval, read_lines
from cse_core.data.senteval import PARTS, REMEDY, pair_cells, pairs, year_files

NAME = "sts_texts"
PAIRS = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 8500, "sts16": 9183}
SPLITS = ("stsb_train", "stsb_dev", "stsb", "sickr_train", "sickr_dev", "sickr")


def sentences(folder: Path | None = None) -> list[str]:
    """Return all 89,192 lines in a fixed shuffled order, so that the first n of them are a random sample."""
    root = locate_senteval(folder)
    texts = [*chain.from_iterable(_of_year(task, root) for task in PAIRS)]
    for split in SPLITS:
        table = pairs(split, folder).table
        texts += table["sentence1"][:] + table["sentence2"][:]
    random.Random(0).shuffle(texts)
    return texts


def _of_year(task: str, root: Path) -> Iterator[str]:
    files = [root / year_files(task, part)[0] for part in PARTS[task]]
    lines = [(path, number, line) for path in files for number, line in enumerate(read_lines(path), 1)]
    if len(lines) != PAIRS[task]:
        raise ValueError(f"{files[0].parent}: {len(lines):,} pairs, expected {PAIRS[task]:,}; {REMEDY}")
    for path, number, line in lines:
        yield from pair_cells(line, path, number)
