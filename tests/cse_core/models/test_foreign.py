"""Encoders of others: every family, pooling and setting has sentence-transformers' vectors, or a reason why not.

`python -m tests.cse_core.models.test_foreign` writes the table of docs/evaluations.md.
"""

import json
import logging
import os
import pickle
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, StaticEmbedding, Transformer
from torch import Tensor
from transformers import AutoModel

from cse_core import api
from cse_core.data.senteval import pairs
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.functional.contrastive import pair_cosines
from cse_core.metrics.correlation import correlations
from cse_core.models.embedding_cache import CachedEncoder
from cse_core.models.encoder import Encoder
from cse_core.models.foreign import ForeignEncoder, open_encoder
from cse_core.models.pretrained import ASSETS, encoder_hash, resolve, resolve_pinned
from cse_core.run import Pretrained
from tests.support.families import FAMILIES, OTHERS, WIDTH, change, modules_folder, plain_folder, tokenizer

PAGE = Path(__file__).parents[3] / "docs/evaluations.md"
HEAD = "| family | pooling | as saved | 12 tokens | Normalize | prompt | vectors differ by |\n"
POOLINGS = ("cls", "mean", "max")
TEXTS = ["A man plays.", "", "two  dogs run ", "Ünïcödé — and [MASK]", "long river " * 60, " a man", "A MAN"]
PADDED = "[PAD] in a [PAD] text [SEP] of <pad> its </s> own"  # RoBERTa's own forward counts on behind a padding
TOLD = re.compile(r"\| (\S+) \| (\S+) \|(.+)\|")


def theirs(folder: Path, texts: Sequence[str] = TEXTS) -> Tensor:
    return SentenceTransformer(str(folder), device="cpu").encode(list(texts), convert_to_tensor=True)


def assert_as_theirs(folder: Path, texts: Sequence[str] = TEXTS) -> None:
    torch.testing.assert_close(open_encoder(folder).encode(texts), theirs(folder, texts), atol=1e-6, rtol=0)


def assert_saved_whole(encoder: Encoder, folder: Path) -> None:
    """The encoder, saved into the folder and opened again, has the same vectors to the bit."""
    encoder.save_pretrained(folder)
    again = open_encoder(folder)
    assert isinstance(again, Encoder)
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))


def edit_modules(folder: Path, place: int = 0, **fields: Any) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[place] |= fields
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return plain_folder(tmp_path / "plain", "bert")


@pytest.fixture
def folder(plain: Path, tmp_path: Path) -> Path:
    return modules_folder(tmp_path / "modules", plain, "mean")


def settings(folder: Path, plain: Path, pooling: str) -> dict[str, Path]:
    """One folder a setting."""
    folders = {name: modules_folder(folder / name, plain, pooling) for name in ("as saved", "12 tokens", "prompt")}
    change(folders["12 tokens"] / "sentence_bert_config.json", max_seq_length=12)
    prompts = {"prompts": {"query": "a question of a river: "}, "default_prompt_name": "query"}
    change(folders["prompt"] / "config_sentence_transformers.json", **prompts)
    folders["Normalize"] = modules_folder(folder / "Normalize", plain, pooling, Normalize())
    return {name: folders[name] for name in ("as saved", "12 tokens", "Normalize", "prompt")}


def row(folder: Path, family: str, pooling: str) -> tuple[list[tuple[float, float]], float]:
    """Our score and theirs by setting, and how far vectors are apart at most."""
    table = pairs("synthetic_dev").table
    first, second, gold = table["sentence1"][:80], table["sentence2"][:80], np.asarray(table["score"][:80])
    scores, most = [], 0.0
    for name, path in settings(folder, plain_folder(folder / "plain", family), pooling).items():
        both, encoder, texts = [], open_encoder(path), [*first, *second, *TEXTS, PADDED]
        if name == "as saved":
            assert isinstance(encoder, Encoder) == (family not in OTHERS and pooling != "max")
        vectors = [encoder.encode(texts), theirs(path, texts)]
        for each in vectors:
            cosines = pair_cosines(each[:80], each[80:160])[0]
            both.append(correlations(cosines, gold, ["all"] * 80)["spearman.all"])
        most = max(most, float((vectors[0] - vectors[1]).abs().max()))
        scores.append((both[0], both[1]))
    return scores, most


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_pooling_and_setting_has_the_vectors_of_sentence_transformers(
    family: str, pooling: str, tmp_path: Path
) -> None:
    scores, most = row(tmp_path, family, pooling)
    assert most <= 1e-6
    assert all(ours == pytest.approx(other, abs=1e-3) for ours, other in scores)
    assert len({f"{ours:.3f}" for ours, _ in scores}) >= 2  # settings change scores
    stated = {found.group(1, 2): found[3] for line in PAGE.read_text().splitlines() if (found := TOLD.fullmatch(line))}
    cells = [cell.split(", ") for cell in stated[family, pooling].split(" | ")[:-1]]
    assert [float(cell[0]) for cell in cells] == pytest.approx([ours for ours, _ in scores], abs=2e-3)


@pytest.mark.parametrize(
    ("limit", "of_tokenizer"), [(8, None), (8, 40), (40, 8), (None, 8)], ids=["8", "8 of 40", "40 of 8", "tokenizer's"]
)
def test_the_folder_s_limit_counts_before_the_tokenizer_s(
    limit: int | None, of_tokenizer: int | None, folder: Path, tmp_path: Path
) -> None:
    if limit:
        change(folder / "sentence_bert_config.json", max_seq_length=limit)
    if of_tokenizer:
        change(folder / "tokenizer_config.json", model_max_length=of_tokenizer)
    encoder = open_encoder(folder)
    assert isinstance(encoder, Encoder)
    assert encoder.max_length == (limit or of_tokenizer)
    assert_as_theirs(folder)
    assert_saved_whole(encoder, tmp_path / "again")


def test_how_many_texts_sentence_transformers_cuts_is_said(tmp_path: Path) -> None:
    rows = [("word " * count, "a man plays", str(count)) for count in (1, 6, 7, 20)]
    (tmp_path / "long.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    (name,) = suite.expand_names([str(tmp_path / "long.tsv")])
    folder = modules_folder(tmp_path / "cut", plain_folder(tmp_path / "plain", OTHERS[0]), "mean")
    change(folder / "sentence_bert_config.json", max_seq_length=8)
    encoder = open_encoder(folder)
    assert isinstance(encoder, ForeignEncoder)
    texts = {text.strip() for row in rows for text in row[:2]}
    tokenised: Any = encoder.model.tokenizer  # ty: ignore[missing-attribute]
    cut = sum(len(ids) > 8 for ids in tokenised([*texts])["input_ids"])
    assert cut > 1
    assert suite.evaluate(encoder, Cosine(), [name]).datasets[name].warnings == (
        f"{name}: {cut} of {len(texts)} texts are longer than 8 tokens and were cut",
    )


@pytest.mark.parametrize("cased", [True, False])
def test_do_lower_case_is_applied(cased: bool, tmp_path: Path) -> None:
    folder = modules_folder(tmp_path / "modules", plain_folder(tmp_path / "plain", "bert", cased=cased), "cls")
    if cased:
        a, b = open_encoder(folder).encode(["a man", "A MAN"])
        assert not torch.equal(a, b)
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    assert_as_theirs(folder)
    encoder = Encoder.from_pretrained(folder)
    assert torch.equal(*encoder.encode(["a man", "A MAN"]))
    assert_saved_whole(encoder, tmp_path / "again")


def test_normalize_is_kept_in_vectors_and_exports(plain: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(modules_folder(tmp_path / "modules", plain, "mean", Normalize()))
    assert encoder.encode(TEXTS).norm(dim=1).tolist() == pytest.approx([1] * len(TEXTS), abs=1e-6)
    for copied in (encoder.clone(), encoder.with_pooling("mean")):
        assert torch.equal(copied.encode(TEXTS), encoder.encode(TEXTS))
    assert_saved_whole(encoder, tmp_path / "again")
    assert_as_theirs(tmp_path / "again")


def old_layout(folder: Path, new: Path) -> Path:
    """As the library's first version saved it: the Transformer in a folder of its own."""
    shutil.copytree(new, folder / "0_Transformer", ignore=shutil.ignore_patterns("[1-9]_*", "modules*", "config_sent*"))
    for path in new.glob("[1-9]_*"):
        shutil.copytree(path, folder / path.name)
    shutil.copy(new / "modules.json", folder)
    edit_modules(folder, path="0_Transformer", type="sentence_transformers.models.Transformer")
    return folder


def test_folders_of_other_forms_have_the_vectors_of_sentence_transformers(
    plain: Path, folder: Path, tmp_path: Path
) -> None:
    dense = modules_folder(tmp_path / "dense", plain, "mean", Dense(WIDTH, 8))
    static, words = tmp_path / "static", tokenizer().backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)], device="cpu").save(str(static))
    shards = shutil.copytree(folder, tmp_path / "shards")
    (shards / "model.safetensors").unlink()
    AutoModel.from_pretrained(plain).save_pretrained(shards, max_shard_size="1MB")
    assert len(list(shards.glob("model-*"))) > 1
    old = old_layout(tmp_path / "old", folder)
    for each in (old, dense, static, shards):
        assert_as_theirs(each)
    for each in (old, shards):
        assert torch.equal(Encoder.from_pretrained(each).encode(TEXTS), Encoder.from_pretrained(folder).encode(TEXTS))
    view = Encoder.from_pretrained(old).with_pooling("pooler_output")
    assert torch.equal(view.encode(TEXTS), Encoder.from_pretrained(plain, pooling="pooler_output").encode(TEXTS))
    for each, name in ((dense, "Dense"), (static, "StaticEmbedding")):
        refusal = rf"its modules are .*{name}; sentence-transformers scores it, but it can't"
        with pytest.raises(ValueError, match=refusal):
            Encoder.from_pretrained(each)
        with pytest.raises(ValueError, match="an encoder of another library has no pooling, got 'mean'"):
            CachedEncoder(open_encoder(each)).with_pooling("mean")


@pytest.mark.parametrize("gone", ["1_Pooling", "1_Pooling/config.json", "2_Dense"])
def test_a_lost_module_is_an_error(gone: str, plain: Path, tmp_path: Path) -> None:
    folder = modules_folder(tmp_path / "modules", plain, "mean", Dense(WIDTH, 8))
    shutil.rmtree(folder / gone) if (folder / gone).is_dir() else (folder / gone).unlink()
    with pytest.raises(ValueError, match=rf"modules.json: names {gone[2:].partition('/')[0]} in .*{gone}.* is missing"):
        open_encoder(folder)


@pytest.mark.parametrize("weights", [True, False])
def test_relative_positions_are_refused(weights: bool, plain: Path) -> None:
    state = load_file(plain / "model.safetensors")
    name = "encoder.layer.0.attention.self.distance_embedding.weight"
    save_file(state | {name: torch.ones(9, 16)}, plain / "model.safetensors", metadata={"format": "pt"})
    if weights:
        message = rf"{name}, which a bert does not use"
    else:
        change(plain / "config.json", position_embedding_type="relative_key")
        message = "position_embedding_type is 'relative_key', which transformers no longer has for bert"
    for opened in (open_encoder, Encoder.from_pretrained):
        with pytest.raises(ValueError, match=message):
            opened(plain)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None], ids=str)
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_weights_that_are_missing_or_not_finite_are_refused(family: str, value: float | None, tmp_path: Path) -> None:
    """sentence-transformers itself gives the missing ones random numbers."""
    folder = plain_folder(tmp_path / "plain", family)
    state = load_file(folder / "model.safetensors")
    name = "embeddings.position_embeddings.weight"
    if value is None:
        del state[name]
    else:
        state[name][3, 3] = value
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"{name} (missing|holds numbers that are not finite)"):
        open_encoder(folder)


class TestPoolerOutput:
    """The trained pooling layer of a BERT, by which supervised SimCSE is scored."""

    @pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "camembert", "mpnet"])
    def test_it_is_the_model_s_own(self, family: str, tmp_path: Path) -> None:
        folder = plain_folder(tmp_path / "plain", family)
        tokens = tokenizer()(TEXTS, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            expected = AutoModel.from_pretrained(folder).eval()(**tokens).pooler_output
        encoder = Encoder.from_pretrained(folder, pooling="pooler_output")
        torch.testing.assert_close(encoder.encode(TEXTS), expected, atol=1e-6, rtol=0)
        changed = Encoder.from_pretrained(folder)
        for view in (Cosine("pooler_output").view(changed), encoder.clone(), encoder.with_pooling("pooler_output")):
            assert torch.equal(view.encode(TEXTS), encoder.encode(TEXTS))
        assert not torch.allclose(encoder.with_pooling("cls").encode(TEXTS), expected, atol=0.01)
        assert_saved_whole(encoder, tmp_path / "again")
        with torch.no_grad():
            next(changed.backbone.parameters()).add_(1)
        with pytest.raises(ValueError, match="the encoder's weights are no longer those there"):
            changed.with_pooling("pooler_output")

    def test_a_model_without_a_pooling_layer_is_refused(self, tmp_path: Path) -> None:
        for family in ("distilbert", "electra"):
            folder = plain_folder(tmp_path / family, family)
            with pytest.raises(ValueError, match=f"pooler_output needs a pooling layer, {family} has none"):
                Encoder.from_pretrained(folder, pooling="pooler_output")
        with pytest.raises(ValueError, match=r"holds no pooling layer \(pooler\.dense\.bias\), which the pooling"):
            Encoder.from_pretrained("wiki-tiny", pooling="pooler_output")

    def test_a_layer_that_no_pooling_reads_is_named(self, plain: Path, caplog: pytest.LogCaptureFixture) -> None:
        Encoder.from_pretrained(plain)
        assert caplog.messages == [
            f"{plain / 'model.safetensors'}: left out its pooling layer, which only the pooling pooler_output uses"
        ]


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.bool_, torch.uint8, torch.int8])
def test_codes_that_are_no_vectors_are_refused(kind: Any) -> None:
    class Packed:
        def encode(self, sentences: list[str]) -> Any:
            shape = len(sentences), 4
            return torch.ones(shape, dtype=kind) if isinstance(kind, torch.dtype) else np.ones(shape, kind)

    with pytest.raises(ValueError, match=r"Packed: encode returned \S+, expected floating-point vectors"):
        api.evaluate(Packed(), "synthetic_dev")
    assert ForeignEncoder(type("Lists", (), {"encode": lambda self, texts: [[0.5]] * len(texts)})()).encode(["a"])


@pytest.mark.parametrize("family", OTHERS)
def test_a_plain_folder_of_another_family_is_scored_by_its_mean_and_trained_so(family: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", family)
    scored, trained = open_encoder(folder), Encoder.from_pretrained(folder)
    assert isinstance(scored, ForeignEncoder)
    assert trained.pooling == "mean"
    for each in (scored, trained):
        torch.testing.assert_close(each.encode(TEXTS), theirs(folder), atol=1e-6, rtol=0)


def test_code_of_a_folder_is_not_run(folder: Path, tmp_path: Path) -> None:
    edit_modules(folder, place=1, type="own.Pooling")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Pooling: pass\n")
    with pytest.raises(ValueError, match=r"sentence-transformers can't open it: .*'own\.Pooling'"):
        open_encoder(folder)
    assert not (tmp_path / "ran").exists()


ODD = ["A man plays.", "", "long river " * 60, "A MAN", PADDED]
LIBRARY = "config_sentence_transformers.json"


def test_older_folders_with_more_modules_and_routers_are_scored(plain: Path, tmp_path: Path) -> None:
    new = modules_folder(tmp_path / "new", plain, "mean", Dense(WIDTH, 8))
    other = plain_folder(tmp_path / "other", "bert", hidden_act="relu")
    routes: dict[str, list[Any]] = {
        name: [Transformer(str(path)), Pooling(WIDTH, "mean")] for name, path in (("a", plain), ("b", other))
    }
    SentenceTransformer(modules=[Router(routes, default_route="a")], device="cpu").save(str(tmp_path / "router"))
    for folder in (old_layout(tmp_path / "old", new), tmp_path / "router"):
        assert_as_theirs(folder, ODD)
    lost = tmp_path / "router/b_0_Transformer/model.safetensors"
    shutil.copy(plain_folder(tmp_path / "larger", "bert", intermediate_size=64) / "model.safetensors", lost)
    with pytest.raises(ValueError, match=r"sentence-transformers can't open it: RuntimeError|config.json expects"):
        open_encoder(tmp_path / "router")


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet"])
def test_the_form_of_a_model_s_output_does_not_matter(family: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", family)
    expected = Encoder.from_pretrained(folder).encode(ODD)
    change(folder / "config.json", return_dict=False, output_attentions=True)
    assert torch.equal(Encoder.from_pretrained(folder).encode(ODD), expected)


def test_vectors_are_cut_where_the_folder_says_so(folder: Path) -> None:
    change(folder / LIBRARY, truncate_dim=8)
    encoder = open_encoder(folder)
    assert isinstance(encoder, ForeignEncoder)
    assert encoder.encode(ODD).shape == (len(ODD), 8)
    assert_as_theirs(folder, ODD)


def test_prompts_without_a_default_change_nothing(folder: Path) -> None:
    expected = open_encoder(folder).encode(ODD)
    change(folder / LIBRARY, prompts={"of a river": "a river: "}, default_prompt_name="query")
    encoder = open_encoder(folder)
    assert isinstance(encoder, Encoder)
    assert torch.equal(encoder.encode(ODD), expected)


@pytest.mark.parametrize("limit", ["8", 8.5, -1, True], ids=repr)
def test_a_limit_that_is_no_number_of_tokens_is_refused(limit: Any, folder: Path) -> None:
    change(folder / "sentence_bert_config.json", max_seq_length=limit)
    with pytest.raises(ValueError, match=r"max_seq_length is .*; expected a number of tokens"):
        open_encoder(folder)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda f: change(f / LIBRARY, default_prompt_name="q"), "(?i)default prompt .*'q' (is )?not "),
        (lambda f: edit_modules(f, path="../plain"), r"names \.\./plain, which is outside its folder"),
        (lambda f: edit_modules(f, path=str(f.parent / "plain")), "plain, which is outside its folder"),
        (lambda f: edit_modules(f, path=None), "expected the type and path of each module, found"),
        (lambda f: (f / "modules.json").write_text('["Transformer"]'), "expected the type and path of each module"),
        (lambda f: (f / "adapter_config.json").write_text("{}"), "an adapter of weights that are elsewhere"),
        (
            lambda f: change(f / "sentence_bert_config.json", tokenizer_name_or_path="elsewhere"),
            "its tokenizer is to be that of elsewhere; put the tokenizer's files beside the weights",
        ),
        (
            lambda f: change(f / "sentence_bert_config.json", module_output_name="other"),
            "sentence-transformers can't open it: KeyError: 'token_embeddings'",
        ),
    ],
    ids=["prompt", "above", "absolute", "no path", "texts", "adapter", "tokenizer", "no token states"],
)
@pytest.mark.parametrize("more", [(), (Normalize(), Dense(WIDTH, 8))], ids=["ours", "other modules"])
def test_what_names_something_elsewhere_or_nothing_is_refused(
    edit: Any, message: str, more: tuple[Any, ...], plain: Path, tmp_path: Path
) -> None:
    """Another folder's content is not in the encoder's hash, so a change of it would not be seen."""
    folder = modules_folder(tmp_path / "modules", plain, "mean", *more)
    edit(folder)
    with pytest.raises(ValueError, match=message):
        open_encoder(folder)


def test_a_pooling_without_the_modules_that_name_it_is_refused_or_ours(folder: Path) -> None:
    (folder / "modules.json").unlink()
    assert Encoder.from_pretrained(folder).pooling == "mean"
    change(folder / "1_Pooling/config.json", pooling_mode="max")
    with pytest.raises(ValueError, match=r"its pooling is max, but .*modules.json is missing"):
        open_encoder(folder)


@pytest.mark.parametrize("family", ["albert", "bert"])
def test_a_tokenizer_of_another_model_is_refused_whoever_opens_the_folder(family: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", family, vocab_size=20_000)
    with pytest.raises(ValueError, match=r"the tokenizer has 16,384 tokens, but the embedding has 20,000 rows"):
        open_encoder(folder)


WIKI_TINY, WIKI_MINI = ASSETS / "wiki-tiny", ASSETS / "wiki-mini"
TWO = ["a cat sat", "the river is cold"]
State = Mapping[str, Any]


def words_of(state: State) -> dict[str, Tensor]:
    """The encoder's own tensors, by names without the model's."""
    return {name.removeprefix("bert."): value for name, value in state.items() if name.startswith("bert.")}


def named(state: State, prefix: str) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in state.items()}


def other(state: State) -> dict[str, Tensor]:
    """Other numbers under the same names."""
    return {name: torch.full_like(value, 0.5) for name, value in state.items()}


def with_parts(state: State) -> dict[str, Tensor]:
    """What DiffCSE's files hold: the encoder, a discriminator of its kind, a generator with more layers, a head."""
    bare = words_of(state)
    deeper = {name.replace("layer.1.", "layer.5."): value for name, value in other(bare).items()}
    generator, discriminator = named(deeper, "generator.bert."), named(other(bare), "discriminator.bert.")
    more = {"mlp.dense.weight": torch.ones(3, 3), "bert.gate.bias": torch.ones(2)}
    return {**generator, **discriminator, **named(bare, "bert."), **more}


def of_tensorflow(state: State) -> dict[str, Tensor]:
    """The names of the first BERTs."""
    return {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for name, v in state.items()}


FORMS: dict[str, Callable[[State], State]] = {
    "a pickle": dict,
    "DataParallel": lambda state: named(state, "module."),
    "DataParallel, without the model's name": lambda state: named(words_of(state), "module."),
    "with a discriminator and a generator": with_parts,
    "DataParallel, with a discriminator and a generator": lambda state: named(with_parts(state), "module."),
    "with a pooler and position ids": lambda state: {
        **words_of(state),
        "pooler.dense.weight": torch.ones(3, 3),
        "embeddings.position_ids": torch.arange(512)[None],
    },
    "the first BERTs' names": of_tensorflow,
}


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    return load_file(WIKI_TINY / "model.safetensors")


@pytest.fixture(scope="module")
def expected() -> Tensor:
    return Encoder.from_pretrained("wiki-tiny").encode(TWO)


def folder_of(path: Path, state: State) -> Path:
    """An encoder's folder whose weights are a pickle."""
    shutil.copytree(WIKI_TINY, path, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(dict(state), path / "pytorch_model.bin")
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_the_encoder_in_it_is_read(form: str, state: State, expected: Tensor, tmp_path: Path, caplog) -> None:
    folder = folder_of(tmp_path / "odd", FORMS[form](state))
    assert torch.equal(Encoder.from_pretrained(folder).encode(TWO), expected)
    left_out = {
        "with a pooler and position ids": "left out its pooling layer, which only the pooling pooler_output uses",
        "with a discriminator and a generator": "left out what is no part of the encoder: gate, mlp",
    }
    named = next((text for name, text in left_out.items() if form.endswith(name)), None)
    assert caplog.messages == ([f"{folder / 'pytorch_model.bin'}: {named}"] if named else [])
    assert all(record.levelno == logging.WARNING for record in caplog.records if "no part" in record.message)


@pytest.mark.parametrize("gone", ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"])
@pytest.mark.parametrize("form", ["DataParallel", "with a discriminator and a generator"])
def test_a_weight_that_is_missing_is_never_random(form: str, gone: str, state: State, tmp_path: Path) -> None:
    fewer = {name: value for name, value in state.items() if name != f"bert.{gone}"}
    parts = FORMS[form](state) if form.startswith("with") else FORMS[form](fewer)
    folder = folder_of(tmp_path / "odd", {name: value for name, value in parts.items() if name != f"bert.{gone}"})
    with pytest.raises(ValueError, match=rf"{gone} missing, which config.json expects"):
        Encoder.from_pretrained(folder)


class Hostile:
    """Makes a folder when it is read as a pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("form", ["among tensors", "a pickle", "an old pickle"])
def test_a_pickle_that_would_run_code_is_refused_and_runs_none(form: str, state: State, tmp_path: Path) -> None:
    folder, made = folder_of(tmp_path / "odd", state), tmp_path / "made"
    if form == "among tensors":
        torch.save({**state, "more": Hostile(made)}, folder / "pytorch_model.bin")
    else:
        content = pickle.dumps(Hostile(made), protocol=2 if form == "an old pickle" else None)
        (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ValueError) as caught:
        Encoder.from_pretrained(folder)
    assert str(caught.value).startswith(f"{folder / 'pytorch_model.bin'}: ")
    assert ("refused, as reading it would run posix.mkdir" in str(caught.value)) == (form != "a pickle")
    assert "weights_only" not in str(caught.value)  # torch's message says how to run it
    assert not made.exists()


class TestEncodersFolder:
    """CSE_ENCODERS."""

    @pytest.fixture
    def encoders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "encoders").mkdir()
        monkeypatch.setenv("CSE_ENCODERS", str(tmp_path / "encoders"))
        return tmp_path / "encoders"

    @pytest.mark.parametrize(
        ("name", "place"),
        [
            ("someone/bert", "someone/bert"),
            ("someone/bert", "someone--bert"),
            ("someone/bert/unsup-bert", "someone/bert/unsup-bert"),
            ("someone/bert/unsup-bert", "someone--bert/unsup-bert"),
            ("bert-base-uncased", "bert-base-uncased"),
        ],
    )
    def test_a_hub_name_is_a_folder_in_it(self, name: str, place: str, encoders: Path) -> None:
        shutil.copytree(WIKI_TINY, encoders / place)
        assert resolve(name) == encoders / place

    def test_it_comes_after_the_embedded_and_does_not_hide_the_hub(self, encoders: Path) -> None:
        shutil.copytree(WIKI_MINI, encoders / "wiki-tiny")
        assert resolve("wiki-tiny") == WIKI_TINY
        with pytest.raises(FileNotFoundError, match=rf"nor in CSE_ENCODERS \({encoders}\), nor available from the Hug"):
            resolve("someone/absent")

    def test_a_folder_without_a_config_is_named(self, encoders: Path) -> None:
        (encoders / "someone" / "bert").mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match=r"someone/bert: holds no config\.json; copy the encoder's files"):
            resolve("someone/bert")

    @pytest.mark.parametrize("value", ["encoders", "/nowhere/at/all"])
    def test_a_path_that_no_worker_could_read_is_refused(self, value: str, encoders: Path, monkeypatch) -> None:
        monkeypatch.setenv("CSE_ENCODERS", value)
        monkeypatch.chdir(encoders.parent)
        with pytest.raises(FileNotFoundError, match=f"CSE_ENCODERS is {value}: expected the absolute path of a folder"):
            resolve("someone/bert")

    def test_an_encoder_without_a_tokenizer_gets_the_named_ones(
        self, encoders: Path, expected: Tensor, cache: Path, tmp_path: Path
    ) -> None:
        bare = shutil.copytree(WIKI_TINY, encoders / "someone/bert", ignore=shutil.ignore_patterns("tokenizer*"))
        (bare / "tokenizer_config.json").write_text('{"model_max_length": 7}')  # of no tokenizer
        shutil.copytree(WIKI_TINY, encoders / "its-base", ignore=shutil.ignore_patterns("model.safetensors"))
        with pytest.raises(ValueError, match="the tokenizer has 5 tokens"):
            Encoder.from_pretrained(resolve_pinned(Pretrained("someone/bert")))
        borrowing = Pretrained("someone/bert", tokenizer="its-base")
        for _ in range(2):  # the second time the links are there
            folder = resolve_pinned(borrowing, tmp_path / "store")
            assert torch.equal(Encoder.from_pretrained(folder).encode(TWO), expected)
        assert encoder_hash(folder) == encoder_hash(WIKI_TINY)
        assert sorted(path.name for path in bare.iterdir()) == [
            "config.json",
            "model.safetensors",
            "tokenizer_config.json",
        ]
        assert borrowing.identity == "someone/bert"

    def test_a_tokenizer_of_its_own_is_kept(self, encoders: Path) -> None:
        shutil.copytree(WIKI_TINY, encoders / "someone/bert")
        assert resolve_pinned(Pretrained("someone/bert", tokenizer="absent")) == encoders / "someone/bert"

    def test_another_tokenizer_under_the_name_is_refused(self, encoders: Path, cache: Path, tmp_path: Path) -> None:
        shutil.copytree(WIKI_TINY, encoders / "someone/bert", ignore=shutil.ignore_patterns("tokenizer*"))
        base = shutil.copytree(WIKI_TINY, encoders / "its-base")
        borrowing = Pretrained("someone/bert", tokenizer="its-base")
        resolve_pinned(borrowing, tmp_path / "store")
        text = (base / "tokenizer.json").read_text()
        (base / "tokenizer.json").write_text(text.replace('"the"', '"teh"', 1))
        with pytest.raises(
            ValueError, match=r"backbone someone/bert has the content .*, but the first run that used it"
        ):
            resolve_pinned(borrowing, tmp_path / "store")


def test_roberta_by_its_vocabulary_and_merges(roberta: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(roberta, tmp_path / "roberta")
    whole: Any = Encoder.from_pretrained(roberta)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    whole.tokenizer.backend_tokenizer.model.save(str(folder))
    assert {path.name for path in folder.glob("[vm]*.*")} >= {"vocab.json", "merges.txt"}
    template = "This sentence : ' {} ' means [MASK]."
    found = [Encoder.from_pretrained(path, pooling="mask", template=template).encode(TWO) for path in (roberta, folder)]
    assert torch.equal(*found)


def write_table() -> None:
    lines = [HEAD, "| --- " * 7 + "|\n"]
    for family in FAMILIES:
        for pooling in POOLINGS:
            with TemporaryDirectory() as folder:
                scores, most = row(Path(folder), family, pooling)
            cells = " | ".join(f"{ours:.4f}, {other:.4f}" for ours, other in scores)
            lines.append(f"| {family} | {pooling} | {cells} | {most:.0e} |\n")
    before, _, rest = PAGE.read_text().partition(HEAD)
    after = rest[rest.index("\n\n") :] if rest else "\n"
    PAGE.write_text(before + "".join(lines).rstrip("\n") + after)


if __name__ == "__main__":
    write_table()
