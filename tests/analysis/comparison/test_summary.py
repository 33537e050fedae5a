"""What a comparison's report says, against scipy and numbers worked out by hand, from a record made up here."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy

from analysis.comparison import figures
from analysis.comparison.report import report_text, write_report
from analysis.report.blocks import Record, Request, block_text
from analysis.report.comparison_tables import comparison_block, comparison_page, gains_grid, settings_grid
from analysis.report.formats import markdown
from analysis.stats.significance import expected_maximum
from analysis.verdicts.comparison import (
    NO_BASELINE,
    NOT_RUN,
    ONE_SEARCH,
    Summary,
    paper_gains,
    recorded_summaries,
    summarise,
)
from analysis.verdicts.verdict import BETTER, EQUIVALENT, INCONCLUSIVE, WITHIN, WORSE
from experiments.comparison import tuned as declared
from experiments.comparison.comparison import PUBLISHED, STAGES, Budget, Comparison, Scores, Trial
from experiments.comparison.recorded import dev_scores, record_trials
from experiments.results import csv_record
from tests.support.comparisons import QUICK, comparison_of

BUDGET = Budget(trials=2, searches=4, finals=3)
COMPARISON = comparison_of("simcse", "compcse", "mixcse", budget=BUDGET)
Value = Callable[[Trial], float]


def line(trial: Trial, task: str, score: float, **about: object) -> dict[str, object]:
    given: dict[str, object] = {"key": trial.run.key, "scale": QUICK.name, "method": trial.entrant.name}
    given |= {
        "backbone": "wiki-tiny",
        "seed": trial.run.seed,
        "settings": "",
        "device": "cpu",
        "seconds": 36.0,
        "teachers": "",
    }
    given |= {"select": QUICK.dev, "scorer": str(trial.scorer), "task": task, "metric": "spearman.all", "version": 1}
    return given | {"score": score, "pairs": 100, "step": 1, "commit": "abc"} | about


def dev(trial: Trial) -> float:
    """A made-up dev score: the more dropout, the better."""
    return 50 + trial.run.dropout


def record(mlruns: Path, comparison: Comparison, test: Value, failed: frozenset[str] = frozenset()) -> Path:
    """Write the record of a comparison that ended, with made-up scores."""
    scores, lines = Scores({}, failed), []
    for entrant, stage in product(comparison.entrants, STAGES):
        trials = [t for t in comparison.stage(stage, scores, (entrant,)) if t.run.key not in failed]
        lines += [line(t, QUICK.dev, dev(t) / 100) for t in trials]
        lines += [line(t, "synthetic", test(t) / 100) for t in trials if stage == "finals"]
        scores = Scores({**scores.by_address, **{t.address: dev(t) for t in trials}}, failed)
        record_trials(comparison, comparison.stage(stage, scores, (entrant,)), scores, failed, mlruns)
    csv_record.merge_results(csv_record.folder_for(QUICK.name, mlruns), pd.DataFrame(lines)[csv_record.RESULTS])
    return mlruns


def made_up(gain: float, spread: float) -> Value:
    """Test scores of 60 and a gain for CompCSE, which differ by search and by seed."""

    def of(trial: Trial) -> float:
        by = {"simcse": 0.0, "compcse": gain, "mixcse": 0.0}[trial.entrant.name]
        return 60 + by + spread * np.sin(7 * trial.search + len(trial.entrant.name)) + 0.01 * (trial.run.seed % 3)

    return of


def summary_of(tmp_path: Path, gain: float, spread: float) -> Summary:
    return summarise(COMPARISON, record(tmp_path, COMPARISON, made_up(gain, spread)))


def test_the_gain_is_welchs_over_the_means_of_the_searches(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, gain=1.0, spread=0.3)
    means = {
        each.entrant.name: [mean(each.measures["synthetic"][search].values()) for search in range(4)]
        for each in summary.tuned
    }
    expected = scipy.stats.ttest_ind(means["compcse"], means["simcse"], equal_var=False)
    gain = summary.gains["compcse", "synthetic"]
    assert gain.estimate
    assert gain.estimate.difference_p() == pytest.approx(expected.pvalue, rel=1e-9)
    assert tuple(gain.estimate.interval or ()) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    assert gain.estimate.mean == pytest.approx(mean(means["compcse"]) - mean(means["simcse"]))
    # The published settings' runs enter no mean.
    assert PUBLISHED in summary.tuned[0].measures["synthetic"]


@pytest.mark.parametrize(
    ("gain", "spread", "verdict"),
    [
        (2.0, 0.2, BETTER),
        (0.3, 0.05, BETTER + WITHIN),
        (-2.0, 0.2, WORSE),
        (0.0, 0.05, EQUIVALENT),
        (0.3, 2.0, INCONCLUSIVE),
    ],
)
def test_each_gain_and_spread_has_its_verdict(tmp_path: Path, gain: float, spread: float, verdict: str) -> None:
    assert summary_of(tmp_path, gain, spread).gains["compcse", "synthetic"].verdict == verdict


def test_holm_counts_the_methods(tmp_path: Path) -> None:
    """A p value of 0.035 differs alone, and not as one of two."""
    estimate = summary_of(tmp_path / "no gain", gain=0.0, spread=0.3).gains["compcse", "synthetic"].estimate
    assert estimate
    assert estimate.error
    assert estimate.df
    gain = scipy.stats.t.isf(0.035 / 2, estimate.df) * estimate.error - estimate.mean
    two = replace(COMPARISON, margin=0.01)
    ended = record(tmp_path, two, made_up(gain, 0.3))
    assert summarise(two, ended).gains["compcse", "synthetic"].verdict == INCONCLUSIVE
    alone = replace(two, entrants=two.entrants[:2])
    assert summarise(alone, ended).gains["compcse", "synthetic"].verdict == BETTER


def test_one_search_is_not_tested_and_nothing_run_says_so(tmp_path: Path) -> None:
    single = replace(COMPARISON, budget=replace(BUDGET, searches=1))
    ended = record(tmp_path, single, made_up(1.0, 0.1))
    assert summarise(single, ended).gains["compcse", "synthetic"].verdict == ONE_SEARCH
    empty = summarise(COMPARISON, tmp_path / "none")
    assert empty.gains["compcse", "synthetic"].verdict == NOT_RUN
    assert [row[1] for row in gains_grid(empty).rows] == ["–"] * 3
    assert [shown(empty, place)["verdict"] for place in range(3)] == [NOT_RUN] * 3


def shown(summary: Summary, place: int) -> dict[str, str]:
    """A method's row of the table."""
    grid = gains_grid(summary)
    return dict(zip(grid.header, grid.rows[place], strict=True))


def left_out(results: pd.DataFrame, trials: list[Trial]) -> pd.DataFrame:
    return results[~results["key"].isin([trial.run.key for trial in trials])]


@pytest.mark.parametrize("kind", ["a final", "a search", "a measure"])
def test_a_method_that_has_not_run_to_its_end_has_no_gain(tmp_path: Path, kind: str) -> None:
    """Its scores so far are shown, and it counts in Holm's correction of the others."""
    ended = record(tmp_path, COMPARISON, made_up(2.0, 0.2))
    results, searches = (read(QUICK.name, ended) for read in (csv_record.read_results, csv_record.read_searches))
    scores = dev_scores(COMPARISON, results, searches)
    compcse = COMPARISON.entrants[1]
    final = COMPARISON.finals(compcse, 2, scores)[0]
    if kind == "a final":
        kept = left_out(results, [final])
    elif kind == "a search":
        kept = left_out(results, [*COMPARISON.draws(compcse, 3, scores), *COMPARISON.finals(compcse, 3, scores)])
    else:
        kept = results[(results["key"] != final.run.key) | (results["task"] != "synthetic")]
    partial = tmp_path / "partial"
    csv_record.merge_results(csv_record.folder_for(QUICK.name, partial), kept[csv_record.RESULTS])
    summary = summarise(COMPARISON, partial)
    gain = summary.gains["compcse", "synthetic"]
    assert gain.estimate is None
    assert gain.verdict.startswith("not complete: ")
    assert shown(summary, 1)["synthetic"] != "–"
    assert summary.gains["mixcse", "synthetic"].verdict == EQUIVALENT
    of_baseline = left_out(results, [COMPARISON.finals(COMPARISON.entrants[0], 0, scores)[0]])
    without = tmp_path / "without"
    csv_record.merge_results(csv_record.folder_for(QUICK.name, without), of_baseline[csv_record.RESULTS])
    assert summarise(COMPARISON, without).gains["mixcse", "synthetic"].verdict == NO_BASELINE


def test_a_final_that_failed_leaves_no_mean_of_the_others(tmp_path: Path) -> None:
    scores = Scores({t.address: dev(t) for t in COMPARISON.stage("trials", Scores({}))})
    lost = COMPARISON.finals(COMPARISON.entrants[1], 1, scores)[2].run.key
    ended = record(tmp_path, COMPARISON, made_up(2.0, 0.2), frozenset({lost}))
    gain = summarise(COMPARISON, ended).gains["compcse", "synthetic"]
    assert (gain.estimate, gain.verdict) == (None, "not tested: 0 searches and 1 final failed")


def test_a_failed_trial_counts_as_its_searches_lowest_score(tmp_path: Path) -> None:
    first, second = COMPARISON.draws(COMPARISON.entrants[0], 0, Scores({}))
    ended = record(tmp_path, COMPARISON, made_up(1.0, 0.1), frozenset({first.run.key}))
    found = summarise(COMPARISON, ended).tuned[0].trials[0]
    assert found == pytest.approx((dev(second),) * 2)


def test_a_method_whose_trials_all_failed_is_a_row_that_says_so(tmp_path: Path) -> None:
    mixcse = COMPARISON.entrants[2]
    lost = frozenset(t.run.key for s in range(4) for t in COMPARISON.draws(mixcse, s, Scores({})))
    ended = record(tmp_path, COMPARISON, made_up(1.0, 0.1), lost)
    row = shown(summarise(COMPARISON, ended), 2)
    assert row["verdict"].startswith("failed")
    assert row["runs"] == f"{8 + 3} (8 failed)"
    assert row["synthetic"] == "–"


def test_a_method_with_failed_and_pending_trials_is_not_complete(tmp_path: Path) -> None:
    compcse = COMPARISON.entrants[1]
    draws = [COMPARISON.draws(compcse, search, Scores({})) for search in range(4)]
    lost = frozenset(first.run.key for first, _ in draws)
    ended = record(tmp_path, COMPARISON, made_up(1.0, 0.1), lost)
    kept = left_out(csv_record.read_results(QUICK.name, ended), [second for _, second in draws])
    partial = tmp_path / "partial"
    csv_record.merge_results(csv_record.folder_for(QUICK.name, partial), kept[csv_record.RESULTS])
    csv_record.merge_searches(partial, csv_record.read_searches(QUICK.name, ended))
    assert summarise(COMPARISON, partial).gains["compcse", "synthetic"].verdict.startswith("not complete")


def test_settings_costs_and_dev_scores_are_those_of_the_record(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, gain=1.0, spread=0.3)
    simcse = summary.tuned[0]
    for search in range(4):
        drawn = COMPARISON.draws(simcse.entrant, search, Scores({}))
        best = max(drawn, key=lambda trial: trial.run.dropout)
        assert simcse.winners[search] == (best.settings, pytest.approx(dev(best)))
        assert simcse.trials[search] == pytest.approx(tuple(map(dev, drawn)))
    assert simcse.ended == BUDGET.runs == 4 * (2 + 3) + 3
    assert simcse.core_hours == pytest.approx(simcse.ended * 36 / 3600)
    rows = settings_grid(summary).rows
    assert len(rows) == 3 * 5
    assert rows[4][1:3] == ("published setting", "–")
    keys = [key for tuned in summary.tuned for search in (0, 1, 2, 3, PUBLISHED) for key in tuned.finals[search][:1]]
    assert [row[-1] for row in rows] == keys


def test_winners_scored_by_ranks_are_shown_by_the_cosine_too(tmp_path: Path) -> None:
    ranked = replace(comparison_of("simcse", "rankencoder", budget=BUDGET), name="ranked")
    ended = record(tmp_path, ranked, lambda trial: 60.0)
    (finals, *_) = [f for f in summarise(ranked, ended).tuned[1].finals.items() if f[0] == PUBLISHED]
    of = {trial.run.key: trial for trial in ranked.finals(ranked.entrants[1], PUBLISHED, Scores({}))}
    more = [line(of[key], "synthetic", 0.5 + place / 100, scorer="cosine") for place, key in enumerate(finals[1])]
    csv_record.merge_results(csv_record.folder_for(QUICK.name, ended), pd.DataFrame(more)[csv_record.RESULTS])
    summary = summarise(ranked, ended)
    assert summary.tuned[1].by_cosine[PUBLISHED] == {
        t.run.seed: pytest.approx(50 + i) for i, t in enumerate(of.values())
    }
    assert summary.tuned[0].by_cosine[PUBLISHED] == {}
    grid = settings_grid(summary)
    assert [row[grid.header.index("synthetic, by the cosine")] for row in (grid.rows[4], grid.rows[9])] == [
        "–",
        "51.00",
    ]


def test_a_term_of_the_loss_that_is_a_share_stands_beside_the_winners(tmp_path: Path) -> None:
    """Its mean is over steps, of which the points at 2 and 8 stand for two and six, and then over the finals."""
    ended = record(tmp_path, COMPARISON, made_up(1.0, 0.3))
    finals = summarise(COMPARISON, ended).tuned[1].finals
    points = [
        {"scale": QUICK.name, "key": key, "name": name, "step": step, "value": value * (2 + place)}
        for place, key in enumerate(finals[1])
        for name in ("loss/share_chosen", "loss/rank")
        for step, value in ((2, 0.1), (8, 0.02))
    ]
    csv_record.CURVES_TABLE.merge(csv_record.folder_for(QUICK.name, ended), pd.DataFrame(points)[csv_record.CURVES])
    summary = summarise(COMPARISON, ended)
    assert [dict(each.shares) for each in summary.tuned] == [{}, {1: {"chosen": pytest.approx(0.04 * 3)}}, {}]
    grid = settings_grid(summary)
    assert [row[grid.header.index("shares in its loss, %")] for row in grid.rows[5:10]] == ["–", "chosen 12", *"–––"]


def test_the_curves_have_dev_scores_of_trials_and_test_scores_of_finals_only(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, gain=1.0, spread=0.3)
    figure = figures.curves(summary)
    *panels, right = figure.axes
    assert [panel.get_title() for panel in panels] == ["compcse", "mixcse"]
    for panel, each in zip(panels, summary.tuned[1:], strict=True):
        of_baseline, own = panel.get_lines()
        for line, tuned in ((of_baseline, summary.tuned[0]), (own, each)):
            best = [expected_maximum(list(scores)) for scores in tuned.trials]
            assert list(line.get_ydata()) == pytest.approx(np.mean(best, axis=0))  # ty: ignore[invalid-argument-type]
    for each, line in zip(summary.tuned, right.get_lines(), strict=True):
        finals = [mean(each.measures["synthetic"][search].values()) for search in range(BUDGET.searches)]
        assert list(line.get_xdata()) == pytest.approx(finals)  # ty: ignore[invalid-argument-type]
    assert "finals" in right.get_xlabel()
    plt.close(figure)


def test_curves_of_draws_that_depend_on_each_other_are_the_best_so_far(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, gain=1.0, spread=0.3)
    summary = replace(summary, comparison=replace(COMPARISON, sampler="tpe"))
    figure = figures.curves(summary)
    best = [np.maximum.accumulate(scores) for scores in summary.tuned[1].trials]
    own = figure.axes[0].get_lines()[1]
    assert list(own.get_ydata()) == pytest.approx(np.mean(best, axis=0))  # ty: ignore[invalid-argument-type]
    plt.close(figure)


def test_a_declared_comparison_has_a_page_among_the_studies_tables_and_jobs_to_train_its_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared, "COMPARISONS", {"test": lambda: COMPARISON})
    searches = csv_record.read_searches(QUICK.name, tmp_path)
    assert list(recorded_summaries(QUICK.name, searches, tmp_path)) == []
    ended = record(tmp_path, COMPARISON, made_up(1.0, 0.3))
    searches = csv_record.read_searches(QUICK.name, ended)
    assert list(recorded_summaries("small", searches, ended)) == []
    assert declared.recorded_jobs("small", ended) == {}
    (summary,) = recorded_summaries(QUICK.name, searches, ended)
    assert summary.comparison == COMPARISON
    page = comparison_page(summary)
    assert f"{3 * BUDGET.runs} of {3 * BUDGET.runs} runs" in page
    assert re.search(r"^\| compcse \|.*\| better \|", page, re.MULTILINE)
    assert block_text("comparison", Request("test", QUICK.name, Record(ended))) == markdown(gains_grid(summary))
    assert comparison_block("other", [summary]) == "No run of it is recorded yet."
    keys = set(csv_record.read_runs(QUICK.name, ended)["key"])
    assert keys <= {key for each in summary.tuned for key in each.keys}
    jobs = declared.recorded_jobs(QUICK.name, ended)
    finals = {key for each in summary.tuned for keys in each.finals.values() for key in keys}
    assert jobs.keys() == keys
    assert {key for key, job in jobs.items() if job.keeps_weights} == finals
    assert {jobs[key].scorings[0].tasks for key in finals} == {(QUICK.dev, "synthetic")}


@pytest.mark.parametrize(("names", "pictures"), [(["simcse"], 0), (["simcse", "compcse"], 2), (["compcse"], 2)])
def test_a_declared_comparison_shows_the_methods_that_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], pictures: int
) -> None:
    """The baseline is always shown, and with nothing to compare there is no picture."""
    monkeypatch.setattr(declared, "COMPARISONS", {"test": lambda: COMPARISON})
    ended = record(tmp_path, COMPARISON, made_up(1.0, 0.3))
    results, searches = (read(QUICK.name, ended) for read in (csv_record.read_results, csv_record.read_searches))
    begun, partial = (
        {run for each in summarise(COMPARISON, ended).tuned if each.entrant.name in names for run in each.keys},
        tmp_path / "partial",
    )
    csv_record.merge_results(
        csv_record.folder_for(QUICK.name, partial), results[results["key"].isin(begun)][csv_record.RESULTS]
    )
    csv_record.merge_searches(partial, searches[searches["keys"].isin(begun)])
    (summary,) = recorded_summaries(QUICK.name, searches, partial)
    assert [each.entrant.name for each in summary.tuned] == ["simcse", *(name for name in names if name != "simcse")]
    page, block = comparison_page(summary), comparison_block("test", [summary])
    assert page.count("![") == pictures
    assert "mixcse" not in page + block
    assert all(f"| {name} |" in block for name in names)


def test_the_report_has_its_files_and_one_page_that_needs_no_other(tmp_path: Path) -> None:
    ended = record(tmp_path, COMPARISON, made_up(1.0, 0.3))
    assert any("comparison.md" in said for said in write_report(COMPARISON, ended, ended / "store"))
    page = (ended / "page.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "<table>" in page
    assert 'src="forest.png"' not in page
    assert (ended / "comparison.md").read_text() == report_text(summarise(COMPARISON, ended), ended, ended / "store")
    assert all((ended / f"{name}.png").stat().st_size > 5000 for name in ("curves", "forest"))


def test_the_papers_gains_are_those_of_their_methods_and_of_no_others(tmp_path: Path) -> None:
    found = summarise(COMPARISON, record(tmp_path, COMPARISON, made_up(5, 0.2)))
    gain = found.gain("compcse")
    assert gain
    assert gain.estimate
    assert paper_gains([found], "wiki-tiny") == {"CompCSE": gain}
    assert paper_gains([found], "wiki-medium") == {}
    budget = Budget(trials=3, searches=BUDGET.searches)
    elsewhere = replace(COMPARISON, name="after", transfers=COMPARISON, budget=budget)
    assert figures.comparison_figures(replace(found, comparison=elsewhere)).keys() == {"forest"}
    assert "curves.png" not in comparison_page(replace(found, comparison=elsewhere))
    begun = replace(found, gains={key: replace(each, estimate=None) for key, each in found.gains.items()})
    assert paper_gains([begun], "wiki-tiny") == {}
