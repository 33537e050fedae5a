"""CompCSE and its controls against loops written from the paper, closed forms, its null, examples of real words."""

import math
from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast

from cse_core.data import corpora, examples
from cse_core.data.batches import pad
from cse_core.method import Batch, Tokens
from cse_core.methods.compcse import PUBLISHED, CompCSE, compose, crops, shuffled_parts, split
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus
from cse_core.text.clauses import adjacent, clauses, overlapping, subsuming
from tests.support.encoders import wiki_tiny
from tests.support.method_steps import Views, refuses, seeded, views_of

WIDTH = 5  # odd, so that the halves of a vector differ
OF_TWO = ("concat", "concat_project", "difference_project")
COMPOUND = "When the rain stopped, the old man left the house, and his dog followed him, but the cat stayed at home."
LONG = " ".join(f"the old fisherman sold his {n} unsalted herrings and" for n in range(9))
TEXTS = ["a cat sat on a mat", "snow fell", "unconscionable", " ", "one\ttwo  three", LONG, "[SEP] or not", COMPOUND]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny(dropout=0.0)


def setting(method: CompCSE, n: int = 4) -> tuple[Views, list[str], Batch, nn.ModuleDict]:
    """An encode, the columns that it should be asked for, a batch of them, and modules with weights of size one."""
    parts = [f"part{i}" for i in range(1, method.parts + 1)]
    names = parts * 2 if method.side == "both" else ["anchor", *parts]
    columns = {name: Tokens(torch.ones(n, 2).long(), torch.ones(n, 2).bool()) for name in names}
    modules = method.modules(SimpleNamespace(width=WIDTH), torch.Generator()).double()
    for parameter in modules.parameters():
        nn.init.normal_(parameter, generator=seeded(parameter.numel()))
    draw = torch.randn(len(names), n, WIDTH, generator=seeded(0), dtype=torch.float64)
    views = tuple(h.clone().requires_grad_() for h in draw)
    return Views(*views), names, Batch(torch.arange(n), columns, torch.Generator()), modules


def nce_loop(rows: Any, columns: Any, temperature: float) -> float:
    lengths = [[np.linalg.norm(a) * np.linalg.norm(b) for b in columns] for a in rows]
    logits = [[a @ b / lengths[i][j] / temperature for j, b in enumerate(columns)] for i, a in enumerate(rows)]
    return -sum(row[i] - np.log(np.exp(row).sum()) for i, row in enumerate(logits)) / len(rows)


def loss_loop(method: CompCSE, modules: nn.ModuleDict, views: tuple[torch.Tensor, ...]) -> float:
    """The loss from what the encoder gave, one sentence after the other."""
    weights = {name: value.numpy() for name, value in modules.state_dict().items()}

    def head(h: Any) -> Any:
        return np.tanh(weights["head.0.weight"] @ h + weights["head.0.bias"])

    def joined(parts: list[Any]) -> Any:
        if method.compose in ("average", "sum"):
            return sum(parts) / (len(parts) if method.compose == "average" else 1)
        left, right = parts
        if method.compose == "concat":
            return np.array([left[i] if i < WIDTH // 2 else right[i] for i in range(WIDTH)])
        difference = abs(left - right) if method.compose == "difference_project" else []
        return weights["projection.weight"] @ [*left, *right, *difference] + weights["projection.bias"]

    def composed(parts: list[Any]) -> Any:
        return joined([head(h) for h in parts]) if method.order == "after_head" else head(joined(parts))

    k, sentences = method.parts, [list(s) for s in zip(*(view.detach().numpy() for view in views), strict=True)]
    columns = [composed(s[-k:])[: method.dims] for s in sentences]
    rows = [(composed(s[:k]) if method.side == "both" else head(s[0]))[: method.dims] for s in sentences]
    return nce_loop(*((columns, rows) if method.side == "anchor" else (rows, columns)), method.temperature)


@pytest.mark.parametrize("dims", [None, 3])
@pytest.mark.parametrize("order", ["before_head", "after_head"])
@pytest.mark.parametrize("side", ["positive", "anchor", "both"])
@pytest.mark.parametrize(
    ("how", "parts", "n"), [*((how, 2, 4) for how in OF_TWO), ("average", 2, 2), ("average", 3, 4), ("sum", 4, 3)]
)
def test_the_loss_is_the_equation(how: Any, parts: int, n: int, side: Any, order: Any, dims: int | None) -> None:
    method = CompCSE(compose=how, parts=parts, side=side, order=order, dims=dims, temperature=0.3)
    encode, names, batch, modules = setting(method, n)
    loss = method.loss(encode, batch, modules, {})
    assert loss.total.item() == pytest.approx(loss_loop(method, modules, encode.embed()), rel=1e-9)
    assert list(loss.terms.items()) == [("contrastive", loss.total)]
    rows, columns = (view.detach().numpy()[:, :dims] for view in views_of(loss))
    assert nce_loop(rows, columns, 0.3) == pytest.approx(loss.total.item(), rel=1e-9)
    (asked,) = encode.asked  # one pass of the encoder
    assert [id(tokens) for tokens in asked] == [id(batch[name]) for name in names]
    gradients = torch.autograd.grad(loss.total, [*encode.embed(), *modules.parameters()])
    assert min(gradient.abs().max() for gradient in gradients) > 1e-6
    moved = (tuple(h + step * h.sin() for h in encode.embed()) for step in (1e-5, -1e-5))
    up, down = (loss_loop(method, modules, views) for views in moved)
    slope = sum((g * h.sin()).sum().item() for g, h in zip(gradients, encode.embed(), strict=False))
    assert (up - down) / 2e-5 == pytest.approx(slope, rel=1e-4, abs=1e-7)  # so no gradient is stopped


def test_closed_forms_of_compositions() -> None:
    h = torch.randn(4, WIDTH, dtype=torch.float64)
    for k in (2, 3):
        assert torch.allclose(compose([h] * k, "average"), h, rtol=1e-15)
        assert torch.allclose(compose([h] * k, "sum"), k * h, rtol=1e-15)
    assert torch.equal(compose([h, h], "concat"), h)
    assert compose([torch.zeros(1, 4), torch.ones(1, 4)], "concat").tolist() == [[0, 0, 1, 1]]


def test_identical_parts_without_dropout_are_simcse(encoder: Encoder) -> None:
    """The null: both parts the sentence itself. Holds for halves of either and for a sum after the head, too."""
    tokens = pad(encoder.tokenise(TEXTS), encoder.pad_id)
    batch = Batch(torch.arange(8), dict.fromkeys(("text", "anchor", "part1", "part2"), tokens), torch.Generator())

    def total(method: SimCSE | CompCSE) -> float:
        modules = method.modules(encoder, seeded(2))
        with torch.no_grad():
            return method.loss(encoder.train(), batch, modules, {}).total.item()

    expected = total(SimCSE())
    null: list[Any] = [("average", "before_head"), ("concat", "before_head"), ("sum", "after_head")]
    sides: list[Any] = ["positive", "anchor", "both"]
    for how, order in null:
        for side in sides:
            assert total(CompCSE(compose=how, order=order, side=side)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("how", "inputs"), [("concat_project", 256), ("difference_project", 384), ("average", 0)])
def test_modules_are_the_head_of_simcse_and_then_the_projection(how: Any, inputs: int, encoder: Encoder) -> None:
    def drawn(method: SimCSE | CompCSE, surroundings: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(surroundings)
        return method.modules(encoder, seeded(2)).state_dict()

    found, again, head = drawn(CompCSE(compose=how), 0), drawn(CompCSE(compose=how, dims=128), 1), drawn(SimCSE(), 2)
    assert all(torch.equal(found[name], again[name]) for name in found)
    assert all(torch.equal(found[name], head[name]) for name in head)
    shapes = {name: tuple(value.shape) for name, value in found.items() if name not in head}
    assert shapes == ({"projection.weight": (128, inputs), "projection.bias": (128,)} if inputs else {})
    for name in shapes:  # uniform: second moment limit^2 / 3, within four standard errors
        scaled = found[name].double().flatten() * inputs**0.5
        assert 0.95 < scaled.abs().max() <= 1
        assert scaled.square().mean().item() == pytest.approx(1 / 3, abs=4 * (4 / 45 / len(scaled)) ** 0.5)
    with pytest.raises(ValueError, match="dims must be at most the encoder's width 128, got 129"):
        CompCSE(compose=how, dims=129).modules(encoder, torch.Generator())


@given(st.lists(st.integers(), max_size=40), st.integers(2, 7))
def test_a_split_gives_the_sequence_back(ids: list[int], parts: int) -> None:
    found, filled = split(ids, parts), min(parts, len(ids))
    assert list(chain.from_iterable(found[:filled])) == ids
    sizes = [len(part) for part in found[:filled]]
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or sizes[0] - sizes[-1] <= 1 <= sizes[-1]
    assert found[filled:] == [ids] * (parts - filled)  # the parts that would be empty


def test_splits_by_hand() -> None:
    assert (split((1, 2, 3, 4, 5), 2), split("abcd", 3)) == ([[1, 2, 3], [4, 5]], [["a", "b"], ["c"], ["d"]])
    assert (split("a", 2), split([1, 2], 3), split([], 2)) == ([["a"], ["a"]], [[1], [2], [1, 2]], [[], []])
    with pytest.raises(ValueError, match="parts must be at least 2, got 1"):
        split([1, 2], 1)


sequences, parts_of = st.lists(st.integers(), max_size=40), st.integers(2, 6)


@pytest.mark.slow
@given(sequences, parts_of, st.text())
def test_a_crop_is_a_window_as_long_as_a_share(ids: list[int], parts: int, text: str) -> None:
    found, size = crops(ids, parts, text), math.ceil(len(ids) / parts)
    windows = [ids[start : start + size] for start in range(len(ids) - size + 1)]
    assert len(found) == parts
    assert all(part in windows for part in found)
    assert found == crops(ids, parts, text)


@given(sequences, parts_of, st.text())
def test_shuffled_parts_hold_every_id_once_cut_as_usual(ids: list[int], parts: int, text: str) -> None:
    found, usual = shuffled_parts(ids, parts, text), split(ids, parts)
    assert [len(part) for part in found] == [len(part) for part in usual]
    filled = min(parts, len(ids))
    assert Counter(i for part in found[:filled] for i in part) == Counter(ids)
    assert found == shuffled_parts(ids, parts, text)


def test_the_first_part_without_the_second_is_no_composition() -> None:
    first, second = torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, 7.0]])
    assert torch.equal(compose([first, second], "first"), first)
    assert torch.equal(compose([first, first], "average"), first)


def test_every_window_and_every_order_is_as_likely() -> None:
    """Seven ids have four windows of four and, of three, six orders; sentences, and parts, draw independently."""
    texts, ids = [f"sentence {i}" for i in range(4_000)], list(range(7))
    starts = Counter(tuple(part[0] for part in crops(ids, 2, text)) for text in texts)
    assert len(starts) == 16  # of the two parts together: windows may be the same, overlap, or leave ids out
    assert all(abs(count / 4_000 - 1 / 16) < 5 * math.sqrt(15 / 256 / 4_000) for count in starts.values())
    orders = Counter(tuple(i for part in shuffled_parts(ids[:3], 2, text) for i in part) for text in texts)
    assert len(orders) == 6
    assert all(abs(count / 4_000 - 1 / 6) < 5 * math.sqrt(5 / 36 / 4_000) for count in orders.values())


def test_draws_do_not_move_with_versions_or_processes() -> None:
    assert crops(range(20), 2, "a cat sat")[0] == [*range(6, 16)]
    assert shuffled_parts(range(6), 2, "a cat sat") == [[5, 1, 0], [3, 2, 4]]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def tokenizer(request: pytest.FixtureRequest, encoder: Encoder) -> Any:
    """The backbone's; and one as RoBERTa's, where blanks are part of words and <s> and </s> are around a text."""
    if request.param == "bert":
        return encoder.tokenizer
    tokens = ["<s>", "<pad>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "Ġth"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    raw: Any = Tokenizer(models.BPE(vocabulary, [("Ġ", "t"), ("Ġt", "h")]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=raw, cls_token="<s>", sep_token="</s>", pad_token="<pad>")


@pytest.mark.parametrize("split_on", ["wordpieces", "words", "truncated", "crops", "shuffled"])
@pytest.mark.parametrize(("length", "parts"), [(3, 2), (8, 3), (32, 2)])
def test_examples_are_the_sentence_and_its_parts(split_on: Any, length: int, parts: int, tokenizer: Any) -> None:
    found = CompCSE(split_on=split_on, parts=parts).examples(TEXTS, tokenizer, length)
    assert found.pop("anchor") == SimCSE().examples(TEXTS, tokenizer, length)["text"]
    assert list(found) == [f"part{i + 1}" for i in range(parts)]
    first, last, room = tokenizer.cls_token_id, tokenizer.sep_token_id, length - 2
    for text, own in zip(TEXTS, zip(*found.values(), strict=True), strict=True):
        pieces = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
        units = {"words": text.split(), "truncated": pieces[:room]}.get(split_on, pieces)
        cut = [part.tolist() or units for part in np.array_split(np.array(units, dtype=object), parts)]
        if drawn := {"crops": crops, "shuffled": shuffled_parts}.get(split_on):
            cut = drawn(pieces, parts, text)  # of the whole sentence, before a part is cut to the length
        if split_on == "words":
            cut = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(" ".join(part))) for part in cut]
        assert list(own) == [[first, *ids[:room], last] for ids in cut]


@pytest.mark.parametrize("split_on", ["wordpieces", "words"])
@pytest.mark.parametrize("strategy", [adjacent, overlapping, subsuming])
def test_phrases_follow_their_sentence(strategy: Any, split_on: Any, tokenizer: Any) -> None:
    """Rows in order: a sentence's own, then its triples', each a text cut like any other."""
    plain, method = CompCSE(split_on=split_on), CompCSE(split_on=split_on, subsampling=strategy.__name__)
    texts = ["no", COMPOUND, " ", COMPOUND.replace("man", "woman")]
    found, own = method.examples(texts, tokenizer, 12), plain.examples(texts, tokenizer, 12)
    for i, name in enumerate(("anchor", "part1", "part2")):
        expected = []
        for text, ids in zip(texts, own[name], strict=True):
            phrases = (tokenizer(t[i], truncation=True, max_length=12)["input_ids"] for t in strategy(clauses(text)))
            expected += [ids, *phrases]
        assert found[name] == expected != own[name]
    assert method.examples(["no", " "], tokenizer, 8) == plain.examples(["no", " "], tokenizer, 8)
    assert (method.substituted, plain.substituted) == ("clause splitter for the paper's discourse parser", "")


@pytest.mark.slow
@pytest.mark.parametrize("split_on", ["wordpieces", "words", "truncated"])
def test_parts_of_real_sentences_rebuild_them(split_on: Any, real_data: Path, cache: Path, encoder: Encoder) -> None:
    corpus, tokenizer = Corpus("wiki_sentences_1m", 2000), encoder.tokenizer
    table = examples.examples(corpus, CompCSE(split_on=split_on), tokenizer, 512, real_data)
    texts = list(corpora.sentences(corpus, real_data)["text"])
    whole = tokenizer(texts, add_special_tokens=False)["input_ids"]
    for row, text, ids in zip(table.to_list(), texts, whole, strict=True):
        anchor, left, right = (row[name][1:-1] for name in ("anchor", "part1", "part2"))
        units = text.split() if split_on == "words" else ids
        assert (left + right if len(units) > 1 else left) == anchor == ids
        assert left != ids or len(units) == 1


test_impossible_settings_are_refused = refuses(
    CompCSE,
    ({"parts": 1}, "parts must be at least 2, got 1"),
    ({"dims": 0}, "dims must be at least 1, or None for all, got 0"),
    ({"parts": 3, "subsampling": "adjacent"}, "subsampling cuts a phrase in two parts, got parts=3"),
    *(({"parts": 3, "compose": how}, f"{how} composes two parts, got parts=3") for how in OF_TWO),
)


def test_impossible_compositions_are_refused() -> None:
    h = torch.ones(4, WIDTH)
    refused = [(how, 3, f"{how} composes two parts, got 3") for how in OF_TWO]
    refused += [(how, 2, f"{how} needs a projection, got none") for how in OF_TWO[1:]]
    for how, parts, message in [*refused, ("max", 2, "compose must be one of average, sum, .*, got 'max'")]:
        with pytest.raises(ValueError, match=message):
            compose([h] * parts, how)


def test_published_settings_are_the_best_of_their_tables() -> None:
    from experiments.schema.study import published_lines

    def best(table: int, backbone: str) -> str:
        lines = [row for row in published_lines(f"compcse_table{table}") if row["backbone"] == backbone]
        return max((row for row in lines if row["method"] == "CompCSE"), key=lambda row: float(row["value"]))["variant"]

    assert [best(2, "BERT-base"), best(2, "BERT-large")] == ["w/ composition", "+subsuming"]
    assert [best(2, "RoBERTa-base"), best(2, "RoBERTa-large")] == ["w/ composition", "w/ composition"]
    assert [best(3, "BERT-base"), best(3, "RoBERTa-base")] == ["avg", "concat first & last half"]
    assert [best(6, "BERT-base"), best(6, "BERT-large")] == ["d0=256", "d0=1024"]  # 1024 is all
    assert {name: (recipe.learning_rate, recipe.method) for name, recipe in PUBLISHED.items()} == {
        "bert-base-uncased": (3e-5, CompCSE(dims=256)),
        "bert-large-uncased": (1e-5, CompCSE(subsampling="subsuming")),
        "roberta-base": (3e-5, CompCSE(compose="concat")),
        "roberta-large": (1e-5, CompCSE(compose="concat")),
    }
    assert {(recipe.batch_size, recipe.epochs, recipe.warmup) for recipe in PUBLISHED.values()} == {(64, 1, 0)}
