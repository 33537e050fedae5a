"""The gains of the report's first page, recomputed by scipy from the record's CSV files and the studies' runs."""

import re
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from cse_core.methods.rankencoder import RankEncoder
from cse_core.run import Run
from experiments.schema.study import Row
from experiments.studies import catalogue

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
REPORT = (ROOT / "REPORT.md").read_text()
FIRST, QUALITY = "plan2-first-plan", "plan2-quality"
# The value in the page; the study, its two rows, whether seed by seed.
WELCH = {
    "ListNet, one epoch": (FIRST, "ListNet, one epoch", "SimCSE, one epoch"),
    "ListMLE, one epoch": (FIRST, "ListMLE, one epoch", "SimCSE, one epoch"),
    "R1 result": (FIRST, "ListNet, 8 epochs", "SimCSE, 8 epochs"),
    "W1 result": ("plan-whitening", "WhitenedCSE", "SimCSE"),
    "A1": ("plan2-whitening", "WhitenedCSE, dropout views", "SimCSE"),
    "A2": ("plan2-teachers", "ListNet taught by wiki-medium's SimCSE, one epoch", "SimCSE, one epoch"),
    "A3": ("plan2-teachers", "ListMLE taught by wiki-medium's SimCSE, one epoch", "SimCSE, one epoch"),
    "no-whitening estimate": ("plan2-whitening", "three dropout views, no whitening", "SimCSE"),
    "CompCSE, one epoch, planned": (FIRST, "CompCSE", "SimCSE, ten seeds"),
    "C1 result": (FIRST, "CompCSE", "SimCSE, ten seeds"),
    "crops estimate": (FIRST, "two random crops", "SimCSE, ten seeds"),
    "disjoint.ListNet estimate": ("plan2-disjoint", "ListNet", "SimCSE"),
    "composition.negative estimate": (FIRST, "halves of shuffled words", "SimCSE, ten seeds"),
    "end.ListNet estimate": ("plan-orders", "ListNet, last", "SimCSE, last"),
    "end.ListMLE estimate": ("plan-orders", "ListMLE, last", "SimCSE, last"),
    "one.ListMLE.equal estimate": (
        "plan2-teachers",
        "ListMLE taught by SimCSE of eight epochs, one epoch",
        "SimCSE, one epoch",
    ),
    "eight.ListMLE.equal estimate": (
        "plan2-teachers",
        "ListMLE taught by SimCSE of eight epochs, 8 epochs",
        "SimCSE, 8 epochs",
    ),
    "D1": (QUALITY, "ListNet", "SimCSE"),
    "D1.ListMLE estimate": (QUALITY, "ListMLE", "SimCSE"),
    "D1.MiniLM estimate": (QUALITY, "ListNet, MiniLM teaches", "SimCSE"),
    "D1.MiniLM.ListMLE estimate": (QUALITY, "ListMLE, MiniLM teaches", "SimCSE"),
    **{
        f"better encoder: {row}": (QUALITY, row.removesuffix(", planned"), "SimCSE")
        for row in (
            *("ListNet, planned", "ListMLE", "ListNet, MiniLM teaches", "ListMLE, MiniLM teaches"),
            *("CompCSE, planned", "two random crops", "halves of shuffled words", "first half alone"),
        )
    },
    "better encoder: dropout views, planned": (QUALITY, "WhitenedCSE, dropout views", "SimCSE"),
    "D3": (QUALITY, "WhitenedCSE, dropout views", "SimCSE"),
    "D4": (QUALITY, "CompCSE", "SimCSE"),
}
PAIRED = {
    "the paper's weight, one epoch": ("rankencoder-table4", "SimCSE, +RankEncoder", "SimCSE, base"),
    "one.RankEncoder.50 estimate": ("plan-orders", "RankEncoder", "SimCSE"),
    "scoring.RankEncoder estimate": ("plan2-ranks", "RankEncoder by cosine and ranks", "RankEncoder by cosine"),
    "A4": ("plan2-ranks", "RankEncoder by cosine", "SimCSE by cosine"),
    "E3 result": ("plan-ranks", "RankEncoder, 8 epochs", "SimCSE, 8 epochs"),
    "D2": (QUALITY, "RankEncoder", "SimCSE"),
    "better encoder: the paper's weight, planned": (QUALITY, "RankEncoder", "SimCSE"),
    "better encoder: the same, both scored by the cosine": (QUALITY, "RankEncoder by cosine", "SimCSE"),
    "D5": (QUALITY, "CompCSE", "two random crops"),
}
SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    lines = pd.read_csv(ROOT / "mlruns/results.csv", dtype={"key": str, "scorer": str})
    wanted = lines["task"].str.removesuffix("_disjoint").isin(SETS) & (lines["metric"] == "spearman.all")
    return lines[wanted]


def row_of(study: str, label: str) -> Row:
    declared = catalogue.single(study, "minilm" if study == QUALITY else "small")
    return next(row for row in declared.rows if row.label == label)


def averages(scores: pd.DataFrame, row: Row, suffix: str = "") -> dict[int, float]:
    """Return the mean of the seven sets in points, by seed."""
    found = {}
    for seed, key in row.keys().items():
        chosen = (scores["scorer"] == str(row.scorer)) & (scores["select"] == row.select)
        of_run = scores[(scores["key"] == key) & chosen]
        of_run = of_run[of_run["task"].isin([f"{name}{suffix}" for name in SETS])]
        latest = of_run.sort_values("version").drop_duplicates("task", keep="last")
        if len(latest) == len(SETS):
            found[seed] = 100 * latest["score"].mean()
    return found


def printed(name: str) -> tuple[float, float, float, float | None]:
    """Return an estimate, its interval, and the estimate on disjoint pairs if it is in brackets.

    They are those of a value, of a row of primaries, or of a line of the first table.
    """
    line = re.escape(name.removeprefix("better encoder: "))
    before = rf"(?:<!-- value {line} -->|^\| {line} \| [^|]+ \| |(?:\| |<br>){line}: )"
    numbers = r"([-+.\d]+)(?: \|)?\s\[([-+.\d]+),\s([-+.\d]+)\](?: \(([-+.\d]+)\))?"
    matches = re.findall(before + numbers, REPORT, re.MULTILINE)
    assert matches, name
    *estimate, disjoint = matches[-1 if name.startswith("better encoder") else 0]
    mean, low, high = map(float, estimate)
    return mean, low, high, float(disjoint) if disjoint else None


@pytest.mark.parametrize("name", [*WELCH, *PAIRED])
def test_a_printed_gain_follows_from_the_records_scores(name: str, scores: pd.DataFrame) -> None:
    study, *labels = (WELCH | PAIRED)[name]
    suffix = "_disjoint" if name.startswith("disjoint") else ""
    ours, theirs = (averages(scores, row_of(study, label), suffix) for label in labels)
    if name in PAIRED:
        seeds = [seed for seed in ours if seed in theirs]
        found = stats.ttest_rel([ours[s] for s in seeds], [theirs[s] for s in seeds])
        mean = sum(ours[s] - theirs[s] for s in seeds) / len(seeds)
    else:
        found = stats.ttest_ind(list(ours.values()), list(theirs.values()), equal_var=False)
        mean = sum(ours.values()) / len(ours) - sum(theirs.values()) / len(theirs)
    interval = found.confidence_interval(0.95)
    *estimate, in_brackets = printed(name)
    assert estimate == pytest.approx([mean, interval.low, interval.high], abs=0.0051)
    if in_brackets is not None:
        apart = [averages(scores, row_of(study, label), "_disjoint") for label in labels]
        means = [sum(each.values()) / len(each) for each in apart]
        assert in_brackets == pytest.approx(means[0] - means[1], abs=0.0051)


@pytest.mark.parametrize(("name", "weight"), [("one.RankEncoder.50", 2.5), ("E3", 2.5), ("A4", 2.5)])
def test_a_gain_is_at_the_weight_that_is_said(name: str, weight: float) -> None:
    study, label, _ = next(found for key, found in PAIRED.items() if key.split()[0] == name)
    run = row_of(study, label).encoder
    assert isinstance(run, Run)
    assert isinstance(run.method, RankEncoder)
    assert run.method.rank_weight == weight


def test_list_mles_best_checkpoint_is_the_first_one(scores: pd.DataFrame) -> None:
    for study, label in (("plan-orders", "ListMLE"), WELCH["one.ListMLE.equal estimate"][:2]):
        row = row_of(study, label)
        kept = scores[scores["key"].isin(row.keys().values()) & (scores["select"] == row.select)]
        assert set(kept["step"]) == {32}


def test_list_nets_dev_score_on_the_better_encoder_is_ahead_until_step_40_and_hardly_rises_after() -> None:
    curves = pd.read_csv(ROOT / "mlruns/curves.csv").query("name == 'dev/stsb_dev'")
    ours, theirs = (
        curves[curves["key"].isin(row_of(QUALITY, label).keys().values())].groupby("step")["value"].mean()
        for label in ("ListNet", "SimCSE")
    )
    assert [step for step in ours.index if ours[step] > theirs[step]] == [20, 40]
    assert 0 < ours[160] - ours[40] < 0.002 < 0.013 < theirs[160] - theirs[40]
    assert theirs.is_monotonic_increasing
