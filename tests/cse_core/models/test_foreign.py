"""Encoders of others: every family, pooling and setting has sentence-transformers' vectors, or a reason why not.

`python -m tests.cse_core.models.test_foreign` writes the table of docs/evaluations.md.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
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
from tests.support.families import FAMILIES, OTHERS, WIDTH, change, modules_folder, plain_folder, tokenizer

PAGE = Path(__file__).parents[3] / "docs/evaluations.md"
HEAD = "| family | pooling | as saved | 12 tokens | Normalize | prompt | vectors differ by |\n"
POOLINGS = ("cls", "mean", "max")
TEXTS = ["A man plays.", "", "two  dogs run ", "Ünïcödé — and [MASK]", "long river " * 60, " a man", "A MAN"]
TOLD = re.compile(r"\| (\S+) \| (\S+) \|(.+)\|")


def theirs(folder: Path, texts: Sequence[str] = TEXTS) -> Tensor:
    return SentenceTransformer(str(folder), device="cpu").encode(list(texts), convert_to_tensor=True)


def apart(folder: Path) -> float:
    """The largest difference of our vectors from sentence-transformers'."""
    return float((open_encoder(folder).encode(TEXTS) - theirs(folder)).abs().max())


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
    for path in settings(folder, plain_folder(folder / "plain", family), pooling).values():
        both = []
        vectors = [open_encoder(path).encode([*first, *second, *TEXTS]), theirs(path, [*first, *second, *TEXTS])]
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
    limit: int | None, of_tokenizer: int | None, tmp_path: Path
) -> None:
    folder = modules_folder(tmp_path / "modules", plain_folder(tmp_path / "plain", "bert"), "mean")
    if limit:
        change(folder / "sentence_bert_config.json", max_seq_length=limit)
    if of_tokenizer:
        change(folder / "tokenizer_config.json", model_max_length=of_tokenizer)
    encoder = open_encoder(folder)
    assert isinstance(encoder, Encoder)
    assert encoder.max_length == (limit or of_tokenizer)
    assert apart(folder) <= 1e-6
    encoder.save_pretrained(tmp_path / "again")
    assert torch.equal(open_encoder(tmp_path / "again").encode(TEXTS), encoder.encode(TEXTS))


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
    assert apart(folder) <= 1e-6
    encoder = Encoder.from_pretrained(folder)
    assert torch.equal(*encoder.encode(["a man", "A MAN"]))
    encoder.save_pretrained(tmp_path / "again")
    assert torch.equal(Encoder.from_pretrained(tmp_path / "again").encode(TEXTS), encoder.encode(TEXTS))


def test_normalize_is_kept_in_vectors_and_exports(tmp_path: Path) -> None:
    plain = plain_folder(tmp_path / "plain", "bert")
    encoder = Encoder.from_pretrained(modules_folder(tmp_path / "modules", plain, "mean", Normalize()))
    assert encoder.encode(TEXTS).norm(dim=1).tolist() == pytest.approx([1] * len(TEXTS), abs=1e-6)
    for copied in (encoder.clone(), encoder.with_pooling("mean")):
        assert torch.equal(copied.encode(TEXTS), encoder.encode(TEXTS))
    encoder.save_pretrained(tmp_path / "again")
    assert torch.equal(open_encoder(tmp_path / "again").encode(TEXTS), encoder.encode(TEXTS))
    assert apart(tmp_path / "again") <= 1e-6


def old_layout(folder: Path, new: Path) -> Path:
    """As the library's first version saved it: the Transformer in a folder of its own."""
    shutil.copytree(new / "1_Pooling", folder / "1_Pooling")
    shutil.copytree(new, folder / "0_Transformer", ignore=shutil.ignore_patterns("1_*", "modules*", "config_sent*"))
    modules = json.loads((new / "modules.json").read_text())
    modules[0] |= {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def test_folders_of_other_forms_have_the_vectors_of_sentence_transformers(tmp_path: Path) -> None:
    plain = plain_folder(tmp_path / "plain", "bert")
    new = modules_folder(tmp_path / "new", plain, "mean")
    dense = modules_folder(tmp_path / "dense", plain, "mean", Dense(WIDTH, 8))
    static, words = tmp_path / "static", tokenizer().backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)], device="cpu").save(str(static))
    shards = shutil.copytree(new, tmp_path / "shards")
    (shards / "model.safetensors").unlink()
    AutoModel.from_pretrained(plain).save_pretrained(shards, max_shard_size="1MB")
    assert len(list(shards.glob("model-*"))) > 1
    for folder in (old_layout(tmp_path / "old", new), dense, static, shards):
        assert apart(folder) <= 1e-6
    for folder in (tmp_path / "old", shards):
        assert torch.equal(Encoder.from_pretrained(folder).encode(TEXTS), Encoder.from_pretrained(new).encode(TEXTS))
    view = Encoder.from_pretrained(tmp_path / "old").with_pooling("pooler_output")
    assert torch.equal(view.encode(TEXTS), Encoder.from_pretrained(plain, pooling="pooler_output").encode(TEXTS))
    for folder, name in ((dense, "Dense"), (static, "StaticEmbedding")):
        with pytest.raises(
            ValueError, match=rf"its modules are .*{name}; sentence-transformers scores it, but it can't"
        ):
            Encoder.from_pretrained(folder)
        with pytest.raises(ValueError, match="an encoder of another library has no pooling, got 'mean'"):
            CachedEncoder(open_encoder(folder)).with_pooling("mean")


@pytest.mark.parametrize("gone", ["1_Pooling", "1_Pooling/config.json", "2_Dense"])
def test_a_lost_module_is_an_error(gone: str, tmp_path: Path) -> None:
    plain = plain_folder(tmp_path / "plain", "bert")
    folder = modules_folder(tmp_path / "modules", plain, "mean", Dense(WIDTH, 8))
    shutil.rmtree(folder / gone) if (folder / gone).is_dir() else (folder / gone).unlink()
    with pytest.raises(ValueError, match=rf"modules.json: names {gone[2:].partition('/')[0]} in .*{gone}.* is missing"):
        open_encoder(folder)


@pytest.mark.parametrize("weights", [True, False])
def test_relative_positions_are_refused(weights: bool, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", "bert")
    state = load_file(folder / "model.safetensors")
    name = "encoder.layer.0.attention.self.distance_embedding.weight"
    save_file(state | {name: torch.ones(9, 16)}, folder / "model.safetensors", metadata={"format": "pt"})
    if weights:
        message = rf"{name}, which a bert does not use"
    else:
        change(folder / "config.json", position_embedding_type="relative_key")
        message = "position_embedding_type is 'relative_key', which transformers no longer has for bert"
    for opened in (open_encoder, Encoder.from_pretrained):
        with pytest.raises(ValueError, match=message):
            opened(folder)


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
        encoder.save_pretrained(tmp_path / "again")
        assert torch.equal(open_encoder(tmp_path / "again").encode(TEXTS), encoder.encode(TEXTS))
        with torch.no_grad():
            next(changed.backbone.parameters()).add_(1)
        with pytest.raises(ValueError, match="the encoder's weights are no longer those there"):
            changed.with_pooling("pooler_output")

    def test_what_has_no_such_layer_is_refused(self, tmp_path: Path) -> None:
        for family in ("distilbert", "electra"):
            folder = plain_folder(tmp_path / family, family)
            with pytest.raises(ValueError, match=f"pooler_output needs a pooling layer, {family} has none"):
                Encoder.from_pretrained(folder, pooling="pooler_output")
        with pytest.raises(ValueError, match=r"holds no pooling layer \(pooler\.dense\.bias\), which the pooling"):
            Encoder.from_pretrained("wiki-tiny", pooling="pooler_output")

    def test_a_layer_that_no_pooling_reads_is_named(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        folder = plain_folder(tmp_path / "plain", "bert")
        Encoder.from_pretrained(folder)
        assert caplog.messages == [
            f"{folder / 'model.safetensors'}: left out its pooling layer, which only the pooling pooler_output uses"
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
    encoder, trained = open_encoder(folder), Encoder.from_pretrained(folder)
    assert isinstance(encoder, ForeignEncoder)
    assert trained.pooling == "mean"
    for each in (encoder, trained):
        torch.testing.assert_close(each.encode(TEXTS), theirs(folder), atol=1e-6, rtol=0)


def test_code_of_a_folder_is_not_run(tmp_path: Path) -> None:
    folder = modules_folder(tmp_path / "modules", plain_folder(tmp_path / "plain", "bert"), "mean")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "own.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Pooling: pass\n")
    with pytest.raises(ValueError, match=r"sentence-transformers can't open it: .*'own\.Pooling'"):
        open_encoder(folder)
    assert not (tmp_path / "ran").exists()


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
