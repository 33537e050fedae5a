"""Small evaluations: sizes of datasets, their gold scores, example rankings, halves of sentences."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cse_core.data.senteval import TRANSFER, EvalDataset
from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.evaluation.sts_subsets import SIMILAR, gold_between, unordered_pairs
from cse_core.evaluation.task import Inputs, Outcome, Task, check_nonzero
from cse_core.evaluation.transfer import SPLITS
from cse_core.functional.contrastive import pair_cosines
from cse_core.metrics.correlation import correlations

VERSION = 1  # recorded with every score: bump with any change that could move one
SHORTEST = 4  # words, so that each half has two

# RankCSE, Tables 1 and 12: a query, and its targets with their human labels.
EXAMPLES: dict[str, tuple[str, Mapping[str, float]]] = {
    "eggs": (
        "A woman is cracking eggs",
        {
            "A woman is breaking eggs": 4.8,
            "A man is cracking eggs": 3.6,
            "A woman is talking to a man": 1.6,
            "A man and a woman are speaking": 1.4,
            "A man is talking to a boy": 1.0,
        },
    ),
    "broccoli": (
        "A woman is cutting broccoli",
        {
            "Broccoli are being cut by a woman": 4.8,
            "A woman is slicing vegetables": 4.2,
            "A woman is cutting some plants": 3.5,
            "There is no woman cutting broccoli": 3.4,
            "A woman is cutting some flowers": 2.87,
            "A man is slicing tomatoes": 2.6,
            "A man is cutting tomatoes": 2.4,
        },
    ),
    "closed_path": (
        "a and c are in the same closed path",
        {
            "a and c are on the same closed path with the battery": 3.6,
            "bulb a and bulb c affect each other.": 2.8,
            "the are on the same wire": 1.6,
            "because breaking one bulb then affects the ability of the others to light up.": 1.2,
            "if one bulb is removed , the others stop working": 0.6,
        },
    ),
    "voltage": (
        "measuring voltage indicates the place where the electrical state changes due to a gap .",
        {
            "because by measuring voltage, you find the gap where there's a difference in electrical states.": 3.8,
            "it allows you to measure electrical states between terminals": 3.2,
            "it checks the electrical state between two terminals.": 2.6,
            "find where there are different electrical states": 2.6,
            "you can see where the gap is": 2.2,
        },
    ),
}


@dataclass(frozen=True)
class Sizes(Task):
    """The number of pairs or labelled sentences in each split (RankCSE, Tables 7 and 8).

    A set without fixed splits, which is cross-validated, counts as `train`, as in the paper.
    """

    version: ClassVar[int] = VERSION
    metrics: tuple[str, ...] = ()

    @classmethod
    def of(cls, *names: str) -> "Sizes":
        """Make the task for a transfer set, or for an STS set given by the names of its splits."""
        if names[0] in TRANSFER:
            return cls(read_sets=names, metrics=SPLITS.get(names[0], ("train",)))
        return cls(read_sets=names, metrics=tuple(map(_split_name, names)))

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are those of all splits."""
        counts: Counter[str] = Counter()
        for task in self.read_sets:
            table = inputs.sets[task].table
            splits = table["split"][:] if task in TRANSFER else [_split_name(task)] * len(table)
            counts.update("train" if split == "all" else split for split in splits)
        return Outcome({split: float(counts[split]) for split in self.metrics}, counts.total())


def _split_name(name: str) -> str:
    """Return the split in a pair set's name."""
    return next((split for split in ("train", "dev") if name.endswith(f"_{split}")), "test")


@dataclass(frozen=True)
class Gold(Task):
    """Gold scores / 5, the share of similar pairs, and the number of pairs shared with STS-B's dev and train sets.

    `similar`: gold / 5 of at least 0.67 (RankEncoder, A.3 and Fig. 9; SICK-R's scores, 1 to 5, are divided by 5 too).
    `shared_dev`: the number of pairs that are, after normalisation and in either order, also in STS-B dev.
    `.same_gold`: those of them with the same score. `.other_way`: the number of STS-B dev's pairs that are in this set,
    which differs if a set has a pair twice. `shared_train`: the same for STS-B train.
    """

    version: ClassVar[int] = VERSION
    metrics: ClassVar[tuple[str, ...]] = (
        "similar",
        *(f"shared_{split}{what}" for split in ("dev", "train") for what in ("", ".same_gold", ".other_way")),
    )

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are pairs."""
        dataset, *others = (inputs.sets[task] for task in self.read_sets)
        gold = np.asarray(dataset.table["score"][:]) / 5
        metrics = {"similar": len(gold_between(SIMILAR, np.inf)(dataset, {})) / len(gold)}
        for task, other in zip(self.read_sets[1:], others, strict=True):
            counts = count_shared(dataset, other)
            metrics |= {f"shared_{_split_name(task)}{what}": float(count) for what, count in counts.items()}
        return Outcome(metrics, len(gold), {"gold": gold.astype(np.float32)})


def count_shared(dataset: EvalDataset, other: EvalDataset) -> dict[str, int]:
    """Count the pairs also in the other dataset (""), those with the same gold, and the other's pairs in this one."""
    pairs, other_pairs = unordered_pairs(dataset), unordered_pairs(other)
    other_scores: dict[frozenset[str], set[float]] = {}
    for pair, score in zip(other_pairs, other.table["score"][:], strict=True):
        other_scores.setdefault(pair, set()).add(score)
    shared = [(pair, s) for pair, s in zip(pairs, dataset.table["score"][:], strict=True) if pair in other_scores]
    distinct = set(pairs)
    return {
        "": len(shared),
        ".same_gold": sum(score in other_scores[pair] for pair, score in shared),
        ".other_way": sum(pair in distinct for pair in other_pairs),
    }


@dataclass(frozen=True)
class Example(Task):
    """The ranking of a query's targets: the score of each, in their order, and Spearman with the human labels."""

    version: ClassVar[int] = VERSION
    human: tuple[float, ...] = ()

    @classmethod
    def of(cls, query: str, targets: Mapping[str, float]) -> "Example":
        """Make the task for a query and its targets with their labels."""
        return cls(sentences=(query, *targets), human=tuple(targets.values()))

    def __post_init__(self) -> None:
        if len(self.human) < 2 or len(self.sentences) != 1 + len(self.human):
            raise ValueError(
                f"an example needs a query and at least two targets with a label each, got {len(self.sentences)} "
                f"sentences and {len(self.human)} labels"
            )

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*(f"cosine.{i}" for i in range(1, 1 + len(self.human))), "spearman")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are targets."""
        vectors = check_nonzero(name, inputs.vectors(self.sentences), self.sentences)
        cosines, _ = pair_cosines(vectors[:1].expand(len(self.human), -1), vectors[1:])
        rho = correlations(cosines, np.array(self.human), ["all"] * len(self.human))["spearman.all"]
        values = (*map(float, cosines), rho)
        return Outcome(dict(zip(self.metrics, values, strict=True)), len(self.human))


@dataclass(frozen=True)
class Halves(Task):
    """Whether sentences are nearer to their left or their right half (CompCSE, Fig. 4, shows it for one sentence).

    Over distinct sentences x of at least four words: `imbalance`, the mean of | cos(x, left) - cos(x, right) |, and
    `left`, the share with cos(x, left) > cos(x, right).
    """

    version: ClassVar[int] = VERSION
    metrics: ClassVar[tuple[str, ...]] = ("imbalance", "left")

    def check(self, name: str, scorer: Scorer) -> None:
        """Refuse all but plain cosine: rank vectors don't fit into memory, and a map would be fitted to the halves."""
        if not isinstance(scorer, Cosine):
            raise ValueError(f"{name}: halves require an encoder's own vectors, got the scorer {scorer}")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are the sentences that have halves."""
        tables = [inputs.sets[task].table for task in self.read_sets]
        distinct = dict.fromkeys(s for table in tables for side in ("sentence1", "sentence2") for s in table[side][:])
        whole = [sentence for sentence in distinct if len(sentence.split()) >= SHORTEST]
        if not whole:
            raise ValueError(
                f"{name}: expected sentences of at least {SHORTEST} words, got none among {len(distinct):,}"
            )
        left, right = zip(*map(halves, whole), strict=True)
        texts = [*whole, *left, *right]
        x, y, z = check_nonzero(name, inputs.vectors(texts), texts).chunk(3)
        gap = pair_cosines(x, y)[0] - pair_cosines(x, z)[0]
        return Outcome({"imbalance": float(np.abs(gap).mean()), "left": float((gap > 0).mean())}, len(whole))


def halves(sentence: str) -> tuple[str, str]:
    """Return the first ceil(n / 2) of the n words between white space, and the rest."""
    words = sentence.split()
    middle = -(-len(words) // 2)
    return " ".join(words[:middle]), " ".join(words[middle:])
