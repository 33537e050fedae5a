"""Training on rows of a sentence, its positive and a hard negative, from a list or the generated corpus to the loss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cse_core.api import make_batch, train
from cse_core.data import synthetic
from cse_core.data.corpora import sentences
from cse_core.method import COLUMNS
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus
from cse_core.seeding import generator_for
from tests.support.method_steps import encoder_for

TRIPLES = synthetic.triples(6)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.slow
def test_the_first_loss_of_a_run_is_the_methods_own(tmp_path: Path, columns: int) -> None:
    """One step over all rows, without dropout; a row twice, so that the option to leave duplicates out counts."""
    rows = [row[:columns] for row in [*TRIPLES, TRIPLES[0]]]
    method = SimCSE(hard_negative_weight=0.5 if columns == 3 else 0.0)
    about: dict[str, Any] = {"batch_size": 7, "dropout": 0.0, "max_steps": 1, "leave_out_duplicates": True}
    trained = train(method, rows, "wiki-tiny", store=tmp_path, device="cpu", **about)
    assert trained.run.corpus.columns == COLUMNS[:columns]
    encoder = encoder_for(method, dropout=0.0).train()
    modules = method.modules(encoder, generator_for(trained.run.seed, "modules"))
    batch = replace(make_batch(method, rows, encoder), leave_out_duplicates=True)
    expected = method.loss(encoder, batch, modules, {}).total.item()
    ((_, found),) = trained.history.curves["loss"]
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_generated_corpus_has_the_columns_that_are_named() -> None:
    table = sentences(Corpus(synthetic.TRIPLES, 6, columns=COLUMNS))
    assert list(zip(*(table[name][:] for name in COLUMNS), strict=True)) == TRIPLES
    assert sentences(Corpus(synthetic.TRIPLES, 6))["text"][:] == [row[0] for row in TRIPLES]
    with pytest.raises(ValueError, match=r"has the columns text, positive, negative, got hard"):
        sentences(Corpus(synthetic.TRIPLES, 6, columns=("text", "hard")))


def test_a_method_of_single_sentences_refuses_it_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="method rankcse: expected sentences in one column"):
        train(RankCSE(distillation_weight=0.0), TRIPLES, "wiki-tiny", store=tmp_path)
