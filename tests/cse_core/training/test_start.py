"""Training that starts from a finished encoder's weights instead of the backbone's."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cse_core.method import starting_encoder
from cse_core.methods.baselines.isbert import ISBERT
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Pretrained
from cse_core.training.teacher_embeddings import load_starting_weights
from cse_core.training.train import train
from tests.support.encoders import wiki_tiny
from tests.support.training import KEEP, TINY, equal, weights

BASE = replace(TINY, epochs=1)
METHOD = RankEncoder(base=BASE, select="synthetic_dev", corpus_size=50, lower=-1.0, upper=1.0, combination="sum")
CONTINUED = replace(TINY, method=replace(METHOD, start="base"), epochs=1, dropout=0.2)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    train(BASE, folder, rules=KEEP)
    return folder


def test_the_method_says_where_it_starts() -> None:
    continued = CONTINUED.method
    assert starting_encoder(continued) == (BASE, "synthetic_dev")
    assert starting_encoder(MLM(inner=continued)) == (BASE, "synthetic_dev")
    for method in (METHOD, SimCSE(), MLM(inner=METHOD)):
        assert starting_encoder(method) is None
    assert CONTINUED.nested_checkpoints == ((BASE, "synthetic_dev"),)
    assert CONTINUED.key != replace(CONTINUED, method=METHOD).key
    with pytest.raises(ValueError, match="start 'base' needs a base encoder, got none"):
        RankEncoder(rank_weight=0.0, start="base")
    with pytest.raises(ValueError, match="start must be one of backbone, base, got 'E1'"):
        replace(METHOD, start="E1")


@pytest.mark.slow
def test_only_the_weights_are_the_bases(store: Path) -> None:
    encoder = wiki_tiny(pooling="mean", dropout=0.2).train()
    before = {name: value.clone() for name, value in encoder.backbone.state_dict().items()}
    load_starting_weights(encoder, METHOD, store)
    assert equal(dict(encoder.backbone.state_dict()), before)
    load_starting_weights(encoder, replace(METHOD, start="base"), store)
    base = Encoder.from_pretrained(store / BASE.key / "synthetic_dev")
    assert equal(dict(encoder.backbone.state_dict()), dict(base.backbone.state_dict()))
    assert not equal(dict(encoder.backbone.state_dict()), before)
    config = encoder.backbone.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.2, 0.2)
    assert (encoder.pooling, encoder.name, encoder.training) == ("mean", "wiki-tiny", True)


@pytest.mark.slow
def test_without_a_rank_loss_it_is_plain_training_on_the_bases_checkpoint(store: Path, tmp_path: Path) -> None:
    """As if that were the backbone, under the run's own dropout, bit for bit; from the backbone it is not."""
    run = replace(CONTINUED, method=RankEncoder(base=BASE, select="last", rank_weight=0.0, start="base"))
    kept = store / BASE.key / "last"
    plain = replace(run, method=SimCSE(), backbone=Pretrained(str(kept)))
    found, expected = train(run, store, rules=("last",)), train(plain, tmp_path, rules=("last",))
    assert found.curves == expected.curves
    assert equal(weights(store, run, "last"), weights(tmp_path, plain, "last"))
    assert not equal(weights(store, run, "last"), weights(store, BASE, "last"))
    fresh = train(replace(run, method=SimCSE()), tmp_path)
    assert fresh.curves["loss"][0] != found.curves["loss"][0]


def test_what_cannot_be_started_from_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no synthetic_dev checkpoint of run {BASE.key}; train that run"):
        train(CONTINUED, tmp_path)
    larger = replace(CONTINUED, backbone=Pretrained("wiki-mini"))
    with pytest.raises(ValueError, match="weights of other shapes than those of wiki-mini; start from one of its kind"):
        train(larger, store)


def test_a_pretrained_base_is_a_start_too(tmp_path: Path) -> None:
    other = Pretrained("wiki-mini")
    encoder = Encoder.from_pretrained("wiki-mini")
    with torch.no_grad():
        next(encoder.backbone.parameters()).zero_()
    load_starting_weights(encoder, RankEncoder(base=other, inner=PromptBERT(), start="base"), tmp_path)
    assert equal(dict(encoder.backbone.state_dict()), dict(Encoder.from_pretrained("wiki-mini").backbone.state_dict()))


@pytest.mark.slow
def test_a_start_brings_its_trained_pooling_and_is_refused_without_it(store: Path, tmp_path: Path) -> None:
    pooled = replace(BASE, method=ISBERT(), pooling="ngrams")
    train(pooled, tmp_path, rules=("last",))
    generator = torch.Generator().manual_seed(7)
    encoder = Encoder.from_pretrained("wiki-tiny", pooling="ngrams", generator=generator)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    load_starting_weights(encoder, RankEncoder(base=pooled, select="last", start="base", rank_weight=0.0), tmp_path)
    kept = Encoder.from_pretrained(tmp_path / pooled.key / "last").state_dict()
    assert equal(dict(encoder.state_dict()), dict(kept))
    assert {name.partition(".")[0] for name in kept if not torch.equal(kept[name], before[name])} == {
        "backbone",
        "ngrams",
    }
    with pytest.raises(ValueError, match="ngrams"):
        load_starting_weights(encoder, replace(METHOD, start="base"), store)
