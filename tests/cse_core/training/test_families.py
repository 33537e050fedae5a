"""Training starts from any family of transformers, with its own dropout; what a method can't do is said at once."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from transformers import AutoConfig, ByT5Tokenizer, T5Config, T5EncoderModel

from cse_core import api
from cse_core.methods.baselines.arccse import ArcCSE
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.compcse import CompCSE
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.models.foreign import ForeignEncoder, open_encoder
from cse_core.models.loading import set_dropout
from cse_core.run import Pretrained
from tests.support.families import FAMILIES, OTHERS, change, model, modules_folder, plain_folder

LINES = [f"{who} {what} {where}" for who in ("a man", "the dog") for what in ("sat", "ran") for where in ("here", "on")]
OWN_NAMES = {
    **{family: {"hidden_dropout_prob", "attention_probs_dropout_prob"} for family in FAMILIES},
    "distilbert": {"dropout", "attention_dropout"},
    "modernbert": {"embedding_dropout", "mlp_dropout", "attention_dropout"},
    "t5": {"dropout_rate"},
}


@pytest.fixture(autouse=True)
def no_cache(cache: Path) -> None:
    """Nothing of an earlier test is reused."""


def trained(method: Any, backbone: Path, store: Path, **settings: Any) -> api.Trained:
    return api.train(method, LINES, backbone, store=store, batch_size=4, max_length=8, device="cpu", **settings)


def losses(found: api.Trained) -> list[float]:
    return [loss for _, loss in found.history.curves["loss"]]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_with_its_own_dropout(family: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", family)
    without, much = (trained(SimCSE(), folder, tmp_path / "store", dropout=rate) for rate in (0.0, 0.5))
    assert losses(without) != losses(much)
    config = AutoConfig.from_pretrained(much.folder).to_dict()
    assert {name for name, value in config.items() if "drop" in name and value == 0.5} == OWN_NAMES[family]
    opened = open_encoder(much.folder)
    assert isinstance(opened, ForeignEncoder if family in OTHERS else Encoder)
    torch.testing.assert_close(opened.encode(LINES), much.encoder.encode(LINES), atol=1e-6, rtol=0)
    views = without.encoder.train()
    tokens = api.make_batch(SimCSE(), LINES, views)["text"]
    torch.testing.assert_close(*views(tokens, tokens))  # no dropout


def test_a_configuration_without_dropout_is_refused() -> None:
    config = AutoConfig.for_model("mamba")
    set_dropout(config, 0.0, Path("folder"))
    with pytest.raises(
        ValueError, match="folder: the configuration of a mamba names no dropout, so it can't be set to"
    ):
        set_dropout(config, 0.1, Path("folder"))


@pytest.mark.parametrize("normalised", [False, True])
def test_training_starts_from_a_folder_with_modules(normalised: bool, tmp_path: Path) -> None:
    plain = plain_folder(tmp_path / "plain", "albert")
    folder = modules_folder(tmp_path / "modules", plain, "cls", *[Normalize()] * normalised)
    change(folder / "sentence_bert_config.json", max_seq_length=6)
    found = trained(SimCSE(), folder, tmp_path / "store")
    assert (found.run.pooling, found.encoder.max_length, found.encoder.normalises) == ("cls", 6, normalised)
    vectors = open_encoder(found.folder).encode(["a man sat on the river and saw a dog", "no"])
    torch.testing.assert_close(
        found.encoder.encode(["a man sat on the river and saw a dog", "no"]), vectors, atol=1e-6, rtol=0
    )


def test_a_tokenizer_that_is_written_in_python(tmp_path: Path) -> None:
    folder = tmp_path / "byt5"
    special: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1}
    torch.manual_seed(0)
    T5EncoderModel(
        T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, **special)
    ).save_pretrained(folder)
    ByT5Tokenizer().save_pretrained(folder)
    assert not Encoder.from_pretrained(folder).tokenizer.is_fast
    found = trained(SimCSE(), folder, tmp_path / "store")
    torch.testing.assert_close(open_encoder(found.folder).encode(LINES), found.encoder.encode(LINES), atol=1e-6, rtol=0)
    for method in (CompCSE(), ESimCSE(), PCL()):
        with pytest.raises(ValueError, match=rf"method {method.name}: edits a text between .* tokenizer of .*byt5"):
            trained(method, folder, tmp_path / "store")
    with pytest.raises(
        ValueError, match=r"backbone .*byt5: its tokenizer has no mask token|method arccse: edits a text"
    ):
        trained(ArcCSE(), folder, tmp_path / "store")


@pytest.mark.parametrize(
    ("method", "family", "message"),
    [
        (ConSERT(), "mpnet", "kept, factors and positions need a model of type bert, .*, got mpnet"),
        (L2PCSR(), "t5", "kept, factors and positions need a model of type bert, .*, got t5"),
        (MLM(), "albert", "model type must be one of bert, roberta, got albert"),
        (
            DiffCSE(generator=Pretrained("wiki-tiny")),
            "t5",
            "method diffcse: a vector must fit in .*, which a t5 does not",
        ),
        (
            DiffCSE(generator=Pretrained("wiki-tiny")),
            "electra",
            "method diffcse: a vector must fit .*, which a electra",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_a_method_can_t_do_with_a_family_is_said_before_tokenising(
    method: Any, family: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cse_core.training.loop.examples", lambda *args: pytest.fail("tokenised"))
    with pytest.raises(ValueError, match=message):
        trained(method, plain_folder(tmp_path / "plain", family), tmp_path / "store")


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
def test_a_length_above_the_positions_is_refused_before_tokenising(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plain_folder(tmp_path / "plain", family)
    monkeypatch.setattr("cse_core.training.loop.examples", lambda *args: pytest.fail("tokenised"))
    with pytest.raises(ValueError, match=r"max_length must be at most 48, as .*plain has that many positions, got 49"):
        api.train(SimCSE(), LINES, folder, store=tmp_path / "store", batch_size=4, max_length=49, device="cpu")


def test_a_teacher_s_vectors_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    from cse_core.methods.rankcse import RankCSE, Teacher

    folder = plain_folder(tmp_path / "plain", "bert")
    large = shutil.copytree(folder, tmp_path / "large")
    teacher = model("bert", seed=1)
    with torch.no_grad():  # finite weights, whose layer's output is not
        teacher.encoder.layer[1].output.LayerNorm.weight.fill_(3e38)
    teacher.save_pretrained(large)
    method = RankCSE(teachers=(Teacher(Pretrained(str(large))),))
    with pytest.raises(ValueError, match="a teacher's vector of example 0 is not finite"):
        trained(method, folder, tmp_path / "store")
