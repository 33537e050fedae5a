"""A RoBERTa made here: positions that start at 2, byte-level tokens. It trains and is scored like a BERT."""

from pathlib import Path

import pytest
import torch

from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.train import train


def test_texts_are_cut_where_the_position_table_ends(roberta: Path) -> None:
    encoder = Encoder.from_pretrained(roberta)
    assert encoder.max_length == 40  # two of the 42 positions are never used
    assert encoder.pad_id == 1
    assert encoder.encode(["word " * 500, "short"]).isfinite().all()


def test_padding_does_not_move_a_sentence(roberta: Path) -> None:
    encoder = Encoder.from_pretrained(roberta)
    alone = encoder.encode(["The dog runs."])
    beside = encoder.encode(["The dog runs.", "A much longer sentence that stands in the same batch as the dog."])[:1]
    assert torch.allclose(alone, beside, atol=1e-6)


@pytest.mark.slow
def test_it_trains(roberta: Path, tmp_path: Path) -> None:
    run = Run(
        method=SimCSE(),
        backbone=Pretrained(str(roberta)),
        corpus=Corpus("synthetic", 256),
        batch_size=32,
        learning_rate=3e-3,
        epochs=2,
        eval_steps=8,
    )
    history = train(run, tmp_path, rules=("synthetic_dev", "last"))
    losses = [loss for _, loss in history.curves["loss"]]
    assert sum(losses[-4:]) < sum(losses[:4])
    assert Encoder.from_pretrained(tmp_path / run.key / "last").encode(["a"]).shape == (1, 32)
