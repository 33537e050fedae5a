"""Declared rows have the seeds, backbones, scorers and checkpoints that their labels and the papers state."""

from collections.abc import Mapping

import pandas as pd
import pytest

from analysis.cells import join
from analysis.verdicts.estimates import published_effect
from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Scorer, Whitened
from cse_core.run import Corpus, Pretrained, Run
from experiments.results import csv_record
from experiments.schema.scales import SCALES
from experiments.studies.catalogue import choose_studies, single
from tests.experiments.studies.declared import rows


def score_source(scorer: Scorer) -> tuple[float, int, str] | None:
    """A scorer by ranks: its weight, corpus size and similarity; None for plain cosine."""
    if scorer == Cosine():
        return None
    assert isinstance(scorer, Ranked)
    assert (scorer.seed, scorer.normalise) == (42, True)
    return scorer.weight, scorer.size, scorer.similarity


@pytest.mark.parametrize(("name", "size"), [("small", 10_000), ("small-1m", 10_000), ("paper", 100_000)])
def test_rows_are_scored_by_ranks_as_labelled(name: str, size: int) -> None:
    """Eq. 2 scores by ranks alone; Eq. 7 gives them a tenth. The base of a retrained row varies with its seed."""
    for label, row in rows("rankencoder-table5", name).items():
        expected = {"RankEncoder_E1 (Eq2)": (1.0, size, "rank"), "retrain+inf (Eq7)": (0.1, size, "rank")}
        assert score_source(row.scorer) == expected.get(label.partition(", ")[2])
        assert row.vary == ("all" if "retrain" in label else "student")
    for label, row in rows("rankencoder-table4", name).items():
        assert score_source(row.scorer) == ((0.1, size, "rank") if label.endswith(", +RankEncoder") else None)
        assert row.vary == ("student" if label.endswith(", base") else "all")
    for label, row in rows("rankencoder-table2", name).items():
        assert score_source(row.scorer) == ((1.0, size, "rank") if "rank vectors" in label else None)
    for label, row in rows("rankencoder-lambda", name).items():
        weight = float(label.rpartition(" ")[2])
        assert score_source(row.scorer) == ((weight, size, "rank") if weight else None)
    for label, row in rows("rankencoder-corpus", name).items():
        drawn = label.removesuffix(" corpus sentences").replace(",", "")
        assert score_source(row.scorer) == ((1.0, int(drawn), "rank") if drawn != "cosine" else None)
    for label, row in rows("rankencoder-ranks", name).items():
        if isinstance(row.scorer, Ranked):
            assert row.scorer.similarity == ("centred" if "centred" in label else "rank"), label


FIVE = (42, 1, 2, 3, 4)
SEEDS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "quickstart": {"bert-base-uncased": (42, 1)},
    "small": {"bert-base-uncased": (42, 1, 2), "bert-large-uncased": (42,)},
    "small-1m": {"bert-base-uncased": (42, 1, 2), "bert-large-uncased": (42, 1, 2)},
    "paper": dict.fromkeys(("bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large"), FIVE),
}
ONE_SEED = {"rankcse-table1", "rankcse-table10", "rankcse-table12", "rankcse-figure5"}
ONE_SEED |= {"rankencoder-lambda", "compcse-figure4"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCALES if name != "minilm"])
def test_every_row_has_the_seeds_of_its_backbone(name: str) -> None:
    for one in choose_studies(["quickstart" if name == "quickstart" else "all"], name):
        for row in one.rows:
            if not isinstance(row.encoder, Run):
                continue
            expected = (42,) if one.name in ONE_SEED else SEEDS[name].get(row.backbone, ())
            expected = (101, 102) if one.name == "search" else expected
            expected = (301, 302, 303, 304, 305) if one.name == "ladder" else expected
            expected = (42,) if row.label.startswith("teacher: ") else expected  # the run that teaches
            expected = FIVE if one.name in ("rankcse-table9", "baselines") else expected  # at any scale
            assert row.seeds == expected, f"{one.name}: {row.label}"
            rules = (SCALES[name].dev, "last", "transfer_dev", "stsb_dev", "sts_test")
            assert row.select in rules, f"{one.name}: {row.label}"
            assert (row.select == "sts_test") == row.label.endswith("chosen on the test sets")


def test_a_row_has_the_backbone_that_its_label_names() -> None:
    titles = {"BERT-base": "bert-base-uncased", "BERT-large": "bert-large-uncased"}
    titles |= {"RoBERTa-base": "roberta-base", "RoBERTa-large": "roberta-large"}
    count = 0
    for one in choose_studies(["all"], "paper"):
        for row in one.rows:
            named = [title for title in titles if title in row.label.replace(",", "").split(" ")]
            if not isinstance(row.encoder, Run) or one.name == "rankcse-table4":
                continue
            for title in named[:1]:
                assert row.encoder.backbone == Pretrained(titles[title]), f"{one.name}: {row.label}"
                count += 1
    assert count > 100


def test_scorers_have_the_papers_defaults() -> None:
    """They enter the record as text, so that a changed one would give old scores a new meaning."""
    assert str(Cosine()) == "cosine"
    assert (Cosine().pooling, Cosine().template) == (None, "")
    ranked = Ranked(corpus=Corpus("synthetic", 200_000))
    assert (ranked.size, ranked.seed, ranked.weight) == (100_000, 42, 0.1)
    assert (ranked.normalise, ranked.similarity) == (True, "rank")
    whitened = Whitened()  # Su et al. (2021): layers 1 and last, the whole width, 64 tokens
    assert (whitened.pooling, whitened.dims, whitened.corpus, whitened.longest) == ("layer1_last_mean", None, None, 64)
    flowed = Flowed()  # Li et al. (2020): the last two layers
    assert (flowed.pooling, flowed.corpus, flowed.seed) == ("top2_mean", None, 42)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "paper"])
def test_untrained_rows_are_scored_as_the_papers_name_them(name: str) -> None:
    corpus = SCALES[name].corpus
    expected = {
        "first-last avg BERT-base": Cosine("first_last_mean"),
        "last avg BERT-base": Cosine("mean"),
        "[CLS] BERT-base": Cosine("cls"),
        "whitening BERT-base": Whitened(corpus=corpus),
        "flow BERT-base": Flowed(pooling="first_last_mean", corpus=corpus),
        "whitening BERT-base, transductive": Whitened(),
        "flow BERT-base, transductive": Flowed(pooling="first_last_mean"),
    }
    seen = set()
    for one in choose_studies(["all"], name):
        for row in one.rows:
            if row.label in expected and row.encoder is not None:
                assert row.scorer == expected[row.label], f"{one.name}: {row.label}"
                assert row.select == "as is"
                seen.add(row.label)
    assert seen == set(expected)


@pytest.mark.parametrize("table", ["rankcse-table2", "whitenedcse-table1"])
@pytest.mark.parametrize("name", [name for name in SCALES if name != "minilm"])
def test_fitted_rows_say_on_what_and_none_fitted_on_test_sentences_is_in_a_contrast(table: str, name: str) -> None:
    study = single(table, name)
    fitted = {row.label: row for row in study.rows if isinstance(row.scorer, Whitened | Flowed) and row.encoder}
    kinds = {(how, fit, on) for how in ("whitening", "flow") for fit in ("", ", transductive")
             for on in (f"{how} BERT-base{fit}", f"SimCSE BERT-base, {how}{fit}")}  # fmt: skip
    assert {label for label in fitted if "RoBERTa" not in label} == {label for *_, label in kinds}
    simcse = next(row for row in study.rows if row.label == "SimCSE BERT-base")
    for label, row in fitted.items():
        assert isinstance(row.scorer, Whitened | Flowed)
        if label.endswith(", transductive"):
            assert (row.scorer.corpus, row.published) == (None, None)
            assert row.note.startswith("fitted on the test sentences of each task")
            assert not any(label in tested.rows for tested in study.contrasts)
        else:
            assert row.scorer.corpus == study.scale.corpus
            assert "fitted on the training corpus" in row.why + row.note
        if label.startswith("SimCSE BERT-base"):
            assert (row.keys(), row.select) == (simcse.keys(), simcse.select)
            assert row.scorer.pooling == "cls"
    published = {row.label for row in fitted.values() if row.published}
    assert published == {label for label in fitted if not label.startswith("SimCSE") and "transductive" not in label}


def test_a_fit_on_simcse_is_the_plans_control() -> None:
    """Scorers are shared, to score a checkpoint once; half the dimensions, as the last hold too little to whiten."""
    plan = {row.scorer for row in rows("plan-scoring", "small").values() if isinstance(row.scorer, Whitened)}
    mine = rows("rankcse-table2", "small")
    assert {mine[f"SimCSE BERT-base, whitening{fit}"].scorer for fit in ("", ", transductive")} == plan


def test_a_baseline_is_scored_as_its_paper_scores_it_and_seeds_vary_all_of_it() -> None:
    """ConSERT by the mean of the last two layers; DCLR's complement and L2P-CSR's start have the seed of the run."""
    for table, size in (("baselines", "small"), ("compcse-table1", "paper"), ("rankcse-table2", "paper")):
        for label, row in rows(table, size).items():
            name = label.split(" ")[0].rstrip(",")
            if isinstance(row.encoder, Run) and name in ("ConSERT", "DCLR", "L2P-CSR", "PCL", "ArcCSE", "ESimCSE"):
                assert row.scorer == Cosine("top2_mean" if name == "ConSERT" else None), label
                assert row.vary == ("all" if name in ("DCLR", "L2P-CSR") else "student"), label
                nested = {(run.seed, inner.seed) for run in row.runs() for inner in run.nested()}
                assert nested == ({(seed, seed) for seed in row.seeds} if row.vary == "all" else set()), label


def test_baselines_differ_from_their_controls_in_what_the_labels_say() -> None:
    found = {label: row.encoder for label, row in rows("baselines", "small").items() if isinstance(row.encoder, Run)}

    def differing(first: str, second: str) -> dict[str, tuple[object, object]]:
        a, b = ({**vars(found[label]), **vars(found[label].method)} for label in (first, second))
        return {name: (a[name], b[name]) for name in a.keys() & b.keys() if a[name] != b[name] and name != "method"}

    random = "ESimCSE, decay 0.736, random start"
    assert differing("ESimCSE, decay 0.736", random) == {"slow_start": ("online", "random")}
    assert differing("ESimCSE", "ESimCSE, decay 0.736") == {"momentum": (0.995, 0.736)}
    assert pytest.approx(0.995**15_625, rel=0.1) == 0.736 ** (16_384 / 64)
    assert found["MoCoSE"] == found["MoCoSE, chosen on the test sets"]
    for ours, other in (("ConSERT", "ConSERT, Wikipedia"), ("SimCSE, the test sets' sentences", "SimCSE")):
        assert [corpus.name for corpus in differing(ours, other).pop("corpus")] == ["sts_texts", "wiki_sentences_1m"]  # ty: ignore
    assert differing("DCLR, no ascent", "DCLR") == {"steps": (0, 4)}
    assert differing("DCLR", "DCLR, ascent by steps of 1") == {"step_size": (0.001, 1.0)}
    assert differing("PCL", "PCL, binary loss of logits") == {"positives": ("released", "logit")}
    assert differing("PCL", "PCL, no binary loss") == {"positive_weight": (1.0, 0.0)}
    assert differing("L2P-CSR", "L2P-CSR, random masks") == {"steps": (4, 0)}
    assert differing("IS-BERT", "IS-BERT, no ReLU") == {"pooling": ("ngrams", "ngrams_linear")}
    assert differing("CT-BERT", "CT-BERT, independent pairs")["pairs"] == ("anchored", "independent")


def test_gains_pair_seeds_that_share_sentences_and_published_gains_are_of_one_table() -> None:
    study = single("baselines", "small")
    gains = {(c.plus, c.minus): c for c in study.contrasts}
    assert {c.role for c in study.contrasts} == {"exploratory"}
    assert {c.plus for c in study.contrasts if not c.paired} == {("ConSERT",), ("SimCSE, the test sets' sentences",)}
    results = join(study, pd.DataFrame(columns=csv_record.RESULTS))
    over_simcse = {plus[0]: gain for (plus, minus), gain in gains.items() if minus == ("SimCSE",)}
    expected = {"ESimCSE": 2.02, "MoCoSE": 1.02, "ConSERT": -3.51, "CT-BERT": -4.2, "IS-BERT": -9.67, "DCLR": 0.97}
    expected |= {"PCL": 2.17, "ArcCSE": 1.86, "L2P-CSR": 0.95}
    unpublished = dict.fromkeys(("MixCSE", "SimCSE, the test sets' sentences"))
    assert {label: published_effect(results, gain) for label, gain in over_simcse.items()} == expected | unpublished
