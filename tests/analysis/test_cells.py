"""The record joined with a study: averages, missing seeds, provenance, refusals."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.cells import join, tidy
from cse_core.data.senteval import TRANSFER
from experiments.results import csv_record
from experiments.schema.columns import STS
from experiments.schema.study import BY_TRANSFER, SNAPSHOTS, Row, Study
from tests.support.scored_rows import by_seed, scored
from tests.support.toy_study import toy_line, toy_run


def key_of_row(study: Study, label: str, seed: int) -> str:
    return next(row for row in study.rows if row.label == label).keys()[seed]


def without(lines: pd.DataFrame, key: str, task: str) -> pd.DataFrame:
    return lines[(lines["key"] != key) | (lines["task"] != task)]


def test_an_average_is_the_unweighted_mean_of_its_tasks_per_seed(study, lines):
    cell = join(study, lines).cells["Better", "sts_avg"]
    assert cell.scores == pytest.approx({42: 63.0, 1: 64.0, 2: 66.0})
    assert cell.missing == ()
    assert cell.summary is not None
    assert (cell.summary.mean, cell.summary.n) == (pytest.approx(193 / 3), 3)


def test_a_task_that_no_seed_has_withholds_the_average(wide, lines):
    results = join(wide, lines[lines["task"] != "stsb"])
    assert results.cells["SimCSE", "sts_avg"].scores == {}
    assert results.cells["SimCSE", "sts_avg"].summary is None
    assert results.cells["SimCSE", "sts_avg"].provenance == "not run"
    assert results.cells["SimCSE", "sts12"].provenance == "measured"


def test_an_empty_score_is_missing(study, lines):
    lines.loc[(lines["key"] == key_of_row(study, "SimCSE", 2)) & (lines["task"] == "sts14"), "score"] = None
    assert join(study, lines).cells["SimCSE", "sts_avg"].missing == (2,)


def test_deleting_a_line_changes_exactly_the_cells_that_used_it(wide, lines):
    before = join(wide, lines).cells
    after = join(wide, without(lines, key_of_row(wide, "SimCSE", 42), "sts13")).cells
    changed = {place for place, cell in before.items() if after[place] != cell}
    assert changed == {("SimCSE", "sts13"), ("SimCSE", "sts_avg")}


@pytest.mark.parametrize(
    ("name", "value"), [("select", "last"), ("scorer", "cosine mean"), ("metric", "spearman.mean")]
)
def test_only_the_rows_own_lines_count(study, lines, name, value):
    cell = join(study, lines.assign(**{name: value})).cells["SimCSE", "sts_avg"]
    assert cell.scores == {}


def test_a_scored_row_that_says_why_is_a_substitute(study, lines):
    first = replace(study.rows[0], why="another corpus stands in")
    results = join(replace(study, rows=(first, *study.rows[1:])), lines)
    assert results.cells["SimCSE", "sts_avg"].provenance == "substituted"


def test_a_second_line_for_a_cell_is_refused(study, lines):
    twice = pd.concat([lines, lines.iloc[[3]].assign(score=0.99)])
    with pytest.raises(ValueError, match=rf"1 cells have a second line, the first is {lines.iloc[3]['key']}.* sts15"):
        join(study, twice)


def test_two_evaluator_versions_in_a_table_are_refused(study, lines):
    lines.loc[5, "version"] = 2
    with pytest.raises(ValueError, match=r"toy: spearman\.all scores of evaluator versions 1 and 2"):
        join(study, lines)


def test_versions_of_lines_that_the_table_does_not_use_do_not_matter(study, lines):
    other = lines.iloc[[0]].assign(key="someone else", version=2)
    assert join(study, pd.concat([lines, other])).cells == join(study, lines).cells


def test_transfer_tasks_have_versions_of_their_own(study, lines):
    key = key_of_row(study, "SimCSE", 42)
    transfer = lines.iloc[[0]].assign(key=key, task="mr", version=7)
    assert join(study, pd.concat([lines, transfer])).cells == join(study, lines).cells


def test_compared_columns_are_joined_even_if_not_shown(lines, study):
    hidden = join(replace(study, columns=("sts12",)), lines)
    assert ("Better", "sts_avg") in hidden.cells
    assert set(tidy(hidden)["column"]) == {"sts12"}


def test_tidy_is_in_points_with_seeds_and_keys(study, lines):
    table = tidy(join(study, lines)).set_index(["row", "column"])
    line = table.loc[("SimCSE", "sts_avg")]
    assert (line["mean"], line["sd"], line["n"]) == (pytest.approx(54.0), pytest.approx(1.0), 3)
    assert line["scores"] == "42=53.0000 1=54.0000 2=55.0000"
    assert line["keys"].split()[0] == f"42={key_of_row(study, 'SimCSE', 42)}"
    assert pd.isna(table.loc[("SimCSE", "transfer_avg"), "mean"])
    assert table.loc[("SimCSE", "transfer_avg"), "missing_seeds"] == "42 1 2"


def test_without_lines_nothing_is_measured(study, lines):
    cells = join(study, lines.iloc[:0]).cells
    assert {cell.provenance for cell in cells.values()} == {"not run", "imported"}


def test_rows_that_share_a_run_share_its_lines(study, lines):
    again = Row(label="Again", encoder=study.rows[0].encoder, seeds=(42,))
    cells = join(replace(study, rows=(*study.rows, again)), lines).cells
    assert cells["Again", "sts_avg"].scores == pytest.approx({42: 53.0})
    assert set(cells["SimCSE", "sts_avg"].scores) == {42, 1, 2}


def test_a_row_chosen_on_the_test_sets_shows_the_snapshot_that_is_best_on_them(study):
    row = replace(study.rows[0], label="On test", select="sts_test", seeds=(42, 1))
    levels = {"quarter_1": 0.5, "quarter_2": 0.7, "quarter_3": 0.6, "last": 0.4, "stsb_dev": 0.9}
    lines = [
        toy_line(key, task, level, seed=seed, select=select) | {"metric": "spearman.all"}
        for seed, key in row.keys().items()
        for select, level in levels.items()
        for task in STS
        if (seed, select, task) != (1, "quarter_3", "sts14")  # one snapshot of seed 1 is not scored
    ]
    shown = replace(study, rows=(row,), contrasts=(), columns=("sts12", "sts_avg"))
    results = join(shown, pd.DataFrame(lines))
    assert results.cells["On test", "sts_avg"].scores == pytest.approx({42: 70.0})
    assert results.cells["On test", "sts12"].missing == (1,)


def test_a_row_selected_on_transfer_dev_shows_the_snapshot_whose_dev_scores_are_best(study):
    row = Row(label="a", encoder=toy_run(0.05), seeds=(42,), select=BY_TRANSFER)
    lines = []
    for i, select in enumerate(SNAPSHOTS):
        for task in TRANSFER:
            for metric, score in (("devacc", [0.5, 0.8, 0.7, 0.6][i]), ("acc", 0.1 * (i + 1))):
                lines.append(toy_line(row.keys()[42], task, score, select=select) | {"metric": metric})
    frame = pd.DataFrame(lines, columns=csv_record.RESULTS)
    shown = replace(study, rows=(row,), columns=(*TRANSFER, "transfer_avg"), contrasts=())
    assert join(shown, frame).cells["a", "transfer_avg"].scores == {42: pytest.approx(20.0)}
    gap = frame[(frame["select"] != "last") | (frame["task"] != "mr")]
    assert join(shown, gap).cells["a", "transfer_avg"].scores == {}  # a snapshot that is not scored could be the best


@pytest.mark.parametrize("newest_first", [False, True])
def test_of_a_cell_in_two_versions_the_newest_counts(study: Study, newest_first: bool) -> None:
    """Versions are numbers: the tenth is newer than the ninth."""
    rows, old = scored({"a": by_seed(0.52, 0.53, 0.55)})
    old = old.assign(version=9)
    new = old.assign(version=10, score=old["score"] + 0.1)
    both = pd.concat([new, old] if newest_first else [old, new], ignore_index=True)
    found = join(replace(study, rows=rows, contrasts=()), both)
    assert found.cells["a", "sts_avg"].scores == pytest.approx({42: 62.0, 1: 63.0, 2: 65.0})
    assert set(found.lines["version"]) == {10}
    assert len(found.lines) == 3 * len(STS)


def test_the_end_of_a_curve_its_best_and_what_is_near_it_are_three_things(study: Study) -> None:
    """A curve whose tail falls below where it came from, its lines in no order."""
    (row,), recorded = scored({"a": {42: [0.5]}})
    curve = {10: 0.50, 20: 0.61, 30: 0.72, 40: 0.735, 50: 0.74, 60: 0.70, 70: 0.60}
    lines = [("small", row.keys()[42], "dev/stsb_dev", step, value) for step, value in curve.items()]
    lines += [("small", row.keys()[42], "loss/rank", step, 1 / step) for step in curve]
    lines += [("small", row.keys()[42], "loss/contrastive", step, step / 10) for step in curve]
    lines += [("small", row.keys()[42], "loss/share_rank_larger", step, step / 100) for step in curve]
    lines += [("small", "of no row", "loss/rank", 80, 9.0)]
    curves = pd.DataFrame([lines[i] for i in (3, 0, 6, 1, 5, 2, 4)] + lines[:6:-1], columns=csv_record.CURVES)
    names = ("near_best", "below_best", "last_rank", "last_contrastive", "rank_larger", "last_rank_larger")
    found = join(replace(study, rows=(row,), columns=(*names, "tau3"), contrasts=()), recorded, curves)
    assert found.cells["a", "tau3"].scores == {}  # SimCSE has none
    assert {name: found.cells["a", name].scores[42] for name in names} == {
        "near_best": 40,  # the first within a point of .74; within a point of the end it would be 20
        "below_best": pytest.approx(100 * (0.04 + 0.14) / 7),
        "last_rank": pytest.approx(1 / 70),
        "last_contrastive": 7.0,
        "rank_larger": pytest.approx(40.0),
        "last_rank_larger": pytest.approx(70.0),
    }
