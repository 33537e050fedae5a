"""Every column shows the tasks, the metric and the unit that its name states."""

from collections.abc import Mapping

import pandas as pd
import pytest

from analysis.cells import join
from cse_core.evaluation import suite
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.run import Corpus, Pretrained, Run
from experiments.results import csv_record
from experiments.schema.columns import COLUMNS, EXAMPLE_COLUMNS
from experiments.schema.study import Row, Scale, Study
from tests.support.toy_study import toy_line

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
SPACE = ("stsb_dev_geometry",)


def of(tasks: tuple[str, ...], suffix: str) -> tuple[str, ...]:
    return tuple(task + suffix for task in tasks)


# By column: its tasks, the metric that it shows ("ROW": the row's) and the factor of its unit.
EXPECTED: Mapping[str, tuple[tuple[str, ...], str, float]] = {
    "sts_avg": (STS, "spearman.all", 100),
    "sts_avg_mean": (STS, "spearman.mean", 100),
    "sts_avg_wmean": (STS, "spearman.wmean", 100),
    "sts_disjoint_avg": (of(STS, "_disjoint"), "spearman.all", 100),
    "transfer_avg": (TRANSFER, "acc", 100),
    "transfer_fast_avg": (of(TRANSFER, "_fast"), "acc", 100),
    "groups_avg": (of(STS, "_groups"), "ROW", 100),
    "kcc_avg": (of(STS, "_groups"), "kendall", 100),
    "ndcg_avg": (of(STS, "_groups"), "ndcg.linear", 100),
    "alignment": (SPACE, "alignment", 1),
    "uniformity": (SPACE, "uniformity", 1),
    "length_shortcut": (SPACE, "length_shortcut", 1),
    **{
        f"{sample}_{name}": ((f"{sample}_{task}",), metric, 1)
        for sample in ("stsb_dev", "stsb_sample")
        for name, task, metric in (
            ("projection", "projection", "trustworthiness"),
            ("uniformity", "density", "uniformity"),
            ("pair_mean", "density", "cosine.mean"),
            ("pair_sd", "density", "cosine.sd"),
        )
    },
    "start_weights": (("stsb_dev_start",), "weights", 100),
    "start_vectors": (("stsb_dev_start",), "vectors", 1),
    **{f"spread_{kind}": (("stsb_dev_positives",), f"spread.{kind}", 1) for kind in ("dropout", "whitened", "both")},
    "imbalance": (("stsb_dev_halves",), "imbalance", 100),
    "left_nearer": (("stsb_dev_halves",), "left", 100),
    "stsb_similar": (("stsb_similar",), "spearman.all", 100),
    "shared_neighbours": (("stsb_neighbours",), "shared", 1),
    "gain_trend": (("stsb_neighbours",), "gain_trend", 1),
    **{f"{task}_sizes": ((f"{task}_sizes",), "ROW", 1) for task in STS + TRANSFER},
    **{f"{task}_shared": ((f"{task}_gold",), "ROW", 1) for task in STS},
    **{
        f"examples_{query}.{i}": ((f"examples_{query}",), f"cosine.{i}", 1)
        for query, count in {"eggs": 5, "broccoli": 7, "closed_path": 5, "voltage": 5}.items()
        for i in range(1, count + 1)
    },
    # Tasks that are columns by their own names.
    **{task: ((task,), "spearman.all", 100) for task in (*STS, "stsb_dev")},
    **{f"{task}_groups": ((f"{task}_groups",), "ROW", 100) for task in STS},
    **{task: ((task,), "acc", 100) for task in TRANSFER},
    **{f"{task}_fast": ((f"{task}_fast",), "acc", 100) for task in TRANSFER},
}
# A fact of the run or of its curves, in the column's unit.
FACTS = {
    "batch_size": 96.0,
    "epochs": 3.0,
    "learning_rate": 2e-5,
    "tau1": 0.07,
    "tau2": 0.03,
    "tau3": 0.011,
    "time_min": 9.0,
    "time_per_epoch_min": 3.0,
    "near_best": 30.0,
    "below_best": 5.0,
    "last_contrastive": 0.25,
    "last_rank": 0.75,
    "rank_larger": 56.0,  # 10 of 10 steps, 15 of 30, 3 of 10
    "last_rank_larger": 30.0,
    "first_uniformity": -1.5,
    "last_uniformity": -2.25,
    "last_alignment": 0.125,
}
TINY = Pretrained("wiki-tiny")
RUN = Run(
    method=RankCSE(teachers=(Teacher(TINY),), temperature=0.07, student_temperature=0.03, teacher_temperature=0.011),
    backbone=TINY,
    corpus=Corpus("synthetic", 100),
    batch_size=96,
    epochs=3,
    learning_rate=2e-5,
)
CURVES = {
    "dev/stsb_dev": {10: 0.5, 20: 0.70, 30: 0.80, 40: 0.60},
    "loss/contrastive": {10: 3.0, 20: 0.25},
    "loss/rank": {10: 2.0, 20: 0.75},
    "loss/share_rank_larger": {10: 1.0, 40: 0.5, 50: 0.3},
    "uniformity/stsb_dev": {10: -1.5, 20: -3.0, 30: -2.25},
    "alignment/stsb_dev": {10: 0.5, 20: 0.125},
}


def metrics_of(task: str) -> tuple[str, ...]:
    return tuple(suite.TASKS[task].metrics)


def table(
    names: tuple[str, ...], of_row: str = "", **study: str
) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """What columns show, and the record, in which every metric of every task has a different value."""
    row = Row(label="a", encoder=RUN, seeds=(42,), metric=of_row)
    tasks = list(dict.fromkeys(task for name in names if name in EXPECTED for task in EXPECTED[name][0]))
    cells = [(task, name) for task in tasks or ["sts12"] for name in metrics_of(task)]
    scores = {cell: (i + 1) ** 1.5 / 1000 for i, cell in enumerate(cells)}
    lines = [
        toy_line(RUN.key, task, score) | {"metric": name, "seconds": 540.0} for (task, name), score in scores.items()
    ]
    curves = [("small", RUN.key, name, at, value) for name, points in CURVES.items() for at, value in points.items()]
    scale = Scale(name="small", title="", backbones={}, corpus=RUN.corpus, seeds=(42,))
    shown = Study(name="x", source="", question="", scale=scale, rows=(row,), columns=names, **study)  # ty: ignore
    record = (pd.DataFrame(lines, columns=csv_record.RESULTS), pd.DataFrame(curves, columns=csv_record.CURVES))
    found = join(shown, *record)
    return {name: found.cells["a", name].scores.get(42, float("nan")) for name in names}, scores


def test_every_declared_column_is_tested_here() -> None:
    assert COLUMNS.keys() <= EXPECTED.keys() | FACTS.keys()
    examples = {name for names in EXAMPLE_COLUMNS.values() for name in names}
    assert examples == {name for name in EXPECTED if name.startswith("examples_")}


@pytest.mark.parametrize("name", [name for name, (_, metric, _) in EXPECTED.items() if metric != "ROW"])
@pytest.mark.slow
def test_a_column_shows_its_tasks_by_its_metric_in_its_unit(name: str) -> None:
    tasks, metric, factor = EXPECTED[name]
    shown, scores = table((name,))
    values = [scores[task, metric] for task in tasks]
    assert shown[name] == pytest.approx(factor * sum(values) / len(values), rel=1e-12)
    others = {factor * sum(scores[t, m] for t in tasks) / len(tasks) for m in metrics_of(tasks[0]) if m != metric}
    assert all(other != pytest.approx(shown[name], rel=1e-6) for other in others)


@pytest.mark.parametrize("name", [name for name, (_, metric, _) in EXPECTED.items() if metric == "ROW"])
@pytest.mark.slow
def test_a_column_without_a_metric_shows_the_rows(name: str) -> None:
    tasks, _, factor = EXPECTED[name]
    seen = set()
    for metric in metrics_of(tasks[0]):
        shown, scores = table((name,), metric)
        assert shown[name] == pytest.approx(factor * sum(scores[t, metric] for t in tasks) / len(tasks), rel=1e-12)
        seen.add(shown[name])
    assert len(seen) == len(metrics_of(tasks[0]))
    if name.endswith("_groups"):
        assert len(seen) > 1


def test_transfer_columns_show_the_studys_accuracy_and_pairs_its_correlation() -> None:
    names = ("mr", "transfer_avg", "mr_fast", "transfer_fast_avg", "stsb", "sts_avg")
    shown, scores = table(names, transfer_metric="devacc", metric="spearman.mean")
    for name in names:
        tasks, metric = EXPECTED[name][0], "devacc" if name in names[:4] else "spearman.mean"
        assert shown[name] == pytest.approx(100 * sum(scores[task, metric] for task in tasks) / len(tasks))


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_the_runs_own(name: str) -> None:
    assert table((name,))[0][name] == pytest.approx(FACTS[name])


def test_a_metric_of_a_row_does_not_reach_a_column_that_has_its_own() -> None:
    for name in ("kcc_avg", "ndcg_avg", "sts_avg_mean", "alignment"):
        tasks, metric, factor = EXPECTED[name]
        shown, scores = table((name,), "pearson.all")
        assert shown[name] == pytest.approx(factor * sum(scores[t, metric] for t in tasks) / len(tasks))
