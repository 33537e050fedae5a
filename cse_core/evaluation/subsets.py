"""Named parts of the STS sets: without the pairs that STS-B's dev and train sets share, and by gold score."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from cse_core.data.senteval import STS_TEST, EvalDataset

Rows = Int[np.ndarray, " _"]
SEEN = ("stsb_dev", "stsb_train")
DISSIMILAR, SIMILAR = 0.33, 0.67  # of gold / 5: up to the first, from the second on (RankEncoder, A.3)


def normalised(sentence: str) -> str:
    """Lower case, punctuation as blanks, one blank between words."""
    return " ".join(re.sub(r"[\W_]+", " ", sentence.lower()).split())


def disjoint(evaluation: EvalDataset, others: Mapping[str, EvalDataset]) -> Rows:
    """Rows of pairs that, after normalisation and in either order, are in neither STS-B's dev nor its train set.

    Three of four dev pairs are test pairs of STS12 to STS16, so a checkpoint chosen on them has seen test labels. No
    pair is left of STS14's deft-forum and deft-news and of STS15's answers-forums: `mean` and `wmean` go without them.
    """
    seen = {pair for split in SEEN for pair in unordered(others[split])}
    return np.array([row for row, pair in enumerate(unordered(evaluation)) if pair not in seen], dtype=np.int64)


def unordered(evaluation: EvalDataset) -> list[frozenset[str]]:
    """Each pair after normalisation, whichever sentence is first."""
    table = evaluation.table
    sides = zip(table["sentence1"][:], table["sentence2"][:], strict=True)
    return [frozenset(map(normalised, pair)) for pair in sides]


def scored(lowest: float, highest: float) -> Callable[[EvalDataset, Mapping[str, EvalDataset]], Rows]:
    """Rows of pairs whose gold, divided by 5, is from `lowest` to below `highest` (RankEncoder, Fig. 5)."""

    def chosen(evaluation: EvalDataset, others: Mapping[str, EvalDataset]) -> Rows:
        gold = np.asarray(evaluation.table["score"][:]) / 5
        return np.flatnonzero((gold >= lowest) & (gold < highest))

    return chosen


class Subset(NamedTuple):
    """A set, which of its rows, and the other sets that decide it."""

    base: str
    rows: Callable[[EvalDataset, Mapping[str, EvalDataset]], Rows]
    reads: tuple[str, ...] = ()


SUBSETS = {
    **{f"{task}_disjoint": Subset(task, disjoint, SEEN) for task in STS_TEST},
    "stsb_dissimilar": Subset("stsb", scored(0.0, np.nextafter(DISSIMILAR, 1))),
    "stsb_between": Subset("stsb", scored(np.nextafter(DISSIMILAR, 1), SIMILAR)),
    "stsb_similar": Subset("stsb", scored(SIMILAR, np.inf)),
}
