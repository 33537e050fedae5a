"""Lines of pairs.csv from real encoders: on synthetic pairs, on a part of a real set, and with paired seeds."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from analysis import pair_bootstrap
from analysis.stats.bootstrap import crossed_bootstrap
from cse_core.data.senteval import pairs
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.run import Pretrained, Run
from experiments.execution import job
from experiments.execution.job import ExecutionSettings, Job, Scoring
from experiments.results import csv_record
from experiments.schema.contrasts import Contrast
from experiments.schema.study import Row, Study
from experiments.studies import catalogue
from tests.support.encoders import wiki_tiny
from tests.support.toy_study import toy_study
from tests.support.training import TINY


def compared(better: str, worse: str, column: str) -> Contrast:
    return Contrast(claim="R1", plus=(better,), minus=(worse,), column=column, paired=True)


def as_is(label: str, pooling: str) -> Row:
    return Row(label=label, encoder=Pretrained("wiki-tiny"), scorer=Cosine(pooling), select="as is")


def score(row: Row, encoder: Run | Pretrained, task: str, folder: Path, data: Path | None = None) -> None:
    """Score a row's encoder on a task, with a store in the folder, and record it there."""
    scored = Job(encoder, "small", row.label, (Scoring(row.select, row.scorer, (task,)),))
    csv_record.merge_lines("small", folder, [job.execute(scored, ExecutionSettings(folder / "store", data))])


@pytest.fixture
def untrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Two poolings of one backbone on synthetic pairs, declared and recorded."""
    rows = (as_is("cls", "cls"), as_is("mean", "mean"))
    found = (compared("mean", "cls", "synthetic_dev"), compared("mean", "Absent", "synthetic_dev"))
    study = replace(toy_study(("synthetic_dev",)), rows=(*rows, *toy_study().rows[-1:]), contrasts=found)
    for row in rows:
        score(row, Pretrained("wiki-tiny"), "synthetic_dev", tmp_path)
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
    contrasts = (compared("warm", "cold", "synthetic_dev"),)
    study = replace(toy_study(("synthetic_dev",)), rows=tuple(rows), contrasts=contrasts)
    monkeypatch.setattr(catalogue, "choose_studies", lambda names, scale: [study])
    execution = ExecutionSettings(tmp_path / "store")
    kept: dict[str, list[np.ndarray]] = {row.label: [] for row in rows}
    for row in rows:
        for run in row.runs():
            score(row, run, "synthetic_dev", tmp_path)
            loaded = job.load_encoder(run, "last", execution)
            if run.seed != 2:
                outcomes = suite.evaluate(loaded, row.scorer, ["synthetic_dev"])
                kept[row.label].append(outcomes["synthetic_dev"].arrays["pair_scores"])
    shutil.rmtree(execution.store / rows[0].keys()[2])
    shutil.rmtree(execution.store / rows[0].keys()[3] / "pair_scores")  # so that its checkpoint is scored again
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
def test_a_part_of_a_set_is_drawn_from_its_own_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_data: Path
) -> None:
    rows = (as_is("cls", "cls"), as_is("mean", "mean"))
    study = replace(toy_study(("stsb_similar",)), rows=rows, contrasts=(compared("mean", "cls", "stsb_similar"),))
    monkeypatch.setattr(catalogue, "choose_studies", lambda names, scale: [study])
    for row in rows:
        score(row, Pretrained("wiki-tiny"), "stsb_similar", tmp_path, real_data)
    pair_bootstrap.main("toy", mlruns=tmp_path, data=real_data)
    (line,) = csv_record.read_pairs("small", tmp_path).to_dict("records")
    table = pairs("stsb", real_data).table
    gold = np.asarray(table["score"][:])
    similar = gold / 5 >= 0.67
    cosines = []
    for pooling in ("cls", "mean"):
        encoder = wiki_tiny(pooling=pooling)
        x, y = (encoder.encode(list(table[side][:])).double().numpy()[similar] for side in ("sentence1", "sentence2"))
        cosines.append((x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1))

    def difference(rows: np.ndarray) -> float:
        cls, mean = (spearmanr(of_rows[rows], gold[similar][rows]).statistic for of_rows in cosines)
        return 100 * (mean - cls)

    n, random = int(similar.sum()), np.random.default_rng(7)
    assert line["pairs"] == n == 534
    assert line["difference"] == pytest.approx(difference(np.arange(n)), abs=1e-2)
    low, high = np.quantile([difference(random.integers(0, n, n)) for _ in range(1000)], [0.025, 0.975])
    assert (line["low"], line["high"]) == pytest.approx((low, high), abs=0.15 * (high - low))


def test_paired_seeds_are_those_that_both_rows_have() -> None:
    gold = np.asarray(pairs("synthetic_dev").table["score"][:])
    random = np.random.default_rng(0)
    rows = {row.label: row for row in toy_study().rows}
    drawn = {seed: {"synthetic_dev": gold + random.normal(size=len(gold))} for seed in (42, 1, 2)}
    other = {seed: {"synthetic_dev": gold + 2 * random.normal(size=len(gold))} for seed in (1, 42)}
    sides = (pair_bootstrap.Side(rows["Better"], drawn), pair_bootstrap.Side(rows["SimCSE"], other))
    _, paired = pair_bootstrap.pairs_lines("synthetic_dev", sides, "paired", None)
    _, independent = pair_bootstrap.pairs_lines("synthetic_dev", sides, "independent", None)
    assert [paired["first"], paired["second"]] == [csv_record.score_source(side.row, (42, 1)) for side in sides]
    assert independent["first"] == csv_record.score_source(rows["Better"], (42, 1, 2))
    assert (paired["seeds"], independent["seeds"]) == ("paired", "independent")
    a, b = (np.stack([of_seed[seed]["synthetic_dev"] for seed in (42, 1)]) for of_seed in (drawn, other))
    expected = crossed_bootstrap([a], [b], [gold], paired=True)
    assert expected.interval is not None
    assert (paired["low"], paired["high"]) == pytest.approx([100 * end for end in expected.interval], abs=1e-3)


@pytest.mark.slow
def test_a_checkpoint_whose_scores_are_not_the_records_is_refused(untrained: Study, tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    lines = pd.read_csv(path, dtype=str, keep_default_na=False)
    at = (lines["metric"] == "spearman.all") & (lines["scorer"] == "cosine mean")
    lines.loc[at, "score"] = (lines.loc[at, "score"].astype(float) + 0.001).astype(str)
    lines.to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"mean, seed 0, has \d+\.\d+ in synthetic_dev; the record says"):
        pair_bootstrap.main("toy", mlruns=tmp_path)
    assert not (tmp_path / "pairs.csv").exists()


def test_differences_of_some_claims_are_drawn_without_the_others() -> None:
    (plan,) = catalogue.choose_studies(["plan-scoring"], "small")
    every = pair_bootstrap.differences_of(plan)
    assert len(every) == len(plan.contrasts)
    assert pair_bootstrap.chosen_by_claim(every, ()) == every
    assert [each.column for each in pair_bootstrap.chosen_by_claim(every, ["E7", "E1"])] == ["stsb_similar", "sts_avg"]
    with pytest.raises(ValueError, match="unknown claim 'E3'"):
        pair_bootstrap.chosen_by_claim(every, ["E3"])


def test_a_study_that_compares_no_sets_is_refused() -> None:
    with pytest.raises(ValueError, match="toy: expected a study that compares rows on STS sets or parts of them"):
        pair_bootstrap.differences_of(replace(toy_study(), contrasts=(compared("Better", "SimCSE", "mr"),)))


def test_stored_scores_are_read_of_the_rows_own_scorer(tmp_path: Path) -> None:
    row = Row(label="a", encoder=TINY, seeds=(TINY.seed,), select="last", scorer=Cosine("mean"))
    folder = tmp_path / row.keys()[TINY.seed] / "pair_scores"
    folder.mkdir(parents=True)
    np.savez(folder / "last cosine.npz", synthetic_dev=np.zeros(4))
    np.savez(folder / "last cosine mean.npz", synthetic_dev=np.arange(4.0))
    places = {"part": pair_bootstrap.TaskPairs("synthetic_dev", np.array([3, 1]), np.zeros(2))}
    found = pair_bootstrap.score_pairs(row, TINY.seed, TINY, places, ExecutionSettings(tmp_path))
    assert found["part"].tolist() == [3.0, 1.0]
