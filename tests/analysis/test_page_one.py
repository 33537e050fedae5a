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
    "RankCSE, small: ListNet": (FIRST, "ListNet, one epoch", "SimCSE, one epoch"),
    "RankCSE, small: ListMLE": (FIRST, "ListMLE, one epoch", "SimCSE, one epoch"),
    "WhitenedCSE, small: as its code": ("plan2-whitening", "WhitenedCSE, dropout views", "SimCSE"),
    "WhitenedCSE, small: as its text": ("plan-whitening", "WhitenedCSE", "SimCSE"),
    "CompCSE, small: ": (FIRST, "CompCSE", "SimCSE, ten seeds"),
    "RankCSE, better: ListNet": (QUALITY, "ListNet", "SimCSE"),
    "RankCSE, better: ListMLE": (QUALITY, "ListMLE", "SimCSE"),
    "WhitenedCSE, better: as its code": (QUALITY, "WhitenedCSE, dropout views", "SimCSE"),
    "CompCSE, better: ": (QUALITY, "CompCSE", "SimCSE"),
    "R1 result": (FIRST, "ListNet, 8 epochs", "SimCSE, 8 epochs"),
    "W1 result": ("plan-whitening", "WhitenedCSE", "SimCSE"),
    "A1": ("plan2-whitening", "WhitenedCSE, dropout views", "SimCSE"),
    "A2": ("plan2-teachers", "ListNet taught by wiki-medium's SimCSE, one epoch", "SimCSE, one epoch"),
    "A3": ("plan2-teachers", "ListMLE taught by wiki-medium's SimCSE, one epoch", "SimCSE, one epoch"),
    "no-whitening estimate": ("plan2-whitening", "three dropout views, no whitening", "SimCSE"),
    "C1 result": (FIRST, "CompCSE", "SimCSE, ten seeds"),
    "crops estimate": (FIRST, "two random crops", "SimCSE, ten seeds"),
    "disjoint.ListNet estimate": ("plan2-disjoint", "ListNet", "SimCSE"),
    "disjoint.ListMLE estimate": ("plan2-disjoint", "ListMLE", "SimCSE"),
    "composition.negative estimate": (FIRST, "halves of shuffled words", "SimCSE, ten seeds"),
    "end.ListNet estimate": ("plan-orders", "ListNet, last", "SimCSE, last"),
    "end.ListMLE estimate": ("plan-orders", "ListMLE, last", "SimCSE, last"),
    "one.ListMLE.equal estimate": (
        "plan2-teachers",
        "ListMLE taught by SimCSE of eight epochs, one epoch",
        "SimCSE, one epoch",
    ),
    "D1": (QUALITY, "ListNet", "SimCSE"),
    "D1.ListMLE estimate": (QUALITY, "ListMLE", "SimCSE"),
    "D1.MiniLM estimate": (QUALITY, "ListNet, MiniLM teaches", "SimCSE"),
    "D1.MiniLM.ListMLE estimate": (QUALITY, "ListMLE, MiniLM teaches", "SimCSE"),
    "D.shuffled estimate": (QUALITY, "halves of shuffled words", "SimCSE"),
    "D.half estimate": (QUALITY, "first half alone", "SimCSE"),
    "D3": (QUALITY, "WhitenedCSE, dropout views", "SimCSE"),
    "D4": (QUALITY, "CompCSE", "SimCSE"),
}
PAIRED = {
    "RankEncoder, small: ": ("rankencoder-table4", "SimCSE, +RankEncoder", "SimCSE, base"),
    "RankEncoder, better: ": (QUALITY, "RankEncoder", "SimCSE"),
    "one.RankEncoder estimate": ("rankencoder-table4", "SimCSE, +RankEncoder", "SimCSE, base"),
    "one.RankEncoder.50 estimate": ("plan-orders", "RankEncoder", "SimCSE"),
    "scoring.RankEncoder estimate": ("plan2-ranks", "RankEncoder by cosine and ranks", "RankEncoder by cosine"),
    "A4": ("plan2-ranks", "RankEncoder by cosine", "SimCSE by cosine"),
    "E3 result": ("plan-ranks", "RankEncoder, 8 epochs", "SimCSE, 8 epochs"),
    "D2": (QUALITY, "RankEncoder", "SimCSE"),
    "D2.training estimate": (QUALITY, "RankEncoder by cosine", "SimCSE"),
    "D5": (QUALITY, "CompCSE", "two random crops"),
    "D5.disjoint estimate": (QUALITY, "CompCSE", "two random crops"),
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


def dev_by_step(study: str, label: str) -> pd.Series:
    """Return a row's mean dev score over seeds at each step."""
    curves = pd.read_csv(ROOT / "mlruns/curves.csv").query("name == 'dev/stsb_dev'")
    return curves[curves["key"].isin(row_of(study, label).keys().values())].groupby("step")["value"].mean()


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
    """Return an estimate, its interval, and the estimate on disjoint pairs if it is in parentheses.

    They are those of a value, of a row of primaries, or of a line of a paper's row in the first table.
    """
    numbers = r"([-+.\d]+)(?: \|)?\s\[([-+.\d]+),\s([-+.\d]+)\](?: \(([-+.\d]+)\))?"
    paper, _, of_paper = name.partition(", ")
    if of_paper:
        place, _, words = of_paper.partition(": ")
        cells = next(row.split(" | ") for row in REPORT.splitlines() if row.startswith(f"| {paper} | "))
        lines = cells[{"small": 3, "better": 4}[place]].split("<br>")
        (text,) = [line for line in lines if line.startswith(f"{words}: " if words else ("+", "-"))]
        found = re.search(numbers, text)
    else:
        line = re.escape(name)
        found = re.search(rf"(?:<!-- value {line} -->|^\| {line} \| [^|]+ \| ){numbers}", REPORT, re.MULTILINE)
    assert found, name
    *estimate, disjoint = found.groups()
    mean, low, high = map(float, estimate)
    return mean, low, high, float(disjoint) if disjoint else None


@pytest.mark.parametrize("name", [*WELCH, *PAIRED])
def test_a_printed_gain_follows_from_the_records_scores(name: str, scores: pd.DataFrame) -> None:
    study, *labels = (WELCH | PAIRED)[name]
    suffix = "_disjoint" if "disjoint" in name else ""
    ours, theirs = (averages(scores, row_of(study, label), suffix) for label in labels)
    if name in PAIRED:
        seeds = [seed for seed in ours if seed in theirs]
        found = stats.ttest_rel([ours[s] for s in seeds], [theirs[s] for s in seeds])
        mean = sum(ours[s] - theirs[s] for s in seeds) / len(seeds)
    else:
        found = stats.ttest_ind(list(ours.values()), list(theirs.values()), equal_var=False)
        mean = sum(ours.values()) / len(ours) - sum(theirs.values()) / len(theirs)
    interval = found.confidence_interval(0.95)
    *estimate, in_parentheses = printed(name)
    assert estimate == pytest.approx([mean, interval.low, interval.high], abs=0.0051)
    if in_parentheses is not None:
        apart = [averages(scores, row_of(study, label), "_disjoint") for label in labels]
        means = [sum(each.values()) / len(each) for each in apart]
        assert in_parentheses == pytest.approx(means[0] - means[1], abs=0.0051)


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


def test_list_mle_taught_by_simcse_of_eight_epochs_ends_below_simcse_on_dev() -> None:
    ours, theirs = (dev_by_step("plan2-teachers", label) for label in WELCH["one.ListMLE.equal estimate"][1:])
    assert ours[32] > theirs.max()
    assert ours[256] < theirs[256]


def test_the_first_half_alone_is_scored_after_an_eighth_of_the_training(scores: pd.DataFrame) -> None:
    kept = {}
    for label in ("first half alone", "SimCSE"):
        row = row_of(QUALITY, label)
        ours = scores["key"].isin(row.keys().values()) & (scores["select"] == row.select)
        kept[label] = set(scores[ours & (scores["scorer"] == str(row.scorer))]["step"])
    assert kept == {"first half alone": {20}, "SimCSE": {160}}
    assert dev_by_step(QUALITY, "first half alone").is_monotonic_decreasing


def test_list_nets_dev_score_on_the_better_encoder_is_ahead_until_step_40_and_hardly_rises_after() -> None:
    ours, theirs = (dev_by_step(QUALITY, label) for label in ("ListNet", "SimCSE"))
    assert [step for step in ours.index if ours[step] > theirs[step]] == [20, 40]
    assert 0 < ours[160] - ours[40] < 0.002 < 0.013 < theirs[160] - theirs[40]
    assert theirs.is_monotonic_increasing
