"""Folders that say something unusual: they have sentence-transformers' vectors, or a reason why not."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from torch import Tensor

from cse_core.models.encoder import Encoder
from cse_core.models.foreign import ForeignEncoder, open_encoder
from tests.support.families import WIDTH, change, modules_folder, plain_folder

TEXTS = ["A man plays.", "", "long river " * 60, "A MAN", "[PAD] in a [PAD] text [SEP] of <pad> its </s> own"]
LIBRARY = "config_sentence_transformers.json"


def theirs(folder: Path) -> Tensor:
    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS, convert_to_tensor=True)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return plain_folder(tmp_path / "plain", "bert")


@pytest.fixture
def folder(plain: Path, tmp_path: Path) -> Path:
    return modules_folder(tmp_path / "modules", plain, "mean")


def old_layout(folder: Path, new: Path) -> Path:
    shutil.copytree(new, folder / "0_Transformer", ignore=shutil.ignore_patterns("[1-9]_*", "modules*", "config_sent*"))
    for path in new.glob("[1-9]_*"):
        shutil.copytree(path, folder / path.name)
    modules = json.loads((new / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "camembert", "mpnet", "bert", "distilbert", "electra"])
def test_a_text_may_hold_the_padding_token(family: str, pooling: str, tmp_path: Path) -> None:
    """RoBERTa's own forward gives it the padding's position, and counts on behind it."""
    folder = modules_folder(tmp_path / "modules", plain_folder(tmp_path / "plain", family), pooling)
    encoder = open_encoder(folder)
    assert isinstance(encoder, Encoder)
    torch.testing.assert_close(encoder.encode(TEXTS), theirs(folder), atol=1e-6, rtol=0)


def test_older_folders_with_more_modules_and_routers_are_scored(plain: Path, tmp_path: Path) -> None:
    new = modules_folder(tmp_path / "new", plain, "mean", Dense(WIDTH, 8))
    other = plain_folder(tmp_path / "other", "bert", hidden_act="relu")
    routes: dict[str, list[Any]] = {
        name: [Transformer(str(path)), Pooling(WIDTH, "mean")] for name, path in (("a", plain), ("b", other))
    }
    SentenceTransformer(modules=[Router(routes, default_route="a")], device="cpu").save(str(tmp_path / "router"))
    for folder in (old_layout(tmp_path / "old", new), tmp_path / "router"):
        torch.testing.assert_close(open_encoder(folder).encode(TEXTS), theirs(folder), atol=1e-6, rtol=0)
    lost = tmp_path / "router/b_0_Transformer/model.safetensors"
    shutil.copy(plain_folder(tmp_path / "larger", "bert", intermediate_size=64) / "model.safetensors", lost)
    with pytest.raises(ValueError, match=r"sentence-transformers can't open it: RuntimeError|config.json expects"):
        open_encoder(tmp_path / "router")


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet"])
def test_the_form_of_a_model_s_output_does_not_matter(family: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", family)
    expected = Encoder.from_pretrained(folder).encode(TEXTS)
    change(folder / "config.json", return_dict=False, output_attentions=True)
    assert torch.equal(Encoder.from_pretrained(folder).encode(TEXTS), expected)


def test_vectors_are_cut_where_the_folder_says_so(folder: Path) -> None:
    change(folder / LIBRARY, truncate_dim=8)
    encoder = open_encoder(folder)
    assert isinstance(encoder, ForeignEncoder)
    assert encoder.encode(TEXTS).shape == (len(TEXTS), 8)
    torch.testing.assert_close(encoder.encode(TEXTS), theirs(folder), atol=1e-6, rtol=0)


def test_prompts_without_a_default_change_nothing(folder: Path) -> None:
    expected = open_encoder(folder).encode(TEXTS)
    change(folder / LIBRARY, prompts={"of a river": "a river: "}, default_prompt_name="query")
    encoder = open_encoder(folder)
    assert isinstance(encoder, Encoder)
    assert torch.equal(encoder.encode(TEXTS), expected)


@pytest.mark.parametrize("limit", ["8", 8.5, -1, True], ids=repr)
def test_a_limit_that_is_no_number_of_tokens_is_refused(limit: Any, folder: Path) -> None:
    change(folder / "sentence_bert_config.json", max_seq_length=limit)
    with pytest.raises(ValueError, match=r"max_seq_length is .*; expected a number of tokens"):
        open_encoder(folder)


def edit_modules(folder: Path, **fields: Any) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= fields
    (folder / "modules.json").write_text(json.dumps(modules))


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
