"""The encoder against AutoModel used by hand: poolings by loops, folders, texts of all sorts, training passes."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from cse_core.data.batches import pad
from cse_core.method import Tokens
from cse_core.methods import promptbert, sncse
from cse_core.methods.simcse import SimCSE
from cse_core.models import packed_forward
from cse_core.models.encoder import Encoder, pool
from cse_core.models.pretrained import ASSETS, encoder_hash, resolve
from cse_core.run import POOLINGS, Corpus, Pretrained, Run
from cse_core.text.prompts import prompt_ids
from cse_core.training.run_state import History
from cse_core.training.train import train
from tests.support.encoders import wiki_tiny

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
    old = tmp_path / "old"
    Encoder.from_pretrained("wiki-tiny").save_pretrained(old)
    left_over = ("modules.json", "2_Dense/model.safetensors", "adapter_config.json")
    for name in left_over:
        (old / name).parent.mkdir(exist_ok=True)
        (old / name).write_text("x")
    encoder = Encoder.from_pretrained(
        "wiki-tiny", pooling="first_last_mean"
    )  # sentence-transformers has no form for it
    encoder.save_pretrained(old)
    assert not any((old / name).exists() for name in left_over)
    before = load_file(old / "model.safetensors")
    Encoder.from_pretrained(old).save_pretrained(old)
    after = load_file(old / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before.keys() == after.keys()


@pytest.mark.parametrize("again", [False, True])
def test_saving_deletes_no_file_that_is_of_no_encoder(again: bool, tmp_path: Path) -> None:
    encoder, names = Encoder.from_pretrained("wiki-tiny"), ("notes.txt", "thesis/chapter.txt", "README.md")
    if again:
        encoder.save_pretrained(tmp_path)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    encoder.save_pretrained(tmp_path)
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * 3
    assert Encoder.from_pretrained(tmp_path).pooling == encoder.pooling


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


def test_unknown_names_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"pooling must be one of cls, mean, .*, got 'max'"):
        Encoder.from_pretrained("wiki-tiny", pooling="max")
    places = r"backbone 'nobody/nothing': neither embedded \(wiki-medium, wiki-mini, wiki-tiny\), "
    places += r"nor a folder with a config.json, nor in CSE_ENCODERS \(unset\), "
    with pytest.raises(FileNotFoundError, match=places + "nor available from the Hugging Face hub"):
        resolve("nobody/nothing")


def test_duplicates_get_equal_vectors_and_pass_once(encoder: Encoder) -> None:
    counts: list[int] = []
    texts = [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[2], TEXTS[1], TEXTS[0]]
    vectors = encoder.encode(texts, 2, progress=counts.append)
    assert counts == [2, 1]
    assert all(torch.equal(vectors[i], vectors[j]) for i, j in ((0, 2), (0, 5), (1, 4)))
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


@pytest.mark.parametrize("backbone", ["wiki-tiny", "wiki-mini"])
def test_the_embedded_tokenizers_lower_case_and_mark_both_ends(backbone: str) -> None:
    encoder = Encoder.from_pretrained(backbone)
    (ids,) = encoder.tokenise(["The CAT sat."])
    assert encoder.tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "the", "cat", "sat", ".", "[SEP]"]
    assert encoder.tokenise(["Café"]) == encoder.tokenise(["cafe"])
    assert (encoder.pad_id, encoder.tokenizer.model_max_length, encoder.width) == (0, LIMIT, 128)
    assert encoder.tokenizer.unk_token_id not in encoder.tokenise(["unbelievably zyxxish"])[0]


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


FIRST, SECOND = promptbert.TEMPLATES["bert"]
PROMPTED = [
    "A cat sat.",
    "the old man walked his dog along the river before breakfast",
    "no?",
    "É û",
    "",
    "two [MASK] men",
]


def prompting(template: str = FIRST, folder: Path | str = "wiki-tiny", **options: Any) -> Encoder:
    return Encoder.from_pretrained(folder, pooling="mask", template=template, **options)


def made(pooling: str, folder: Path | str = "wiki-tiny") -> Encoder:
    return prompting(folder=folder) if pooling == "mask" else Encoder.from_pretrained(folder, pooling=pooling)


@pytest.fixture(scope="module")
def prompted() -> Encoder:
    return prompting()


@cache
def loaded(folder: Path) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def filled_by_hand(folder: Path, text: str, template: str) -> torch.Tensor:
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
    vectors = prompting(template).encode(PROMPTED, 4)
    expected = torch.stack([filled_by_hand(ASSETS / "wiki-tiny", text, template) for text in PROMPTED])
    assert torch.allclose(vectors, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("template", promptbert.TEMPLATES["roberta"])
def test_robertas_vector_is_the_state_at_the_mask_too(roberta: Path, template: str) -> None:
    texts = ["dogs", "The dog runs.", "no?"]
    expected = torch.stack([filled_by_hand(roberta, text, template) for text in texts])
    assert torch.allclose(prompting(template, roberta).encode(texts), expected, atol=1e-5, rtol=0)


def test_a_sentence_longer_than_the_limit_keeps_the_template(prompted: Encoder) -> None:
    long = " ".join(["river", "stone", "bird"] * 3_000)
    short = " ".join((["river", "stone", "bird"] * 20)[: LIMIT - 10])  # ten pieces are the template's
    (ids,) = prompted.tokenise([long])
    assert ids == prompted.tokenizer(FIRST.replace("{}", short))["input_ids"]
    assert len(ids) == prompted.max_length == LIMIT
    assert torch.allclose(prompted.encode([long])[0], prompted.embed([ids])[0], atol=1e-5)


def test_given_ids_are_embedded_at_their_mask_under_any_template(prompted: Encoder) -> None:
    assert torch.allclose(prompted.embed(prompted.tokenise(PROMPTED), 4), prompted.encode(PROMPTED), atol=1e-5)
    ids = prompt_ids(["a cat.", "A man sat."], SECOND, prompted.tokenizer, 20)
    expected = torch.stack([filled_by_hand(ASSETS / "wiki-tiny", text, SECOND) for text in ("a cat.", "A man sat.")])
    assert torch.allclose(prompted.embed(ids), expected, atol=1e-5)
    for parts in prompted(pad(ids, 0), pad(ids[:1], 0)):
        assert torch.allclose(parts, expected[: len(parts)], atol=1e-5)


def test_no_sentences_and_templates_without_room(prompted: Encoder) -> None:
    assert prompted.encode([]).shape == (0, 128)
    with pytest.raises(ValueError, match="leaves room for 0 word pieces of the sentence, expected at least one"):
        prompted.with_pooling("mask", FIRST, 10).tokenise(["a"])
    assert [len(ids) for ids in prompted.with_pooling("mask", FIRST, 11).tokenise(["a b c d"])] == [11]


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
    for prompted in (wiki_tiny(), prompting()):
        with pytest.raises(ValueError, match=go_together):
            prompted.with_pooling("mask")


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["top2_mean", "first_last_mean", "mask"])
def test_a_kept_folder_gives_the_same_vectors(tmp_path: Path, pooling: str) -> None:
    prompted = made(pooling)
    before = prompted.encode(PROMPTED)
    with torch.no_grad():
        for parameter in prompted.backbone.parameters():
            parameter.mul_(1.01)
    prompted.with_pooling("cls").save_pretrained(tmp_path / "kept")  # what another pooling left there is gone
    prompted.save_pretrained(tmp_path / "kept")
    again = Encoder.from_pretrained(tmp_path / "kept", dropout=0.0)
    assert (again.pooling, again.template) == (pooling, FIRST if pooling == "mask" else "")
    assert torch.equal(again.encode(PROMPTED), prompted.encode(PROMPTED))
    assert not torch.allclose(again.encode(PROMPTED), before, atol=1e-3)
    named = {path.name for path in (tmp_path / "kept").iterdir()}
    assert "encoder.json" in named
    assert named & {"modules.json", "1_Pooling", "sentence_bert_config.json"} == set()
    other = Encoder.from_pretrained(tmp_path / "kept", pooling="mean")
    assert (other.pooling, other.template) == ("mean", "")
    assert torch.allclose(other.encode(PROMPTED), prompted.with_pooling("mean").encode(PROMPTED), atol=1e-6)
    prompted = prompting(SECOND, tmp_path / "kept")
    assert torch.equal(prompted.encode(["a"]), prompted.embed(prompt_ids(["a."], SECOND, prompted.tokenizer, 9)))


def test_hashes_of_templates_and_poolings_differ(tmp_path: Path) -> None:
    prompted = prompting()
    for name, pooling, template in (
        ("first", "mask", FIRST),
        ("again", "mask", FIRST),
        ("second", "mask", SECOND),
        ("top2", "top2_mean", ""),
        ("cls", "cls", ""),
    ):
        prompted.with_pooling(pooling, template).save_pretrained(tmp_path / name)
    found = {folder.name: encoder_hash(folder) for folder in tmp_path.iterdir()}
    assert found["first"] == found["again"]
    assert len(set(found.values())) == 4


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last_mean"])
def test_the_same_weights_under_another_pooling(prompted: Encoder, pooling: str) -> None:
    plain, view = made(pooling), prompted.with_pooling(pooling)
    assert (view.pooling, view.template, view.max_length) == (pooling, "", LIMIT)
    assert view.backbone is prompted.backbone
    assert torch.equal(view.encode(PROMPTED), plain.encode(PROMPTED))
    back = plain.with_pooling("mask", FIRST)
    assert (back.pooling, back.template, back.name) == ("mask", FIRST, "wiki-tiny")
    assert torch.equal(back.encode(PROMPTED), prompted.encode(PROMPTED))
    assert not torch.allclose(plain.with_pooling("mask", SECOND).encode(PROMPTED), prompted.encode(PROMPTED), atol=1e-2)
    assert (prompted.pooling, prompted.template, plain.pooling, plain.template) == ("mask", FIRST, pooling, "")


@pytest.mark.parametrize("pooling", ["cls", "mean", "mask"])
@pytest.mark.slow
def test_the_same_pooling_of_fewer_tokens(pooling: str) -> None:
    prompted, long = made(pooling), " ".join(["river", "stone", "bird"] * 10)
    for longest, expected in ((14, 14), (LIMIT, LIMIT), (1_000, LIMIT), (None, LIMIT)):
        view = prompted.with_pooling(pooling, prompted.template, longest)
        assert (view.pooling, view.template, view.max_length) == (pooling, prompted.template, expected)
        assert max(map(len, view.tokenise([*PROMPTED, long * 5]))) == expected
    cut = prompted.with_pooling(pooling, prompted.template, 14).encode([long])
    words = " ".join(long.split()[: 4 if prompted.template else 12])
    ids = prompted.tokenizer(FIRST.replace("{}", words) if prompted.template else words)["input_ids"]
    assert torch.allclose(cut, prompted.embed([ids]), atol=1e-5)
    assert not torch.allclose(cut, prompted.encode([long]), atol=1e-2)


def shifted_tokens(prompted: Encoder, shift: int | None, texts: list[str]) -> Tokens:
    """Padded ids; from the third token on at positions `shift` later, or without positions."""
    tokens = pad(prompted.tokenise(texts), prompted.pad_id)
    places = torch.arange(tokens.ids.shape[1])
    positions = None if shift is None else (places + shift * (places > 1)).expand_as(tokens.ids)
    return Tokens(tokens.ids, tokens.mask, positions)


@pytest.mark.parametrize("pooling", ["cls", "mean", "mask"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.slow
def test_positions_count_from_the_first_token(family: str, pooling: str, roberta: Path) -> None:
    folder = roberta if family == "roberta" else ASSETS / "wiki-tiny"
    prompted, texts = made(pooling, folder), ["The dog runs.", "no"]
    (usual,), (given,) = (prompted(shifted_tokens(prompted, shift, texts)) for shift in (None, 0))
    assert torch.allclose(given, usual, atol=1e-6)
    tokens = shifted_tokens(prompted, 3, texts)
    (moved,) = prompted(tokens)
    assert ((moved - usual).norm(dim=1) > 1e-3).all()
    for row, vector in zip(tokens.ids, moved, strict=True):
        ids = row[row != prompted.pad_id]
        first = 2 if family == "roberta" else 0
        places = torch.tensor([[first + i + 3 * (i > 1) for i in range(len(ids))]])
        states = prompted.backbone(input_ids=ids[None], position_ids=places).last_hidden_state[0]
        if pooling == "mean":
            expected = states.mean(0)
        else:
            expected = states[ids.tolist().index(prompted.tokenizer.mask_token_id) if pooling == "mask" else 0]
        assert torch.allclose(vector, expected, atol=1e-5)


def test_given_positions_and_usual_ones_in_one_pass(prompted: Encoder) -> None:
    plain, shifted = shifted_tokens(prompted, None, PROMPTED[:2]), shifted_tokens(prompted, 5, ["no?"])
    for parts in ((plain, shifted), (shifted, plain), (shifted, shifted)):
        alone = [prompted(part)[0] for part in parts]
        for together, expected in zip(prompted(*parts), alone, strict=True):
            assert torch.allclose(together, expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "first_last_mean", "mask"])
def test_states_are_the_last_layers_of_every_token(pooling: str) -> None:
    prompted = made(pooling)
    tokens = shifted_tokens(prompted, None, PROMPTED)
    states = prompted.states(tokens)
    assert states.shape == (*tokens.ids.shape, 128)
    assert states.requires_grad
    for row, found in zip(tokens.ids, states, strict=True):
        ids = row[row != prompted.pad_id]
        expected = prompted.backbone(input_ids=ids[None]).last_hidden_state[0]
        assert torch.allclose(found[: len(ids)], expected, atol=1e-5)
    if pooling == "cls":
        assert torch.allclose(states[:, 0], prompted(tokens)[0], atol=1e-5)  # whose last layer saw only these tokens
    prompted.precision = "bf16"
    trained = prompted.train().states(tokens)
    assert trained.dtype == torch.float32
    assert not torch.allclose(trained, states, atol=0.1)  # dropout


def test_a_text_without_a_mask_is_named() -> None:
    prompted = wiki_tiny(pooling="mask", template='The "{}" [MASK].')
    ids = prompted.tokenise(["a cat", "a dog"])
    with pytest.raises(ValueError, match="wiki-tiny: pooling 'mask' requires a mask in every text, row 1 has none"):
        prompted(pad([ids[0], [2, 5, 6, 3]], prompted.pad_id))


RUN = Run(
    method=SimCSE(),
    backbone=Pretrained("wiki-tiny"),
    corpus=Corpus("synthetic", 2048),
    learning_rate=3e-4,
    dropout=0.3,
    eval_steps=16,
)


def dev(history: History) -> np.ndarray:
    return np.array([100 * score for _, score in history.curves["dev/synthetic_dev"]])


@pytest.mark.slow
@pytest.mark.nightly
def test_bf16_gives_the_dev_curve_of_fp32(cache: Path, tmp_path: Path) -> None:
    """Two seeds differ by more than a point; two precisions of one seed by a tenth at most."""
    found = {
        (seed, precision): train(replace(RUN, seed=seed, precision=precision), tmp_path, rules=("synthetic_dev",))
        for seed, precision in ((1, "fp32"), (1, "bf16"), (2, "fp32"))
    }
    fp32, bf16, other = found.values()
    assert np.abs(dev(fp32) - dev(bf16)).max() < 0.1
    assert np.abs(dev(fp32) - dev(other)).max() > 1
    losses = [np.array(history.curves["loss"])[:, 1] for history in (fp32, bf16)]
    assert np.abs(losses[0] - losses[1]).max() < 0.05
    assert (losses[0] != losses[1]).any()  # it was another rounding


def test_roberta_cuts_texts_where_its_position_table_ends_and_padding_moves_no_sentence(roberta: Path) -> None:
    encoder = Encoder.from_pretrained(roberta)
    assert (encoder.max_length, encoder.pad_id) == (40, 1)  # two of the 42 positions are never used
    vectors = encoder.encode(["The dog runs.", "word " * 500])
    assert vectors.isfinite().all()
    assert torch.allclose(encoder.encode(["The dog runs."]), vectors[:1], atol=1e-6)
