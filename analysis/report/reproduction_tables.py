"""What others got when they re-ran these methods at the published scale, and what follows for the papers' gains."""

import math
from collections.abc import Sequence

import pandas as pd

from analysis.report.blocks import block
from analysis.report.formats import Grid, number
from analysis.stats.sequential import nominal_levels
from analysis.stats.significance import ALPHA, detectable_shift, expected_choice, expected_maximum, summary
from experiments.schema.contrasts import POSITIVE, PRIMARY, looks_at
from experiments.schema.scales import SCALES
from experiments.schema.study import PUBLISHED_FOLDER, Published
from experiments.studies.catalogue import choose_studies

BASE = "BERT-base"
BASELINE = 76.25  # SimCSE's published average with BERT-base, from which the papers count their gains
MANY = "hppRC/simple-simcse"  # the one source with many seeds
DEV_SCORE = r"STS-B dev best (\d+\.\d+) at step"  # in the notes of that source
# The papers' headline rows on BERT-base, as (table, method, variant).
HEADLINES = {
    "RankCSE, ListNet": ("rankcse_table2", "RankCSE-listNet", "ours"),
    "RankCSE, ListMLE": ("rankcse_table2", "RankCSE-listMLE", "ours"),
    "RankEncoder": ("rankencoder_table1", "RankEncoder", None),
    "WhitenedCSE": ("whitenedcse_table1", "WhitenedCSE", None),
    "CompCSE": ("compcse_table1", "SimCSE (w/ comp.)", None),
}
SEEDS = (1, 5, 10, 20)


def read_reproductions() -> pd.DataFrame:
    """Return the usable numbers: averages over the seven sets of single trained runs with the published settings."""
    lines = pd.read_csv(PUBLISHED_FOLDER / "_reproductions.csv")
    usable = lines["note"].fillna("").str.startswith("clean") & (lines["metric"] == "STS avg")
    return lines[usable & (lines["what"] == "trained")].reset_index(drop=True)


def many_seeds(lines: pd.DataFrame, backbone: str = BASE) -> list[float]:
    """Return SimCSE's average for each seed of the one re-implementation that reports many seeds."""
    return [float(value) for value in _rows_of_many(lines, backbone)["value"]]


def many_dev_scores(lines: pd.DataFrame) -> list[float]:
    """Return the same runs' highest STS-B dev scores, in the same order, from the notes."""
    scores = _rows_of_many(lines, BASE)["note"].str.extract(DEV_SCORE, expand=False)
    return [float(score) for score in scores]


def _rows_of_many(lines: pd.DataFrame, backbone: str) -> pd.DataFrame:
    from_many = lines["source"].str.startswith(MANY)
    return lines[from_many & (lines["method"] == "SimCSE") & (lines["backbone"] == backbone)]


@block("reproductions runs", of=lambda ask: (read_reproductions(),))
def runs_grid(lines: pd.DataFrame) -> Grid:
    """Return the distribution of re-runs by method and backbone, with the one source of many seeds separate."""
    parts = lines.assign(source=lines["source"].where(lines["source"].str.startswith(MANY), "separate reports"))
    rows = []
    for _, group in parts.groupby(["method", "backbone", "source"], sort=False):
        method, backbone, source = group[["method", "backbone", "source"]].iloc[0]
        label = "separate reports" if source == "separate reports" else f"{len(group)} seeds of {MANY}"
        rows.append((f"{method} {backbone}", label, *_spread(group["value"].tolist(), group["published"].iloc[0])))
    header = ("method", "source", "n", "min", "median", "max", "mean", "SD", "published", "at least as high")
    return Grid("", header, tuple(rows))


def _spread(values: Sequence[float], published: float) -> tuple[str, ...]:
    about = summary(values)
    reached = sum(value >= published for value in values)
    middle = float(pd.Series(values).median())
    return (
        str(about.n),
        number(min(values)),
        number(middle),
        number(max(values)),
        number(about.mean),
        number(about.sd),
        number(published),
        f"{reached} of {about.n}",
    )


@block("reproductions selection", of=lambda ask: (read_reproductions(),))
def selection_grid(lines: pd.DataFrame) -> Grid:
    """Return the expected test average of the run chosen among k, from the many seeds on BERT-base."""
    values = many_seeds(lines)
    best, chosen = expected_maximum(values), expected_choice(many_dev_scores(lines), values)
    rows = tuple((str(k), *(number(float(expected[k - 1])) for expected in (best, chosen))) for k in SEEDS)
    return Grid("", ("runs", "best by test average", "chosen on STS-B dev"), rows)


@block("reproductions gains", of=lambda ask: (read_reproductions(),))
def gains_grid(lines: pd.DataFrame) -> Grid:
    """Return each printed gain over SimCSE in SDs of a difference: of single runs, and of means of five."""
    values = many_seeds(lines)
    deviation, typical = summary(values).sd or 0.0, summary(values).mean
    rows = []
    for label, (table, method, variant) in HEADLINES.items():
        printed = Published(table, BASE, method, variant).value("sts_avg")
        baseline = Published(table, BASE, "SimCSE").value("sts_avg")
        gain = None if printed is None or baseline is None else printed - baseline
        over_typical = None if printed is None else printed - typical
        ratios = [None if gain is None else gain / (deviation * math.sqrt(2 / n)) for n in (1, 5)]
        rows.append(
            (label, number(printed), number(gain, sign=True), *map(number, ratios), number(over_typical, sign=True))
        )
    header = (
        "method",
        "printed",
        "gain over the printed SimCSE",
        "in SDs of one run against one",
        "in SDs of five seeds a side",
        "over the re-runs' mean",
    )
    return Grid("", header, tuple(rows))


@block("reproductions power", of=lambda ask: (read_reproductions(),))
def power_grid(lines: pd.DataFrame) -> Grid:
    """Return the gain that is detected with 80 % power on each backbone, by the plan's test and by plain ones.

    The plan's test is its last look at the published scale, at the first step of Holm's correction. Plain tests are
    uncorrected, at level 0.05.
    """
    seeds = looks_at("paper")[-1]
    ways = {f"plan: {seeds} seeds, the first of {planned_tests('paper')} tests": (seeds, planned_level("paper"))}
    ways |= {f"one plain test, {n} seeds": (n, ALPHA) for n in (seeds, len(SCALES["paper"].seeds))}
    rows = []
    for backbone in lines.loc[lines["source"].str.startswith(MANY), "backbone"].unique():
        deviation = summary(many_seeds(lines, backbone)).sd or 0.0
        cells = [detectable_gain(deviation, n, level) for n, level in ways.values()]
        rows.append((str(backbone), number(deviation), *map(number, cells)))
    return Grid("", ("backbone", "SD over seeds", *ways), tuple(rows))


def planned_tests(scale: str) -> int:
    """Return how many tests of a difference Holm's correction counts in the plan at a scale."""
    return sum(c.role in (PRIMARY, POSITIVE) for study in choose_studies(["plan"], scale) for c in study.contrasts)


def planned_level(scale: str) -> float:
    """Return the level of a plan's test at a scale's last look, at the first step of Holm's correction."""
    looks = looks_at(scale)
    return nominal_levels(ALPHA / planned_tests(scale), tuple(n / looks[-1] for n in looks))[-1]


def detectable_gain(deviation: float, seeds: int, level: float) -> float:
    """Return the gain that a test of n seeds a side detects with 80 % power, if both sides vary by this deviation."""
    return detectable_shift(2 * (seeds - 1), level) * deviation * math.sqrt(2 / seeds)
