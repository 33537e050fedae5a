"""The encoder against AutoModel used by hand: poolings by loops, folders, texts of all sorts, training passes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, RobertaConfig, RobertaModel

from cse_core.data.batches import pad
from cse_core.method import Tokens
from cse_core.models import packed_forward
from cse_core.models.encoder import Encoder, pool
from cse_core.models.pretrained import ASSETS, encoder_hash, resolve
from cse_core.run import POOLINGS

TEXTS = ["A cat sat.", "the old man walked his dog along the river before breakfast, as he did each day", "no", "É û"]
LIMIT = 48  # of the embedded tokenizers
OF_LAYERS = [pooling for pooling in POOLINGS if pooling not in ("mask", "pooler_output")]  # have tests of their own


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.from_pretrained("wiki-tiny").eval()


def by_hand(folder: Path, text: str, pooling: str) -> list[float]:
    """One text, so without padding, through AutoModel; then sums over tokens in double precision."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    tokens = tokenizer(text, truncation=True, max_length=LIMIT, return_tensors="pt")
    with torch.no_grad():
        states = model(**tokens, output_hidden_states=True).hidden_states
    layers: list[list[list[float]]] = [state[0].double().tolist() for state in states]
    embedded, first, before, last = layers[0], layers[1], layers[-2], layers[-1]
    if pooling == "cls":
        return last[0]
    other = {"mean": last, "top2_mean": before, "first_last_mean": embedded, "layer1_last_mean": first}[pooling]
    length, width = len(last), len(last[0])
    return [sum((last[t][j] + other[t][j]) / 2 for t in range(length)) / length for j in range(width)]


@pytest.mark.parametrize("pooling", OF_LAYERS)
@pytest.mark.parametrize("backbone", ["wiki-tiny", "wiki-mini", "wiki-medium"])
@pytest.mark.slow
def test_every_pooling_is_the_sum_over_tokens_of_automodel(backbone: str, pooling: str) -> None:
    vectors = Encoder.from_pretrained(backbone, pooling=pooling).encode(TEXTS)
    expected = torch.tensor([by_hand(ASSETS / backbone, text, pooling) for text in TEXTS])
    assert torch.allclose(vectors, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", OF_LAYERS)
def test_pooling_ignores_what_the_mask_hides(pooling: str) -> None:
    states = list(torch.randn(3, 2, 4, 5, generator=torch.Generator().manual_seed(0)))
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    garbage = [state.masked_fill(~mask.unsqueeze(-1), 1e6) for state in states]
    assert torch.equal(pool(garbage, mask, pooling), pool(states, mask, pooling))


def test_mean_pooling_in_closed_form() -> None:
    embedded, first, last = (torch.tensor([[[a], [b], [99.0]]]) for a, b in ((1.0, 3.0), (10.0, 30.0), (5.0, 7.0)))
    mask = torch.tensor([[True, True, False]])
    found = {pooling: pool([embedded, first, last], mask, pooling).item() for pooling in OF_LAYERS}
    expected = {"cls": 5, "mean": 6, "top2_mean": 13, "first_last_mean": 4, "layer1_last_mean": 13}
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_saved_folder_gives_the_same_vectors_through_automodel(tmp_path: Path, pooling: str) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", pooling=pooling)
    with torch.no_grad():
        for parameter in encoder.backbone.parameters():
            parameter.mul_(1.01)
    encoder.save_pretrained(tmp_path / "saved")
    expected = torch.tensor([by_hand(tmp_path / "saved", text, pooling) for text in TEXTS])
    assert torch.allclose(encoder.encode(TEXTS), expected, atol=1e-5, rtol=0)
    again = Encoder.from_pretrained(tmp_path / "saved")
    assert again.pooling == pooling
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))
    state = encoder.backbone.state_dict()
    for weights in (again.backbone.state_dict(), load_file(tmp_path / "saved" / "model.safetensors")):
        assert {name for name in weights if "position_ids" not in name} == set(state)
        assert all(torch.equal(weights[name], state[name]) for name in state)


def test_a_saved_folder_can_be_saved_into_again(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "left_over.txt").write_text("x")
    Encoder.from_pretrained("wiki-tiny").save_pretrained(tmp_path / "old")
    assert not (tmp_path / "old" / "left_over.txt").exists()
    before = load_file(tmp_path / "old" / "model.safetensors")
    Encoder.from_pretrained(tmp_path / "old").save_pretrained(tmp_path / "old")
    after = load_file(tmp_path / "old" / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before.keys() == after.keys()


@pytest.mark.slow
def test_dropout_is_kept_by_a_saved_folder_and_can_be_overridden(tmp_path: Path) -> None:
    Encoder.from_pretrained("wiki-tiny", dropout=0.3).save_pretrained(tmp_path / "saved")

    def rates(encoder: Encoder) -> set[float]:
        return {module.p for module in encoder.modules() if isinstance(module, torch.nn.Dropout)}

    for dropout, expected in ((None, 0.3), (0.0, 0.0), (0.25, 0.25)):
        encoder = Encoder.from_pretrained(tmp_path / "saved", dropout=dropout)
        assert rates(encoder) == {expected}
        assert encoder.backbone.config.attention_probs_dropout_prob == expected
    assert rates(Encoder.from_pretrained("wiki-tiny")) == {0.1}


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_saved_folder_says_what_sentence_transformers_reads(tmp_path: Path, pooling: str) -> None:
    Encoder.from_pretrained("wiki-tiny", pooling=pooling).save_pretrained(tmp_path / "saved")

    def read(name: str) -> Any:
        return json.loads((tmp_path / "saved" / name).read_text())

    kinds = ["sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"]
    assert [part["type"] for part in read("modules.json")] == kinds
    assert [part["path"] for part in read("modules.json")] == ["", "1_Pooling"]
    assert [part["idx"] for part in read("modules.json")] == [0, 1]
    assert read("1_Pooling/config.json") == {
        "word_embedding_dimension": 128,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
    }
    assert read("sentence_bert_config.json") == {"max_seq_length": LIMIT, "do_lower_case": False}


def test_a_saved_folder_does_not_depend_on_the_last_text_that_was_tokenised(tmp_path: Path) -> None:
    hashes = set()
    for length in (5, 32):
        encoder = Encoder.from_pretrained("wiki-tiny")
        encoder.tokenizer(["a cat sat"], truncation=True, max_length=length)
        encoder.save_pretrained(tmp_path / "saved")
        hashes.add(encoder_hash(tmp_path / "saved"))
    assert len(hashes) == 1


def test_a_folder_that_pools_in_another_way_is_refused_unless_asked_for(tmp_path: Path) -> None:
    Encoder.from_pretrained("wiki-tiny").save_pretrained(tmp_path / "saved")
    both = '{"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true}'
    (tmp_path / "saved" / "1_Pooling" / "config.json").write_text(both)
    with pytest.raises(ValueError, match=r"its pooling is max_tokens and mean, expected cls or mean; give"):
        Encoder.from_pretrained(tmp_path / "saved")
    assert Encoder.from_pretrained(tmp_path / "saved", pooling="mean").pooling == "mean"


def test_no_random_pooler_slips_in(tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny")
    encoder.save_pretrained(tmp_path / "saved")
    names = [*encoder.state_dict(), *load_file(tmp_path / "saved" / "model.safetensors")]
    assert [name for name in names if "pooler" in name] == []


def test_unknown_names_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"pooling must be one of cls, mean, .*, got 'max'"):
        Encoder.from_pretrained("wiki-tiny", pooling="max")
    places = r"backbone 'nobody/nothing': neither embedded \(wiki-medium, wiki-mini, wiki-tiny\), "
    places += r"nor a folder with a config.json, nor in CSE_ENCODERS \(unset\), "
    with pytest.raises(FileNotFoundError, match=places + "nor available from the Hugging Face hub"):
        resolve("nobody/nothing")


def test_the_content_hash_follows_weights_and_words_but_not_the_folder(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        encoder = Encoder.from_pretrained("wiki-tiny")
        if name == "c":
            next(encoder.backbone.parameters()).data[7, 7] += 0.001
        encoder.save_pretrained(tmp_path / name)
    a, b, c = (encoder_hash(tmp_path / name) for name in ("a", "b", "c"))
    assert a == b != c
    words = tmp_path / "a" / "tokenizer.json"
    words.write_text(words.read_text().replace('"the"', '"teh"', 1))
    assert encoder_hash(tmp_path / "a") != b


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_batch_size_and_neighbours_do_not_move_vectors(pooling: str) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", pooling=pooling)
    texts = [*TEXTS, "a b c", "d e f g h " * 12, "x"]
    together = encoder.encode(texts)
    alone = torch.cat([encoder.encode([text]) for text in texts])
    for vectors in (alone, encoder.encode(texts, 1), encoder.encode(texts, 3)):
        assert torch.allclose(vectors, together, atol=1e-5, rtol=0)


def test_vectors_come_in_the_order_of_the_sentences(encoder: Encoder) -> None:
    order = [2, 0, 3, 1]
    assert torch.allclose(encoder.encode([TEXTS[i] for i in order]), encoder.encode(TEXTS)[order], atol=1e-5)
    ids = encoder.tokenise(TEXTS)
    assert torch.allclose(encoder.embed([ids[i] for i in order]), encoder.encode(TEXTS)[order], atol=1e-5)


def test_duplicates_get_equal_vectors_and_pass_once(encoder: Encoder) -> None:
    counts: list[int] = []
    texts = [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[2], TEXTS[1], TEXTS[0]]
    vectors = encoder.encode(texts, 2, progress=counts.append)
    assert counts == [2, 1]
    assert torch.equal(vectors[0], vectors[2])
    assert torch.equal(vectors[0], vectors[5])
    assert torch.equal(vectors[1], vectors[4])
    assert torch.allclose(vectors[[0, 1, 3]], encoder.encode(TEXTS[:3]), atol=1e-5)


def test_texts_of_all_sorts(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, 128)
    assert encoder.tokenise([]) == []
    empty, blank, special, separator = encoder.encode(["", "   \t", "[CLS][SEP]", "\u2028"])
    assert encoder.tokenise(["", "   "]) == [[2, 3], [2, 3]]
    assert torch.allclose(empty, blank, atol=1e-6)
    assert torch.allclose(empty, separator, atol=1e-6)
    assert not torch.allclose(empty, special, atol=1e-2)
    assert empty.norm() > 1


def test_a_text_of_ten_thousand_words_is_cut_at_the_limit(encoder: Encoder) -> None:
    words = ["river", "stone", "bird"] * 4_000
    (ids,) = encoder.tokenise([" ".join(words[:10_000])])
    assert len(ids) == encoder.max_length == LIMIT
    cut = " ".join(words[: LIMIT - 2])
    assert ids == encoder.tokenise([cut])[0]
    assert ids[0] == encoder.tokenizer.cls_token_id
    assert ids[-1] == encoder.tokenizer.sep_token_id
    assert torch.allclose(encoder.encode([" ".join(words)]), encoder.encode([cut]), atol=1e-5)


@pytest.mark.parametrize("backbone", ["wiki-tiny", "wiki-mini"])
def test_the_embedded_tokenizers_lower_case_and_mark_both_ends(backbone: str) -> None:
    encoder = Encoder.from_pretrained(backbone)
    (ids,) = encoder.tokenise(["The CAT sat."])
    assert encoder.tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "the", "cat", "sat", ".", "[SEP]"]
    assert encoder.tokenise(["Café"]) == encoder.tokenise(["cafe"])
    assert (encoder.pad_id, encoder.tokenizer.model_max_length, encoder.width) == (0, LIMIT, 128)
    assert encoder.tokenizer.unk_token_id not in encoder.tokenise(["unbelievably zyxxish"])[0]


def test_robertas_position_table_holds_two_less(encoder: Encoder) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RobertaConfig(vocab_size=16_384, max_position_embeddings=20, pad_token_id=0, **sizes)
    roberta = Encoder(RobertaModel(config, add_pooling_layer=False), encoder.tokenizer, pooling="cls", name="small")
    assert roberta.max_length == 19
    texts = ["word " * 100, "two words"]
    vectors = roberta.encode(texts)
    assert vectors.isfinite().all()
    assert torch.allclose(vectors[1:], roberta.encode(texts[1:]), atol=1e-5)  # padding takes no position


def tokens_of(encoder: Encoder, texts: list[str]) -> Tokens:
    return pad(encoder.tokenise(texts), encoder.pad_id)


def test_views_differ_by_dropout_in_one_training_pass(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []

    def spy(model: Any, ids: Tensor, *rest: Any) -> Any:
        passes.append(len(ids))
        return real(model, ids, *rest)

    real = packed_forward.states
    monkeypatch.setattr(packed_forward, "states", spy)
    tokens = tokens_of(encoder, TEXTS)
    encoder.train()
    z1, z2 = encoder(tokens, tokens)
    assert passes == [2 * int(tokens.mask.sum())]  # of both views at once, only real tokens
    assert ((z1 - z2).norm(dim=1) > 0.1).all()
    assert z1.requires_grad
    encoder.eval()
    z1, z2 = encoder(tokens, tokens)
    assert torch.allclose(z1, z2, atol=1e-6)


def test_no_dropout_makes_training_and_evaluation_the_same() -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", dropout=0.0).train()
    (vectors,) = encoder(tokens_of(encoder, TEXTS))
    assert torch.allclose(vectors, encoder.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("mode", ["as loaded", "train", "eval"])
def test_encoding_leaves_modes_and_random_numbers_as_they_were(mode: str) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", dropout=0.5)
    if mode != "as loaded":
        encoder.train(mode == "train")
    modes = {name: module.training for name, module in encoder.named_modules()}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = encoder.encode(TEXTS)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(encoder.encode(TEXTS), first)
    assert not first.requires_grad
    assert {name: module.training for name, module in encoder.named_modules()} == modes
