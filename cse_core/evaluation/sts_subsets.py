"""Named subsets of the STS sets: without pairs that are in STS-B's dev or train set, and by gold score."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from cse_core.data.senteval import STS_TEST, EvalDataset

Rows = Int[np.ndarray, " _"]
SEEN = ("stsb_dev", "stsb_train")
DISSIMILAR, SIMILAR = 0.33, 0.67  # of gold / 5: at most the first, at least the second (RankEncoder, A.3)


def normalise(sentence: str) -> str:
    """Return a sentence in lower case, without punctuation, with single blanks."""
    return " ".join(re.sub(r"[\W_]+", " ", sentence.lower()).split())


def disjoint(evaluation: EvalDataset, others: Mapping[str, EvalDataset]) -> Rows:
    """Return the rows of pairs that, normalised and in either order, are in neither STS-B's dev set nor its train set.

    Three of four dev pairs are test pairs of STS12 to STS16, so a checkpoint chosen on them has seen test labels. The
    parts deft-forum and deft-news of STS14 and answers-forums of STS15 become empty: `mean` and `wmean` omit them.
    """
    seen = {pair for split in SEEN for pair in unordered_pairs(others[split])}
    return np.array([row for row, pair in enumerate(unordered_pairs(evaluation)) if pair not in seen], dtype=np.int64)


def unordered_pairs(evaluation: EvalDataset) -> list[frozenset[str]]:
    """Return each pair as the set of its normalised sentences."""
    table = evaluation.table
    sides = zip(table["sentence1"][:], table["sentence2"][:], strict=True)
    return [frozenset(map(normalise, pair)) for pair in sides]


def gold_between(lowest: float, highest: float) -> Callable[[EvalDataset, Mapping[str, EvalDataset]], Rows]:
    """Return a function that selects the rows with `lowest` <= gold / 5 < `highest` (RankEncoder, Fig. 5)."""

    def select_rows(evaluation: EvalDataset, others: Mapping[str, EvalDataset]) -> Rows:
        gold = np.asarray(evaluation.table["score"][:]) / 5
        return np.flatnonzero((gold >= lowest) & (gold < highest))

    return select_rows


class Subset(NamedTuple):
    """A set, a function that selects its rows, and the other sets that this function reads."""

    base: str
    rows: Callable[[EvalDataset, Mapping[str, EvalDataset]], Rows]
    reads: tuple[str, ...] = ()


SUBSETS = {
    **{f"{task}_disjoint": Subset(task, disjoint, SEEN) for task in STS_TEST},
    "stsb_dissimilar": Subset("stsb", gold_between(0.0, np.nextafter(DISSIMILAR, 1))),
    "stsb_between": Subset("stsb", gold_between(np.nextafter(DISSIMILAR, 1), SIMILAR)),
    "stsb_similar": Subset("stsb", gold_between(SIMILAR, np.inf)),
}
