"""The encoder with templates, its kept folders, other readings of its weights, and positions that a method gives."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from cse_core.data.batches import pad, stack
from cse_core.method import Tokens
from cse_core.methods import promptbert, sncse
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS, encoder_hash
from cse_core.text.prompts import prompt_ids
from tests.support.encoders import wiki_tiny

FIRST, SECOND = promptbert.TEMPLATES["bert"]
TEXTS = [
    "A cat sat.",
    "the old man walked his dog along the river before breakfast",
    "no?",
    "É û",
    "",
    "two [MASK] men",
]
OURS_ALONE = ["top2_mean", "first_last_mean", "layer1_last_mean", "mask"]
LIMIT = 48  # of the embedded tokenizers


def prompting(template: str = FIRST, folder: Path | str = "wiki-tiny", **options: Any) -> Encoder:
    return Encoder.from_pretrained(folder, pooling="mask", template=template, **options)


def made(pooling: str, folder: Path | str = "wiki-tiny") -> Encoder:
    return prompting(folder=folder) if pooling == "mask" else Encoder.from_pretrained(folder, pooling=pooling)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return prompting()


@cache
def loaded(folder: Path) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def by_hand(folder: Path, text: str, template: str) -> torch.Tensor:
    """The closed sentence written into the template, by itself through AutoModel; the state at the last mask."""
    tokenizer, model = loaded(folder)
    if text and text[-1] not in ".?!\"'":
        text += " ." if template.endswith(" .") else "."
    tokens = tokenizer(template.replace("{}", text).replace("[MASK]", tokenizer.mask_token), return_tensors="pt")
    place = tokens["input_ids"][0].tolist()[::-1].index(tokenizer.mask_token_id) + 1
    with torch.no_grad():
        return model(**tokens).last_hidden_state[0, -place]


@pytest.mark.parametrize("template", [FIRST, *sncse.TEMPLATES])
def test_a_vector_is_the_state_at_the_mask_of_the_filled_in_template(template: str) -> None:
    vectors = prompting(template).encode(TEXTS, 4)
    expected = torch.stack([by_hand(ASSETS / "wiki-tiny", text, template) for text in TEXTS])
    assert torch.allclose(vectors, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("template", promptbert.TEMPLATES["roberta"])
def test_and_for_roberta_likewise(roberta: Path, template: str) -> None:
    texts = ["dogs", "The dog runs.", "no?"]
    expected = torch.stack([by_hand(roberta, text, template) for text in texts])
    assert torch.allclose(prompting(template, roberta).encode(texts), expected, atol=1e-5, rtol=0)


def test_the_sentences_own_mask_is_not_read(encoder: Encoder) -> None:
    tokens = pad(encoder.tokenise(["two [MASK] men"]), encoder.pad_id)
    states, places = encoder.states(tokens)[0], (tokens.ids[0] == encoder.tokenizer.mask_token_id).nonzero()[:, 0]
    (vector,) = encoder.encode(["two [MASK] men"])
    assert len(places) == 2
    assert torch.allclose(vector, states[places[1]], atol=1e-5)
    assert not torch.allclose(vector, states[places[0]], atol=1e-2)


def test_a_sentence_longer_than_the_limit_keeps_the_template(encoder: Encoder) -> None:
    long = " ".join(["river", "stone", "bird"] * 3_000)
    short = " ".join((["river", "stone", "bird"] * 20)[: LIMIT - 10])  # ten pieces are the template's
    (ids,) = encoder.tokenise([long])
    assert ids == encoder.tokenizer(FIRST.replace("{}", short))["input_ids"]
    assert len(ids) == encoder.max_length == LIMIT
    assert torch.allclose(encoder.encode([long])[0], encoder.embed([ids])[0], atol=1e-5)


def test_given_ids_are_embedded_at_their_mask_under_any_template(encoder: Encoder) -> None:
    assert torch.allclose(encoder.embed(encoder.tokenise(TEXTS), 4), encoder.encode(TEXTS), atol=1e-5)
    ids = prompt_ids(["a cat.", "A man sat."], SECOND, encoder.tokenizer, 20)
    expected = torch.stack([by_hand(ASSETS / "wiki-tiny", text, SECOND) for text in ("a cat.", "A man sat.")])
    assert torch.allclose(encoder.embed(ids), expected, atol=1e-5)
    for parts in encoder(pad(ids, 0), pad(ids[:1], 0)):
        assert torch.allclose(parts, expected[: len(parts)], atol=1e-5)


def test_no_sentences_and_templates_without_room(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, 128)
    with pytest.raises(ValueError, match="leaves room for 0 word pieces of the sentence, expected at least one"):
        encoder.with_pooling("mask", FIRST, 10).tokenise(["a"])
    assert [len(ids) for ids in encoder.with_pooling("mask", FIRST, 11).tokenise(["a b c d"])] == [11]


def test_a_template_and_the_pooling_mask_go_together() -> None:
    go_together = "the pooling mask and a template go together, got 'mask' and ''"
    for pooling, template, message in (
        ("mask", "", go_together),
        ("cls", FIRST, "the pooling mask and a template go together, got 'cls' and 'This"),
        ("mask", "a {} b", "a template has one {} and one"),
        (None, FIRST, "a template requires pooling 'mask', got no pooling for 'This"),
    ):
        with pytest.raises(ValueError, match=message):
            Encoder.from_pretrained("wiki-tiny", pooling=pooling, template=template)
    for encoder in (wiki_tiny(), prompting()):
        with pytest.raises(ValueError, match=go_together):
            encoder.with_pooling("mask")


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["top2_mean", "first_last_mean", "mask"])
def test_a_kept_folder_gives_the_same_vectors(tmp_path: Path, pooling: str) -> None:
    encoder = made(pooling)
    before = encoder.encode(TEXTS)
    with torch.no_grad():
        for parameter in encoder.backbone.parameters():
            parameter.mul_(1.01)
    encoder.with_pooling("cls").save_pretrained(tmp_path / "kept")  # what another pooling left there is gone
    encoder.save_pretrained(tmp_path / "kept")
    again = Encoder.from_pretrained(tmp_path / "kept", dropout=0.0)
    assert (again.pooling, again.template) == (pooling, FIRST if pooling == "mask" else "")
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))
    assert not torch.allclose(again.encode(TEXTS), before, atol=1e-3)
    named = {path.name for path in (tmp_path / "kept").iterdir()}
    assert "encoder.json" in named
    assert named & {"modules.json", "1_Pooling", "sentence_bert_config.json"} == set()
    other = Encoder.from_pretrained(tmp_path / "kept", pooling="mean")
    assert (other.pooling, other.template) == ("mean", "")
    assert torch.allclose(other.encode(TEXTS), encoder.with_pooling("mean").encode(TEXTS), atol=1e-6)
    prompted = prompting(SECOND, tmp_path / "kept")
    assert torch.equal(prompted.encode(["a"]), prompted.embed(prompt_ids(["a."], SECOND, prompted.tokenizer, 9)))


def test_hashes_of_templates_and_poolings_differ(tmp_path: Path) -> None:
    encoder = prompting()
    for name, pooling, template in (
        ("first", "mask", FIRST),
        ("again", "mask", FIRST),
        ("second", "mask", SECOND),
        ("top2", "top2_mean", ""),
        ("cls", "cls", ""),
    ):
        encoder.with_pooling(pooling, template).save_pretrained(tmp_path / name)
    found = {folder.name: encoder_hash(folder) for folder in tmp_path.iterdir()}
    assert found["first"] == found["again"]
    assert len(set(found.values())) == 4


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last_mean"])
def test_the_same_weights_under_another_pooling(encoder: Encoder, pooling: str) -> None:
    plain, view = made(pooling), encoder.with_pooling(pooling)
    assert (view.pooling, view.template, view.max_length) == (pooling, "", LIMIT)
    assert view.backbone is encoder.backbone
    assert torch.equal(view.encode(TEXTS), plain.encode(TEXTS))
    back = plain.with_pooling("mask", FIRST)
    assert (back.pooling, back.template, back.name) == ("mask", FIRST, "wiki-tiny")
    assert torch.equal(back.encode(TEXTS), encoder.encode(TEXTS))
    assert not torch.allclose(plain.with_pooling("mask", SECOND).encode(TEXTS), encoder.encode(TEXTS), atol=1e-2)
    assert (encoder.pooling, encoder.template, plain.pooling, plain.template) == ("mask", FIRST, pooling, "")


@pytest.mark.parametrize("pooling", ["cls", "mean", "mask"])
@pytest.mark.slow
def test_the_same_pooling_of_fewer_tokens(pooling: str) -> None:
    encoder, long = made(pooling), " ".join(["river", "stone", "bird"] * 10)
    for longest, expected in ((14, 14), (LIMIT, LIMIT), (1_000, LIMIT), (None, LIMIT)):
        view = encoder.with_pooling(pooling, encoder.template, longest)
        assert (view.pooling, view.template, view.max_length) == (pooling, encoder.template, expected)
        assert max(map(len, view.tokenise([*TEXTS, long * 5]))) == expected
    cut = encoder.with_pooling(pooling, encoder.template, 14).encode([long])
    words = " ".join(long.split()[: 4 if encoder.template else 12])
    ids = encoder.tokenizer(FIRST.replace("{}", words) if encoder.template else words)["input_ids"]
    assert torch.allclose(cut, encoder.embed([ids]), atol=1e-5)
    assert not torch.allclose(cut, encoder.encode([long]), atol=1e-2)


def tokens_of(encoder: Encoder, shift: int | None, texts: list[str]) -> Tokens:
    """Padded ids; from the third token on at positions `shift` later, or without positions."""
    tokens = pad(encoder.tokenise(texts), encoder.pad_id)
    places = torch.arange(tokens.ids.shape[1])
    positions = None if shift is None else (places + shift * (places > 1)).expand_as(tokens.ids)
    return Tokens(tokens.ids, tokens.mask, positions)


@pytest.mark.parametrize("pooling", ["cls", "mean", "mask"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.slow
def test_positions_count_from_the_first_token(family: str, pooling: str, roberta: Path) -> None:
    folder = roberta if family == "roberta" else ASSETS / "wiki-tiny"
    encoder, texts = made(pooling, folder), ["The dog runs.", "no"]
    (usual,), (given,) = (encoder(tokens_of(encoder, shift, texts)) for shift in (None, 0))
    assert torch.allclose(given, usual, atol=1e-6)
    tokens = tokens_of(encoder, 3, texts)
    (moved,) = encoder(tokens)
    assert ((moved - usual).norm(dim=1) > 1e-3).all()
    for row, vector in zip(tokens.ids, moved, strict=True):
        ids = row[row != encoder.pad_id]
        first = 2 if family == "roberta" else 0
        places = torch.tensor([[first + i + 3 * (i > 1) for i in range(len(ids))]])
        states = encoder.backbone(input_ids=ids[None], position_ids=places).last_hidden_state[0]
        if pooling == "mean":
            expected = states.mean(0)
        else:
            expected = states[ids.tolist().index(encoder.tokenizer.mask_token_id) if pooling == "mask" else 0]
        assert torch.allclose(vector, expected, atol=1e-5)


def test_given_positions_and_usual_ones_in_one_pass(encoder: Encoder) -> None:
    plain, shifted = tokens_of(encoder, None, TEXTS[:2]), tokens_of(encoder, 5, ["no?"])
    for parts in ((plain, shifted), (shifted, plain), (shifted, shifted)):
        alone = [encoder(part)[0] for part in parts]
        for together, expected in zip(encoder(*parts), alone, strict=True):
            assert torch.allclose(together, expected, atol=1e-5)


def test_stacked_positions_by_hand() -> None:
    def tokens(n: int, t: int, positions: list[list[int]] | None) -> Tokens:
        given = None if positions is None else torch.tensor(positions)
        return Tokens(torch.full((n, t), 5), torch.ones(n, t, dtype=torch.bool), given)

    long, short = tokens(1, 4, None), tokens(2, 2, [[0, 7], [3, 1]])
    assert stack([long, long], 9).positions is None
    for parts, rows in (((long, short), (0, 1, 2)), ((short, long), (1, 2, 0))):
        stacked = stack(parts, 9)
        assert stacked.positions is not None
        positions = [[0, 1, 2, 3], [0, 7, 0, 0], [3, 1, 0, 0]]
        assert stacked.positions.tolist() == [positions[row] for row in rows]
        assert stacked.ids.tolist() == [[[5, 5, 5, 5], [5, 5, 9, 9], [5, 5, 9, 9]][row] for row in rows]
        assert stacked.mask.sum(1).tolist() == [[4, 2, 2][row] for row in rows]


@pytest.mark.parametrize("pooling", ["cls", "first_last_mean", "mask"])
def test_states_are_the_last_layers_of_every_token(pooling: str) -> None:
    encoder = made(pooling)
    tokens = tokens_of(encoder, None, TEXTS)
    states = encoder.states(tokens)
    assert states.shape == (*tokens.ids.shape, 128)
    assert states.requires_grad
    for row, found in zip(tokens.ids, states, strict=True):
        ids = row[row != encoder.pad_id]
        expected = encoder.backbone(input_ids=ids[None]).last_hidden_state[0]
        assert torch.allclose(found[: len(ids)], expected, atol=1e-5)
    if pooling == "cls":
        assert torch.allclose(states[:, 0], encoder(tokens)[0], atol=1e-5)  # whose last layer saw only these tokens
    encoder.precision = "bf16"
    trained = encoder.train().states(tokens)
    assert trained.dtype == torch.float32
    assert not torch.allclose(trained, states, atol=0.1)  # dropout


def test_a_text_without_a_mask_is_named() -> None:
    encoder = wiki_tiny(pooling="mask", template='The "{}" [MASK].')
    ids = encoder.tokenise(["a cat", "a dog"])
    with pytest.raises(ValueError, match="wiki-tiny: pooling 'mask' requires a mask in every text, row 1 has none"):
        encoder(pad([ids[0], [2, 5, 6, 3]], encoder.pad_id))
