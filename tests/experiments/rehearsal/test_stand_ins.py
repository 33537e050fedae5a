"""Stand-ins have the papers' shapes and tokenizers, the same bits on every machine, and no published name."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from cse_core.models.loading import load
from cse_core.models.pretrained import encoder_hash
from cse_core.run import Corpus
from experiments.execution.step_cost import size_of
from tests.benchmarks.rehearsal.stand_ins import GENERATORS, PUBLISHED_SHAPES, StandIn, make_stand_ins, shapes

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
TINY = (
    StandIn("stand-in/tiny-bert", "bert", SMALL),
    StandIn("stand-in/tiny-roberta", "roberta", {**SMALL, "vocab_size": 400, "max_position_embeddings": 66}),
    StandIn("tiny-distilbert", "distilbert", {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}),
)
CORPUS = Corpus("synthetic", 500)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    make_stand_ins(folder, CORPUS, TINY)
    return folder


def test_shapes_are_the_planners_and_vocabularies_the_papers() -> None:
    for name, stand_in in PUBLISHED_SHAPES.items():
        config = AutoConfig.for_model(stand_in.kind, **stand_in.config)
        planned = size_of(name)
        assert planned
        assert (config.num_hidden_layers, config.hidden_size) == (planned.layers, planned.width)
        assert config.intermediate_size == 4 * config.hidden_size
        assert stand_in.words == config.vocab_size
        assert stand_in.name == f"stand-in/{name}"  # the hub's name would give its runs a published key
    assert [each.name for each in GENERATORS] == ["distilbert-base-uncased", "distilroberta-base"]
    shallow = shapes(2)["bert-large-uncased"]
    assert (shallow.name, shallow.config["num_hidden_layers"]) == ("stand-in-2-layers/bert-large-uncased", 2)


def test_they_load_with_tokenizers_of_their_kind(made: Path) -> None:
    bert, pieces = load(made / "stand-in/tiny-bert")
    roberta, bytes_ = load(made / "stand-in/tiny-roberta")
    assert pieces.convert_ids_to_tokens(pieces("Embeddings, unaffable!")["input_ids"]) == [
        *("[CLS]", "em", "##bed", "##ding", "##s", ",", "una", "##ffa", "##ble", "!", "[SEP]")
    ]
    assert (len(pieces), bert.get_input_embeddings().num_embeddings) == (30_522, 30_522)
    assert (len(bytes_), roberta.get_input_embeddings().num_embeddings) == (400, 400)
    text = "a <mask> Ωfé"
    ids = bytes_(text)["input_ids"]
    assert (ids[0], ids[-1], bytes_.pad_token_id) == (bytes_.cls_token_id, bytes_.sep_token_id, 1)
    assert ids.count(bytes_.mask_token_id) == 1
    assert str(bytes_.decode(ids, skip_special_tokens=True)).split() == ["a", "Ωfé"]  # no character is unknown


def test_they_are_the_same_wherever_they_are_made_and_differ_from_each_other(made: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    make_stand_ins(tmp_path, CORPUS, reversed(TINY))
    assert torch.equal(torch.rand(2), expected)  # the caller's random state is as before
    hashes = {shape.name: encoder_hash(tmp_path / shape.name) for shape in TINY}
    assert hashes == {shape.name: encoder_hash(made / shape.name) for shape in TINY}
    assert len(set(hashes.values())) == len(TINY)


def test_a_folder_is_kept_completed_or_refused(made: Path, tmp_path: Path) -> None:
    weights = made / "stand-in/tiny-bert/model.safetensors"
    before = weights.stat().st_mtime_ns
    make_stand_ins(made, CORPUS, TINY)
    assert weights.stat().st_mtime_ns == before
    (made / "stand-in/tiny-bert/stand-in.json").unlink()  # as a kill before the end leaves it
    make_stand_ins(made, CORPUS, TINY)
    assert weights.stat().st_mtime_ns > before
    other = StandIn("stand-in/tiny-bert", "bert", {**SMALL, "num_hidden_layers": 3})
    with pytest.raises(ValueError, match="a stand-in of another shape or seed"):
        make_stand_ins(made, CORPUS, [other])
    few = StandIn("x", "roberta", {"vocab_size": 50_265})
    with pytest.raises(ValueError, match=r"holds [\d,]+ byte-level pieces, expected 50,265; name a longer corpus"):
        make_stand_ins(tmp_path, CORPUS, [few])
