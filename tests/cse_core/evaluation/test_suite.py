"""Evaluations by name on the real sets, with encoders that cost nothing. Expected numbers are computed otherwise."""

import math
import random
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch

from cse_core.data import synthetic
from cse_core.data.senteval import STS_TEST, TRANSFER, labelled_sentences, pairs
from cse_core.evaluation import suite, tasks, transfer
from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Scorer, Whitened
from cse_core.evaluation.suite import GROUPS, PHRASES, RECORDED, TASKS, evaluate, expand_names
from cse_core.evaluation.transfer import Accuracy
from cse_core.functional.contrastive import pair_cosines
from cse_core.metrics import geometry, neighbours, ranking
from cse_core.metrics.correlation import correlations
from cse_core.models.embedding_cache import CachedEncoder
from tests.support.encoders import Recording, wiki_tiny
from tests.support.outcomes import CORPUS, RANKED, columns, cosines, exact, scored

FAST_GEOMETRY = ("stsb_dev_geometry", "stsb_dissimilar", "stsb_between", "stsb_similar", "phrases")


@pytest.fixture
def classified(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple]:
    """What reaches the classifiers, by task and setting. They return the same accuracies for every task."""
    seen: dict[str, tuple] = {}

    def spy(task: str, vectors: Mapping, labels: Mapping, setting: str, **others: Any) -> Accuracy:
        others["progress"](1, 2)
        seen[f"{task} {setting}"] = (vectors, labels)
        return Accuracy(0.9, 0.8, 0.7 if task == "mrpc" else None)

    monkeypatch.setattr(transfer, "accuracy", spy)
    return seen


@pytest.fixture(scope="module")
def memory() -> CachedEncoder:
    return CachedEncoder(wiki_tiny())


@pytest.mark.slow
def test_the_task_that_contributing_shows_is_evaluated(monkeypatch: pytest.MonkeyPatch, memory: CachedEncoder) -> None:
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text().partition("## Add an evaluation\n")[2]
    names = dict(vars(tasks))
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    monkeypatch.setitem(TASKS, "mean", names["MeanScore"](("synthetic",)))
    found = evaluate(memory, Cosine(), ["mean"]).outcomes["mean"]
    table = pairs("synthetic").table
    assert found.rows == len(table)
    first, second = (memory.encode(list(table[side])) for side in ("sentence1", "sentence2"))
    mean = float(torch.cosine_similarity(first, second).mean())
    assert found.metrics == {"mean_score": pytest.approx(mean, abs=1e-6)}


class Constant(Recording):
    def vector(self, sentence: str) -> list[float]:
        return [0.5, -0.25, 0.125]


def test_groups_and_names_become_tasks_each_once_and_in_order() -> None:
    assert expand_names(["sts"]) == ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr") == STS_TEST
    assert expand_names(["stsb", "sts", "mr"]) == ("stsb", "sts12", "sts13", "sts14", "sts15", "sts16", "sickr", "mr")
    assert expand_names(["stsb_similar", "geometry"])[:3] == ("stsb_similar", "stsb_dev_geometry", "stsb_dissimilar")
    assert expand_names(["ranking_test", "neighbours"]) == ("stsb_test_groups", "sickr_test_groups", "stsb_neighbours")
    assert expand_names([]) == ()
    assert {name for group in GROUPS.values() for name in group} <= set(TASKS)
    sizes = dict.fromkeys(("sts", "sts_disjoint", "transfer", "transfer_fast", "ranking"), 7)
    assert {name: len(GROUPS[name]) for name in sizes} == sizes
    assert not set(GROUPS) & set(TASKS) - {"synthetic"}


def test_an_unknown_name_is_met_with_the_known_ones() -> None:
    with pytest.raises(ValueError) as caught:
        expand_names(["sts", "sts11", "stsb", "mrr"])
    assert str(caught.value).startswith("unknown task 'sts11' (did you mean sts16 or ")
    assert len(str(caught.value)) < 100  # and not all ninety others
    fake = Recording()
    with pytest.raises(ValueError, match="unknown task 'sts99'"):
        evaluate(fake, Cosine(), ["synthetic", "sts99"])
    assert fake.calls == []
    assert (suite.version("stsb"), suite.version("mr_fast")) == (TASKS["stsb"].version, TASKS["mr"].version)
    with pytest.raises(ValueError, match="unknown task 'sts99'"):
        suite.version("sts99")


@pytest.mark.parametrize(
    "groups",
    [
        ("stsb", "sts13_disjoint", "dev", "stsb_test_groups", "cr", "mrpc_fast", *FAST_GEOMETRY),
        pytest.param((*GROUPS.keys() - {"neighbours", "geometry"}, *FAST_GEOMETRY), marks=pytest.mark.nightly),
    ],
    ids=["some", "all"],
)
@pytest.mark.slow
def test_everything_asked_for_is_embedded_once_recorded_tasks_first(
    groups: tuple[str, ...], real_data: Path, classified: dict[str, tuple]
) -> None:
    fake, reported = Recording(), []
    names = expand_names(groups)
    found = evaluate(fake, Cosine(), names, data=real_data, progress=lambda *news: reported.append(news))
    assert tuple(found.outcomes) == names
    assert found.failures == {}
    read = {name: pairs(name, real_data) for t in names for name in TASKS[t].pair_sets}
    read |= {name: labelled_sentences(name, real_data) for t in names for name in TASKS[t].labelled_sets}
    others = [name for t in names for name in TASKS[t].read_sets]
    only_read = {name: (labelled_sentences if name in TRANSFER else pairs)(name, real_data) for name in others}
    assert {name: e.files for name, e in found.datasets.items()} == {
        name: e.files for name, e in (only_read | read).items()
    }
    texts = {s for e in read.values() for side in ("sentence1", "sentence2") for s in e.table[side][:]}
    texts |= {s for t in names for s in TASKS[t].sentences}
    recorded = [read[s] for t in names if t in RECORDED for s in (*TASKS[t].pair_sets, *TASKS[t].labelled_sets)]
    of_recorded = {s for e in recorded for side in ("sentence1", "sentence2") for s in e.table[side][:]}
    of_recorded |= {s for t in names if t in RECORDED for s in TASKS[t].sentences}
    assert [set(call) for call in fake.calls] == [of_recorded, texts - of_recorded]  # whatever else is asked for
    assert sorted(fake.passed) == sorted(texts)
    assert list(classified) == [name.replace("_", " ") if "_" in name else f"{name} test" for name, _, _ in reported]
    assert reported == [(name, 1, 2) for name in names if TASKS[name].labelled_sets]
    assert all(math.isfinite(value) for outcome in found.outcomes.values() for value in outcome.metrics.values())
    assert {name: outcome.warnings for name, outcome in found.outcomes.items() if outcome.warnings} == {}


@pytest.mark.parametrize("task", TRANSFER)
@pytest.mark.slow
def test_classifiers_get_vectors_and_labels_in_sentevals_order(
    task: str, real_data: Path, classified: dict[str, tuple]
) -> None:
    fake = Recording()
    found = evaluate(fake, Cosine(), [task], data=real_data, progress=lambda *_: None)[task]
    ((setting, (vectors, labels)),) = classified.items()
    table, rows = labelled_sentences(task, real_data).table, dict[str, list]()
    for split, *row in zip(*(table[c][:] for c in ("split", "sentence1", "sentence2", "label")), strict=True):
        rows.setdefault(split, []).append(row)
    assert setting == f"{task} test"
    assert vectors.keys() == labels.keys() == rows.keys()
    for split, expected in rows.items():
        expected.sort(key=lambda r: ([len(side.split()) for side in r[:2]], r[2]))
        x, y = (fake.encode([r[side] for r in expected]).numpy() for side in (0, 1))
        features = np.concatenate([np.abs(x - y), x * y], axis=1) if task == "mrpc" else x
        np.testing.assert_array_equal(vectors[split].numpy(), features)
        assert labels[split].tolist() == [r[2] for r in expected]
    assert found.rows == sum(map(len, rows.values()))
    assert found.metrics == {"acc": 0.9, "devacc": 0.8} | ({"f1": 0.7} if task == "mrpc" else {})
    if task == "cr":  # has four empty ones
        assert [row.equal(fake.encode([""])[0]) for row in vectors["all"][:5]] == [True] * 4 + [False]


@pytest.mark.slow
def test_the_ranking_task_merges_the_splits_unless_asked_for_the_test_set(real_data: Path) -> None:
    found = scored(["stsb_groups", "stsb_test_groups"], real_data)
    assert (found["stsb_groups"].rows, found["stsb_test_groups"].rows) == (116, 19)
    assert TASKS["sickr_groups"].pair_sets == ("sickr_train", "sickr_dev", "sickr")
    for name, own in {"stsb": ("stsb_train", "stsb_dev", "stsb"), "stsb_test": ("stsb",)}.items():
        first, second, gold = columns(*own, data=real_data)
        expected = ranking.summary(exact(first, second), gold, list(zip(first, second, strict=True)))
        assert found[f"{name}_groups"].rows == expected.pop("groups")
        assert found[f"{name}_groups"].metrics == pytest.approx(expected, abs=1e-12)


def test_the_geometry_is_that_of_the_dev_pairs_and_keeps_their_cosines(real_data: Path) -> None:
    found = scored(["stsb_dev_geometry"], real_data)["stsb_dev_geometry"]
    first, second, gold = columns("stsb_dev", data=real_data)
    x, y = (Recording().encode(side) for side in (first, second))
    assert found.metrics == pytest.approx(geometry.summary(x, y, gold, first, second), abs=1e-12)
    assert (found.rows, len(found.metrics)) == (1500, 9)
    assert {name: (a.dtype, a.shape) for name, a in found.arrays.items()} == dict.fromkeys(
        ("cosines", "gold"), (np.dtype(np.float32), (1500,))
    )
    np.testing.assert_allclose(found.arrays["cosines"], pair_cosines(x, y)[0], atol=1e-6)
    np.testing.assert_allclose(found.arrays["gold"], gold, atol=1e-6)
    assert found.metrics["cosine.4-5"] == pytest.approx(found.arrays["cosines"][gold > 4].mean(), abs=1e-6)


def test_the_phrases_have_a_cosine_for_every_two() -> None:
    found = scored(["phrases"])["phrases"]
    matrix = found.arrays["cosines"]
    np.testing.assert_allclose(np.diag(matrix), 1, atol=1e-6)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    rows, others = zip(*[(a, b) for a in PHRASES for b in PHRASES], strict=True)
    np.testing.assert_allclose(matrix.ravel(), cosines(rows, others), atol=1e-6)
    assert (found.metrics, found.rows) == ({"cosine.mean": pytest.approx((matrix.sum() - 6) / 30, abs=1e-6)}, 6)


@pytest.mark.slow
def test_shared_neighbours_are_counted_in_the_corpus_of_the_ranks(real_data: Path) -> None:
    found = scored(["neighbours"], real_data, scorer=RANKED)["stsb_neighbours"]
    lines = synthetic.sentences(512)
    drawn = [lines[i] for i in random.Random(42).sample(range(512), 400)]
    first, second, gold = columns("stsb", data=real_data)
    corpus, x, y = (Recording().encode(side) for side in (drawn, first, second))
    assert found.arrays["shared"].tolist() == neighbours.overlap(x, y, corpus).tolist()
    units = corpus / corpus.norm(dim=1, keepdim=True)
    for i in range(20):
        nearest = [set((units @ side[i]).argsort(descending=True)[:100].tolist()) for side in (x, y)]
        assert found.arrays["shared"][i] == len(nearest[0] & nearest[1])
    np.testing.assert_allclose(found.arrays["cosines"], cosines(first, second), atol=1e-12)
    scores = RANKED.pair_scores(Recording(), {"stsb": (first, second)})["stsb"].scores
    np.testing.assert_allclose([found.arrays[name] for name in ("pair_scores", "gold")], [scores, gold], atol=1e-6)
    trend = neighbours.gain_trend(neighbours.gains(cosines(first, second), scores, gold, found.arrays["shared"]))
    assert found.metrics == pytest.approx({"shared": found.arrays["shared"].mean(), "gain_trend": trend})


def test_a_task_that_the_scorer_has_nothing_for_is_refused(real_data: Path, classified: dict[str, tuple]) -> None:
    with pytest.raises(ValueError, match=r"stsb_neighbours: .* corpus, which the scorer cosine lacks"):
        scored(["neighbours"], real_data)
    with pytest.raises(ValueError, match=r"cr: a classifier requires .* own vectors, got the scorer rank 0.1 of 400"):
        scored(["cr"], real_data, scorer=RANKED)
    assert classified == {}


@pytest.mark.parametrize("weight", [0.1, 1.0])
@pytest.mark.parametrize("normalise", [True, False])
def test_rank_vectors_have_the_rank_scores(weight: float, normalise: bool, cache: Path) -> None:
    scorer = Ranked(corpus=CORPUS, size=60, weight=weight, normalise=normalise)
    texts = [f"sentence {i}" for i in range(40)]
    x, y = scorer.vectors(Recording(), texts).double().split(20)
    scores = scorer.pair_scores(Recording(), {"all": (texts[:20], texts[20:])})["all"].scores
    np.testing.assert_allclose((x * y).sum(1), scores, atol=1e-6)
    np.testing.assert_allclose(x.norm(dim=1), 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("scorer", [Whitened(), Whitened(pooling="mean", dims=9, corpus=CORPUS), Flowed(corpus=CORPUS)])
def test_fitted_vectors_have_the_fitted_scores(scorer: Scorer, memory: CachedEncoder) -> None:
    table = pairs("synthetic_dev").table
    first, second = table["sentence1"][:], table["sentence2"][:]
    scores = scorer.pair_scores(memory, {"synthetic_dev": (first, second)})["synthetic_dev"].scores
    x, y = scorer.vectors(memory, [*first, *second]).double().split(len(first))
    np.testing.assert_allclose(torch.cosine_similarity(x, y), scores, atol=1e-5)


@pytest.mark.slow
def test_a_collapsed_encoder_is_refused_by_name(real_data: Path, classified: dict[str, tuple]) -> None:
    with pytest.raises(ValueError, match=r"^stsb by cosine: spearman.all, .*undefined \(are all its scores equal\?\)"):
        scored(["stsb"], real_data, Constant())
    for task, count in (("cr", "3,775"), ("mrpc_fast", "5,801")):
        with pytest.raises(ValueError, match=f"^{task}: all {count} vectors are equal"):
            scored([task], real_data, Constant())
    assert classified == {}
    assert scored(["stsb_groups"], real_data, Constant())["stsb_groups"].metrics["kendall"] == 0


def test_an_undefined_pair_counts_as_zero_and_is_reported(real_data: Path) -> None:
    first, second, gold = columns("stsb", data=real_data)
    table, bad = pairs("stsb", real_data).table, first[700]
    rows = [row for row, sides in enumerate(zip(first, second, strict=True)) if bad in sides]
    found = scored(["stsb", "stsb_test_groups"], real_data, Recording({bad: [0.0] * 8}))
    scores = exact(first, second)
    scores[rows] = 0
    assert found["stsb"].metrics == pytest.approx(correlations(scores, gold, table["part"][:]), abs=1e-12)
    for name, outcome in found.items():
        assert outcome.warnings == (f"{name}: {len(rows)} pairs without a defined cosine count as 0",)


@pytest.mark.parametrize(
    ("task", "source", "row", "side"),
    [
        ("cr", "cr", 2000, "sentence1"),
        ("mrpc_fast", "mrpc", 5000, "sentence2"),
        ("stsb_dev_geometry", "stsb_dev", 1200, "sentence2"),
        ("stsb_dev_projection", "stsb_dev", 3, "sentence1"),
        ("phrases", "", 4, ""),
    ],
)
@pytest.mark.slow
def test_a_vector_that_is_not_finite_is_refused_by_sentence(
    task: str, source: str, row: int, side: str, real_data: Path, classified: dict[str, tuple]
) -> None:
    read = labelled_sentences if source in TRANSFER else pairs
    bad = read(source, real_data).table[row][side] if source else PHRASES[row]
    with pytest.raises(ValueError) as caught:
        scored([task], real_data, Recording({bad: [math.inf] + [0.0] * 7}))
    assert str(caught.value) == f"{task} by cosine: the vector of {bad!r} is not finite"
    assert classified == {}


@pytest.mark.parametrize("scorer", [Cosine(), Ranked(corpus=CORPUS, size=4)], ids=str)
def test_other_tasks_are_scored_although_the_vectors_of_one_are_not_finite(scorer: Scorer) -> None:
    """Both among the tasks whose texts are embedded first, and among those embedded by ids."""
    of_pairs = pairs("synthetic_dev").table[7]["sentence2"]
    encoder = Recording({text: [math.nan] * 8 for text in (of_pairs, PHRASES[2])})
    found = evaluate(encoder, scorer, ["synthetic", "synthetic_dev", "phrases"])
    assert (found.failures.keys(), found.outcomes.keys()) == ({"synthetic_dev", "phrases"}, {"synthetic"})
    assert found.datasets.keys() >= {"synthetic", "synthetic_dev"}
    assert found.failures["phrases"] == f"phrases by {scorer}: the vector of {PHRASES[2]!r} is not finite"
    assert repr(of_pairs) in found.failures["synthetic_dev"]
    whole = evaluate(Recording(), scorer, ["synthetic", "synthetic_dev", "phrases"])
    assert found.outcomes["synthetic"].metrics == whole.outcomes["synthetic"].metrics


def test_vectors_may_have_one_dimension_but_not_none(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, gold = columns("stsb", data=real_data)
    signs = [[np.sign(Recording().vector(s)[0]) for s in side] for side in (first, second)]
    expected = correlations(np.prod(signs, axis=0), gold, ["all"] * len(gold))
    real = Recording.vector
    monkeypatch.setattr(Recording, "vector", lambda self, sentence: real(self, sentence)[:1])
    assert scored(["stsb"], real_data)["stsb"].metrics == pytest.approx(expected, abs=1e-9)
    monkeypatch.setattr(Recording, "vector", lambda self, sentence: 1.0)
    count = len({*first, *second})
    with pytest.raises(ValueError, match=rf"recording: expected {count:,} vectors, got the shape \({count},\)"):
        scored(["stsb"], real_data)


@pytest.mark.parametrize(("task", "file"), [("cr", "CR/custrev.pos"), ("stsb_groups", "STS/STSBenchmark/sts-dev.csv")])
def test_a_file_cut_short_costs_nothing(task: str, file: str, real_data: Path, tmp_path: Path, cache: Path) -> None:
    for name in ("CR", "STS/STSBenchmark"):
        copytree(real_data / "senteval/downstream" / name, tmp_path / "data" / name)
    path = tmp_path / "data" / file
    fake, names = Recording(), ("stsb", "phrases", task)
    evaluate(fake, Cosine(), names[:2], data=tmp_path / "data")
    assert len(fake.calls) == 1
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2].rpartition(b"\n")[0] + b"\n")
    with pytest.raises(ValueError, match=rf"{file}: [\d,]+ (rows of class 1|pairs), expected"):
        evaluate(fake, Cosine(), names, data=tmp_path / "data")
    assert len(fake.calls) == 1
