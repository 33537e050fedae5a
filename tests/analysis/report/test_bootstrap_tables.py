"""Differences by other seeds and other pairs: closed forms of the toy study, real encoders on synthetic pairs."""

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr, trim_mean

from analysis import pair_bootstrap
from analysis.cells import join
from analysis.report.bootstrap_tables import estimates_block, two_row_differences
from analysis.stats.bootstrap import crossed_bootstrap
from cse_core.data.senteval import pairs
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.run import Pretrained
from experiments.execution import job
from experiments.execution.job import ExecutionSettings, Job, Scoring
from experiments.results import csv_record
from experiments.schema.hypotheses import Comparison
from experiments.schema.study import Row, Study
from experiments.studies import catalogue
from tests.support.toy_study import FIRST, toy_study
from tests.support.training import TINY

NOTHING = pd.DataFrame(columns=csv_record.PAIRS)


def cells(block: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines() if "|" in line]
    return {line[0].strip("| "): [cell.strip("| ") for cell in line[1:]] for line in lines[2:]}


def test_seeds_are_drawn_with_all_their_sets(wide: Study, lines: pd.DataFrame) -> None:
    found = cells(estimates_block(join(wide, lines), NOTHING))
    assert list(found) == [
        "Better \N{MINUS SIGN} SimCSE",
        "One seed \N{MINUS SIGN} SimCSE",
        "Absent \N{MINUS SIGN} SimCSE",
        "SimCSE \N{MINUS SIGN} Better",
    ]
    gaps = [100 * (FIRST["Better"][seed] - FIRST["SimCSE"][seed]) for seed in (42, 1, 2)]
    drawn = sorted(np.mean(one) for one in product(gaps, repeat=3))  # 27 equally likely draws of three seeds
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    seeds, middle, better, *rest = found["Better \N{MINUS SIGN} SimCSE"]
    assert seeds == f"+{np.mean(gaps):.2f} [+{low:.2f}, +{high:.2f}]"
    scores = {name: [100 * x + i for x in FIRST[name].values() for i in range(7)] for name in ("Better", "SimCSE")}
    assert middle.split()[0] == f"+{trim_mean(scores['Better'], 0.25) - trim_mean(scores['SimCSE'], 0.25):.2f}"
    assert better == "1.00 [1.00, 1.00]"
    assert rest == ["\N{EN DASH}"] * 2  # no pairs; and no column for seeds and pairs, as it would be empty
    assert found["SimCSE \N{MINUS SIGN} Better"][2] == "0.00 [0.00, 0.00]"


def test_one_seed_has_no_interval_and_a_row_without_runs_no_number(wide: Study, lines: pd.DataFrame) -> None:
    found = cells(estimates_block(join(wide, lines), NOTHING))
    expected = 100 * (0.55 - FIRST["SimCSE"][42])  # of the seed that both have
    assert found["One seed \N{MINUS SIGN} SimCSE"][0] == f"+{expected:.2f} \N{EN DASH}"
    assert found["Absent \N{MINUS SIGN} SimCSE"] == ["\N{EN DASH}"] * 5


def test_pairs_are_shown_from_the_record_with_holms_correction_over_the_table(wide: Study, lines: pd.DataFrame) -> None:
    by_label = {row.label: csv_record.score_source(row) for row in wide.rows if row.encoder is not None}
    shared = {"scale": "small", "second": by_label["SimCSE"], "column": "sts_avg", "seeds": "", "low": -1.0}
    shared |= {"high": 3.0}
    drawn = pd.DataFrame(
        [
            shared | {"first": by_label["Better"], "difference": 1.25, "p": 0.04, "resamples": 10_000},
            shared | {"first": by_label["One seed"], "difference": -0.5, "p": 0.01, "resamples": 10_000},
            shared | {"first": by_label["As it is"], "difference": 9.0, "p": 0.001, "resamples": 10_000},
        ]
    )
    block = estimates_block(join(wide, lines), drawn)
    found = cells(block)
    assert found["Better \N{MINUS SIGN} SimCSE"][-2:] == ["+1.25 [-1.00, +3.00]", "0.040"]
    assert found["One seed \N{MINUS SIGN} SimCSE"][-2:] == ["-0.50 [-1.00, +3.00]", "0.020"]
    assert "(10,000 draws)" in block


def test_the_line_with_most_seeds_of_both_rows_is_shown(wide: Study, lines: pd.DataFrame) -> None:
    better, simcse = (next(row for row in wide.rows if row.label == label) for label in ("Better", "SimCSE"))
    shared = {"scale": "small", "column": "sts_avg", "p": 0.04, "pairs": 9, "resamples": 10_000}
    shared |= {"seeds": "independent"}

    def line(first: tuple[int, ...], second: tuple[int, ...], value: float) -> dict[str, object]:
        sides = {
            "first": csv_record.score_source(better, first),
            "second": csv_record.score_source(simcse, second),
        }
        return shared | sides | {"difference": value, "low": value - 1, "high": value + 1}

    two, three, mixed = line((42, 1), (42, 1), 2.0), line((42, 1, 2), (42, 2), 3.0), line((42,), (42, 1), 9.0)
    elsewhere = [line((42, 1, 2), (42, 1, 2), 7.0) | {"column": "stsb"}, line((42, 1), (42, 1, 2), 8.0)]
    elsewhere[1]["second"] = str(elsewhere[1]["second"]).replace("cosine", "cosine mean")
    name = "Better \N{MINUS SIGN} SimCSE"
    both = cells(estimates_block(join(wide, lines), pd.DataFrame([two, three, mixed, *elsewhere])))[name]
    assert both[3:] == ["\N{EN DASH}", "\N{EN DASH}", "+3.00 [+2.00, +4.00] (3, 2)"]
    without = estimates_block(join(wide, lines), pd.DataFrame([mixed, *elsewhere]))
    assert cells(without)[name] == both[:-1]  # no column without an estimate
    assert "Seeds and pairs" not in without
    assert str(three["first"]).count("+") == 2


def test_planned_contrasts_of_two_rows_are_differences_too() -> None:
    (plan,) = catalogue.choose_studies(["plan-losses"], "small")
    differences = {(each.claim, each.better, each.worse) for each in two_row_differences(plan)}
    assert ("R1", "ListNet, 8 epochs", "SimCSE, 8 epochs") in differences
    assert len(differences) == len(plan.contrasts)
    for name in ("baselines", "ladder"):  # exploratory
        assert two_row_differences(*catalogue.choose_studies([name], "small")) == []


def as_is(label: str, pooling: str) -> Row:
    return Row(label=label, encoder=Pretrained("wiki-tiny"), scorer=Cosine(pooling), select="as is")


@pytest.fixture
def untrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Two poolings of one backbone on synthetic pairs, declared and recorded."""
    rows = (as_is("cls", "cls"), as_is("mean", "mean"))
    found = (Comparison("R1", "mean", "cls", "synthetic_dev"), Comparison("R1", "mean", "Absent", "synthetic_dev"))
    study = replace(toy_study(("synthetic_dev",)), rows=(*rows, *toy_study().rows[-1:]), comparisons=found)
    for row in rows:
        scoring = (Scoring("as is", row.scorer, ("synthetic_dev",)),)
        result = job.execute(
            Job(Pretrained("wiki-tiny"), "small", row.label, scoring), ExecutionSettings(tmp_path / "store")
        )
        csv_record.merge_lines("small", tmp_path, [result])
    monkeypatch.setattr(catalogue, "choose_studies", lambda names, scale: [study])
    return study


@pytest.mark.slow
def test_pairs_drawn_anew_are_lines_of_the_record_and_agree_with_its_scores(untrained: Study, tmp_path: Path) -> None:
    pair_bootstrap.main("toy", mlruns=tmp_path)
    (line,) = csv_record.read_pairs("small", tmp_path).to_dict("records")
    gold = np.asarray(pairs("synthetic_dev").table["score"][:])
    rho = {}
    for row in untrained.rows[:2]:
        outcomes = suite.evaluate(
            job.load_encoder(Pretrained("wiki-tiny"), "as is", ExecutionSettings(tmp_path)),
            row.scorer,
            ["synthetic_dev"],
        )
        rho[row.label] = spearmanr(outcomes["synthetic_dev"].arrays["pair_scores"], gold).statistic
    assert line["difference"] == pytest.approx(100 * (rho["mean"] - rho["cls"]), abs=1e-3)
    assert line["low"] < line["difference"] < line["high"]
    assert (line["pairs"], line["resamples"]) == (len(gold), 10_000)
    assert [line["first"][13:], line["second"][13:]] == ["as is cosine mean", "as is cosine cls"]
    text = (tmp_path / "pairs.csv").read_text()
    pair_bootstrap.main("toy", mlruns=tmp_path)
    assert (tmp_path / "pairs.csv").read_text() == text


@pytest.mark.slow
def test_every_seed_with_a_checkpoint_is_drawn_and_the_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Row(label=label, encoder=run, seeds=seeds, select="last") for label, run, seeds in (
        ("warm", replace(TINY, epochs=1), (1, 2, 3)), ("cold", replace(TINY, epochs=1, learning_rate=1e-5), (4, 5)),
    )]  # fmt: skip
    study = replace(
        toy_study(("synthetic_dev",)),
        rows=tuple(rows),
        comparisons=(Comparison("R1", "warm", "cold", "synthetic_dev"),),
    )
    monkeypatch.setattr(catalogue, "choose_studies", lambda names, scale: [study])
    execution = ExecutionSettings(tmp_path / "store")
    kept: dict[str, list[np.ndarray]] = {row.label: [] for row in rows}
    for row in rows:
        for run in row.runs():
            result = job.execute(
                Job(run, "small", row.label, (Scoring("last", row.scorer, ("synthetic_dev",)),)), execution
            )
            csv_record.merge_lines("small", tmp_path, [result])
            loaded = job.load_encoder(run, "last", execution)
            if run.seed != 2:
                outcomes = suite.evaluate(loaded, row.scorer, ["synthetic_dev"])
                kept[row.label].append(outcomes["synthetic_dev"].arrays["pair_scores"])
    shutil.rmtree(execution.store / rows[0].keys()[2])
    pair_bootstrap.main("toy", mlruns=tmp_path)
    assert "warm, seed 2" in capsys.readouterr().out.replace("\n", " ")
    one, several = csv_record.read_pairs("small", tmp_path).to_dict("records")
    assert (one["first"], one["second"]) == tuple(map(csv_record.score_source, rows))
    keys = [rows[0].keys()[1], rows[0].keys()[3]], list(rows[1].keys().values())
    assert (several["first"], several["second"]) == tuple(f"{'+'.join(each)} last cosine" for each in keys)
    gold = np.asarray(pairs("synthetic_dev").table["score"][:])
    expected = crossed_bootstrap([np.stack(kept["warm"])], [np.stack(kept["cold"])], [gold])
    assert expected.interval is not None
    assert expected.difference is not None
    shown = (several["difference"], several["low"], several["high"])
    assert shown == pytest.approx([100 * value for value in (expected.difference, *expected.interval)], abs=1e-3)


@pytest.mark.slow
def test_a_checkpoint_whose_scores_are_not_the_records_is_refused(untrained: Study, tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    lines = pd.read_csv(path, dtype=str, keep_default_na=False)
    at = (lines["metric"] == "spearman.all") & (lines["scorer"] == "cosine mean")
    lines.loc[at, "score"] = (lines.loc[at, "score"].astype(float) + 0.001).astype(str)
    lines.to_csv(path, index=False)
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match=r"mean, seed 0, has \d+\.\d+ in synthetic_dev; the record says"):
        pair_bootstrap.main("toy", mlruns=tmp_path)
    assert not (tmp_path / "pairs.csv").exists()


def test_a_study_that_compares_no_sets_is_refused() -> None:
    with pytest.raises(ValueError, match="toy: expected a study that compares rows on STS sets or parts of them"):
        pair_bootstrap.comparisons_of(replace(toy_study(), comparisons=(Comparison("R10", "Better", "SimCSE", "mr"),)))
