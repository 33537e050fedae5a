"""Make the tables of REPORT.md about no single paper: choosing seeds by dev, seeds needed for an effect, costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from analysis.report.blocks import Record, block
from analysis.report.formats import DASH, Grid, interval, number
from analysis.report.reproduction_tables import MANY, detectable_gain, many_seeds, read_reproductions
from analysis.report.values import DEV, STS, cell
from analysis.stats.contrast_tests import difference
from analysis.stats.significance import ALPHA, expected_choice, expected_maximum
from cse_core.run import Run
from experiments.execution.schedule_estimate import epochs_of_simcse

CHOSEN_OF = (1, 2, 5, 10, 20)  # seeds
EFFECTS = (0.25, 0.5, 1.0, 2.0)  # points
ORDERS, FIRST, WHITENED = "plan-orders", "plan2-first-plan", "plan2-whitening"
# Ways to spend more work than one epoch of SimCSE: the words, the study and the row.
SPENT = (
    ("SimCSE, eight epochs", FIRST, "SimCSE, 8 epochs"),
    ("RankCSE (ListNet)", ORDERS, "ListNet"),
    ("RankCSE (ListMLE)", ORDERS, "ListMLE"),
    ("RankEncoder, 50 times the paper's weight, scored with ranks", ORDERS, "RankEncoder"),
    ("the same, eight epochs", "plan-ranks", "RankEncoder, 8 epochs"),
    ("WhitenedCSE, dropout views", WHITENED, "WhitenedCSE, dropout views"),
    ("the same views without whitening", WHITENED, "three dropout views, no whitening"),
    ("CompCSE", FIRST, "CompCSE"),
    ("two random crops composed", FIRST, "two random crops"),
)


@dataclass(frozen=True)
class Seeds:
    """SimCSE's dev and test scores of the same seeds."""

    dev: Sequence[float]
    test: Sequence[float]

    @classmethod
    def of(cls, record: Record) -> "Seeds":
        dev, test = (cell(record, ORDERS, "SimCSE", name).scores for name in (DEV, STS))
        both = [seed for seed in test if seed in dev]
        return cls([dev[seed] for seed in both], [test[seed] for seed in both])

    def gained_by_dev(self, n: int) -> float | None:
        """Return the expected test score of the best of n seeds by dev, minus the mean of all seeds."""
        return float(expected_choice(self.dev, self.test)[n - 1]) - mean(self.test) if n <= len(self.test) else None

    def gained_by_test(self, n: int) -> float | None:
        """Return the same for seeds chosen by the test score itself."""
        return float(expected_maximum(self.test)[n - 1]) - mean(self.test) if n <= len(self.test) else None


@block("findings selection", of=lambda ask: (Seeds.of(ask.record),))
def selection_grid(seeds: Seeds) -> Grid:
    """Return what choosing one of n seeds of SimCSE gains on the test sets."""
    rows = tuple(
        (str(n), *(number(gain, sign=True) for gain in (seeds.gained_by_dev(n), seeds.gained_by_test(n))))
        for n in CHOSEN_OF
    )
    return Grid("", ("seeds", "chosen by STS-B dev", "chosen by the test sets"), rows)


@block("findings seeds", of=lambda ask: (_deviations(ask.record),))
def seeds_grid(deviations: dict[str, float]) -> Grid:
    """Return how many seeds a side an effect needs to be detected with 80 % power by one Welch test at 0.05."""
    rows = tuple(
        (name, number(deviation), *(str(seeds_for(effect, deviation)) for effect in EFFECTS))
        for name, deviation in deviations.items()
    )
    return Grid(
        "", ("SimCSE on", "SD over seeds", *(f"{effect:g} point{'s' * (effect != 1)}" for effect in EFFECTS)), rows
    )


def _deviations(record: Record) -> dict[str, float]:
    lines = read_reproductions()
    backbones = lines.loc[lines["source"].str.startswith(MANY), "backbone"].unique()
    ours = Seeds.of(record).test
    return ({"wiki-tiny, here": stdev(ours)} if len(ours) > 1 else {}) | {
        f"{backbone}, re-runs of others": stdev(many_seeds(lines, backbone)) for backbone in backbones
    }


def seeds_for(effect: float, deviation: float) -> int:
    """Return the least number of seeds a side that detects an effect with 80 % power."""
    if deviation <= 0:
        raise ValueError(f"deviation must be above 0, got {deviation}")
    seeds = max(2, math.floor(2 * (2.8 * deviation / effect) ** 2) - 2)  # about what a normal approximation needs
    while seeds > 2 and detectable_gain(deviation, seeds - 1, ALPHA) <= effect:
        seeds -= 1
    while detectable_gain(deviation, seeds, ALPHA) > effect:
        seeds += 1
    return seeds


@block("findings costs", of=lambda ask: (ask.record,))
def costs_grid(record: Record) -> Grid:
    """Return the gains over one epoch of SimCSE of several ways to spend more on training."""
    rows = []
    for words, study, label in SPENT:
        declared = next(row for row in record.studies([study], "small")[0].rows if row.label == label)
        run = declared.encoder
        scores = cell(record, study, label).scores
        baseline = cell(record, FIRST, "SimCSE, one epoch").scores
        baseline = {seed: score for seed, score in baseline.items() if seed in scores}
        gain = difference(scores, baseline, paired=False)
        if not isinstance(run, Run):
            raise TypeError(f"study {study}, row {label}: expected a run, got {run}")
        others = len(run.required_checkpoints())
        texts = (number(gain.mean if gain else None, sign=True), interval(gain.interval if gain else None, sign=True))
        seeds = str(gain.n if gain else 0)
        rows.append((words, number(epochs_of_simcse(run), digits=1), str(others), *texts, seeds))
    chosen = Seeds.of(record)
    for n in (5, 10):
        gained = number(chosen.gained_by_dev(n), sign=True)
        rows.append((f"SimCSE, the best of {n} seeds by dev", number(float(n), digits=1), "0", gained, DASH, DASH))
    header = ("what", "epochs of SimCSE", "other encoders", "gain over SimCSE", "95 % interval", "seeds")
    return Grid("", header, tuple(rows))
