"""The disjoint and the scored parts of the STS sets, counted again with other code on the real files.

Scores are shown in tables. A mean is shown only where all seven sets have a score.
"""

import io
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cse_core.data.senteval import STS_TEST, TRANSFER, EvalDataset, pairs
from cse_core.evaluation.sts_subsets import SUBSETS, disjoint, gold_between, normalise
from cse_core.metrics.correlation import correlations
from experiments.results import score_tables
from tests.support.outcomes import Pair, columns, cosines, evaluation_of, exact, words_of
from tests.support.outcomes import scored as outcomes

LEFT = {"sts12": 1854, "sts13": 822, "sts14": 1697, "sts15": 1319, "sts16": 967, "stsb": 1364, "sickr": 4864}
GONE = {"sts14": {"deft-forum", "deft-news"}, "sts15": {"answers-forums"}}  # parts, which no mean over parts holds
INTERVALS = {"stsb_dissimilar": 407, "stsb_between": 438, "stsb_similar": 534}


def plainer(sentence: str) -> str:
    """The words without ASCII punctuation only: shows that the counts do not depend on what else is dropped."""
    return " ".join(sentence.casefold().translate(dict.fromkeys(map(ord, string.punctuation), " ")).split())


@cache
def sides(task: str, data: Path) -> list[Pair]:
    table = pairs(task, data).table
    return list(zip(table["sentence1"][:], table["sentence2"][:], strict=True))


@cache
def unordered(task: str, data: Path, normal: Callable[[str], str]) -> list[tuple[str, ...]]:
    return [tuple(sorted(map(normal, pair))) for pair in sides(task, data)]


def kept(task: str, splits: Sequence[str], data: Path, normal: Callable[[str], str] = words_of) -> list[int]:
    """Rows whose pair, in neither order, is in one of the splits."""
    known = {pair for split in splits for pair in unordered(split, data, normal)}
    return [row for row, pair in enumerate(unordered(task, data, normal)) if pair not in known]


def seen(data: Path) -> dict[str, EvalDataset]:
    return {split: pairs(split, data) for split in ("stsb_dev", "stsb_train")}


@pytest.mark.slow
@pytest.mark.parametrize("task", STS_TEST)
def test_the_disjoint_pairs_are_those_counted_by_other_code(task: str, real_data: Path) -> None:
    subset, evaluation = SUBSETS[f"{task}_disjoint"], pairs(task, real_data)
    assert (subset.base, subset.reads) == (task, ("stsb_dev", "stsb_train"))
    rows, parts = subset.rows(evaluation, seen(real_data)), evaluation.table["part"][:]
    assert len(rows) == LEFT[task]
    assert rows.tolist() == kept(task, ("stsb_dev", "stsb_train"), real_data)
    assert rows.tolist() == kept(task, ("stsb_dev", "stsb_train"), real_data, plainer)
    left = Counter(parts[row] for row in rows)
    assert min(left.values()) >= 30  # of one or two pairs a correlation says nothing
    assert set(parts) - set(left) == GONE.get(task, set())


def left_of(rows: Sequence[Pair], dev: Sequence[Pair], train: Sequence[Pair]) -> list[int]:
    splits = {"stsb_dev": evaluation_of(dev), "stsb_train": evaluation_of(train)}
    return disjoint(evaluation_of(rows), splits).tolist()


def test_a_pair_is_known_in_any_case_punctuation_and_order() -> None:
    dev, train = [("A man, a plan.", "Snow fell")], [("it 's late", "No-one (here) slept"), ("the same", "The same!")]
    rows = [
        ("a MAN a plan", "snow fell ."),  # 0: case and punctuation
        ("Snow -- fell", "a man;a plan"),  # 1: the other order
        ("It's late", "No one here slept"),  # 2: an apostrophe and a hyphen are blanks
        ("its late", "No one here slept"),  # 3: but other words stay other words
        ("a man a plan", "late"),  # 4: one side is no pair
        ("a man a plan", "it s late"),  # 5: sides of two pairs are no pair
        ("a man a plan", "a man a plan"),  # 6: nor is a side twice
        ("same the", "the same"),  # 7: the order of words counts
        ("THE_SAME", "the   same"),  # 8: a sentence with itself; an underscore is punctuation
        ("a man a plan today", "snow fell"),  # 9: more words
    ]
    assert left_of(rows, dev, train) == [3, 4, 5, 6, 7, 9]
    assert left_of(rows, dev, []) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert left_of(rows, [], train) == [0, 1, 3, 4, 5, 6, 7, 9]
    assert left_of(rows, rows, []) == []
    assert left_of(rows, [], []) == list(range(10))


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A man, a plan.", "a man a plan"),
        ("it 's  \u201cquoted\u201d\u2026", "it s quoted"),
        ("3.5-4 snake_case", "3 5 4 snake case"),
        ("Caf\u00e9 \u00c9T\u00c9", "caf\u00e9 \u00e9t\u00e9"),
        (" . ", ""),
        ("", ""),
    ],
)
def test_a_normalised_sentence_has_only_its_words(sentence: str, expected: str) -> None:
    assert normalise(sentence) == expected


@pytest.mark.slow
@given(st.text(st.characters(codec="latin-1")))
def test_normalising_twice_changes_nothing(sentence: str) -> None:
    once = normalise(sentence)
    assert normalise(once) == normalise(f" '{sentence}' ...") == once == words_of(sentence)
    assert once == " ".join(once.split())


def test_the_intervals_of_gold_partition_the_test_set(real_data: Path) -> None:
    evaluation = pairs("stsb", real_data)
    gold = list(evaluation.table["score"][:])
    found = {name: SUBSETS[name].rows(evaluation, {}).tolist() for name in INTERVALS}
    assert {name: len(rows) for name, rows in found.items()} == INTERVALS
    assert sorted(row for rows in found.values() for row in rows) == list(range(1379))
    assert found["stsb_dissimilar"] == [row for row, score in enumerate(gold) if score <= 1.65]
    assert found["stsb_similar"] == [row for row, score in enumerate(gold) if score >= 3.35]
    assert {SUBSETS[name][0] for name in INTERVALS} == {"stsb"}


def test_an_edge_of_an_interval_belongs_to_the_outer_group() -> None:
    hundredths = [0, 1, 32, 33, 34, 50, 66, 67, 68, 99, 100]  # of gold / 5
    evaluation = evaluation_of([("a", "b")] * len(hundredths), [n / 100 * 5 for n in hundredths])
    found = {name: [hundredths[row] for row in SUBSETS[name].rows(evaluation, {})] for name in INTERVALS}
    assert found == {
        "stsb_dissimilar": [0, 1, 32, 33],
        "stsb_between": [34, 50, 66],
        "stsb_similar": [67, 68, 99, 100],
    }


def test_an_interval_holds_only_its_lower_edge() -> None:
    evaluation = evaluation_of([("a", "b")] * 5, [0, 1.25, 2.5, 3.75, 5])
    assert gold_between(0.25, 0.75)(evaluation, {}).tolist() == [1, 2]
    assert gold_between(2.0, 3.0)(evaluation, {}).tolist() == []


@pytest.mark.parametrize("task", ["sts16", "stsb"])
@pytest.mark.slow
def test_correlations_are_those_of_the_cosines_of_all_pairs_and_of_the_disjoint(task: str, real_data: Path) -> None:
    found = outcomes([f"{task}_disjoint", task], real_data)
    first, second, gold = columns(task, data=real_data)
    whole, part = found[task], found[f"{task}_disjoint"]
    scores, parts = whole.arrays["pair_scores"], pairs(task, real_data).table["part"][:]
    np.testing.assert_allclose(scores, cosines(first, second), atol=1e-12)
    assert whole.metrics == pytest.approx(correlations(scores, gold, parts), abs=1e-12)
    rows = kept(task, ("stsb_dev", "stsb_train"), real_data)
    expected = correlations(scores[rows], gold[rows], [parts[row] for row in rows])
    assert part.metrics == pytest.approx(expected, abs=1e-12)
    assert (whole.rows, part.rows, part.arrays) == (len(gold), len(rows), {})


def test_correlations_of_the_intervals_of_gold(real_data: Path) -> None:
    found = outcomes(list(INTERVALS), real_data)
    first, second, gold = columns("stsb", data=real_data)
    scores = exact(first, second)
    chosen = {"dissimilar": gold <= 1.65, "between": (gold > 1.65) & (gold < 3.35), "similar": gold >= 3.35}
    for name, rows in chosen.items():
        expected = correlations(scores[rows], gold[rows], ["all"] * rows.sum())
        assert found[f"stsb_{name}"].metrics == pytest.approx(expected, abs=1e-12)
        assert found[f"stsb_{name}"].rows == rows.sum()


def cells(names: Sequence[str], scorer: str = "cosine", **metrics: float) -> list[dict[str, Any]]:
    about = {"select": "as is", "scorer": scorer, "pairs": 9}
    return [about | {"task": name, "metric": m, "score": s} for name in names for m, s in metrics.items()]


def shown(found: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, **choice: Any) -> dict[str, list[str]]:
    """The lines of all tables that are printed, by their first cell."""
    file = io.StringIO()
    monkeypatch.setattr(score_tables, "console", Console(file=file, width=200))
    score_tables.print_scores({"name": "mine", "cells": found, "warnings": ["look out"]}, **choice)
    printed = file.getvalue()
    assert printed.splitlines()[-1] == "warning: look out"
    lines = [[cell.strip() for cell in line.strip("\u2502").split("\u2502")] for line in printed.splitlines()]
    return {line[0]: line[1:] for line in lines if len(line) > 1}


def test_a_mean_is_shown_where_all_seven_tasks_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seven = [cell for i, name in enumerate(STS_TEST) for cell in cells([name], **{"spearman.all": i / 10})]
    lines = shown([*seven, *cells(["stsb_disjoint"], **{"spearman.all": 1.0})], monkeypatch)
    assert lines["mean of sts"] == ["", "30.00"]
    assert (lines["sts13"], lines["sickr"], lines["stsb_disjoint"]) == (["9", "10.00"], ["9", "60.00"], ["9", "100.00"])
    assert [name for name in lines if name.startswith("mean")] == ["mean of sts"]
    other = cells(["sickr"], "cosine mean", **{"spearman.all": 1.0})
    for fewer, choice in ((seven[:-1], {}), ([*seven[:-1], *other], {}), (seven, {"only": set(STS_TEST[1:])})):
        assert [name for name in shown(fewer, monkeypatch, **choice) if name.startswith("mean")] == []
    assert shown([*seven, *other], monkeypatch, scorer="cosine mean") == {"sickr": ["9", "100.00"]}


def test_a_metric_that_a_task_does_not_have_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [*cells(TRANSFER, acc=0.8), *cells(["mrpc"], f1=0.75), *cells(["phrases"], **{"cosine.mean": 0.12345})]
    lines = shown(found, monkeypatch)
    assert lines["mr"] == ["9", "80.00", "\u2013"]
    assert lines["mrpc"] == ["9", "80.00", "75.00"]
    assert lines["mean of transfer"] == ["", "80.00", "\u2013"]
    assert lines["phrases"] == ["9", "0.1235"]  # no share and no correlation: not in points
