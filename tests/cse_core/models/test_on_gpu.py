"""The layout that a GPU gets: the model's own padded forward, as far as a CPU can test it; the rest needs a GPU."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cse_core.data.batches import Batches, pad
from cse_core.data.examples import examples
from cse_core.method import Method
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Loop

TINY = Pretrained("wiki-tiny")
CORPUS = Corpus("synthetic", 256)
TEXTS = ["A cat sat.", "the old man walked his dog along the river before breakfast", "no"]
METHODS = {
    "simcse": SimCSE(),
    "rankcse": RankCSE(teachers=(Teacher(TINY, 1.0),), rank="list_mle"),
    "rankencoder": RankEncoder(base=TINY, select="last", corpus_size=100),
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "_runs_packed", property(lambda self: False))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last_mean", "mask"])
def test_the_padded_pass_gives_what_the_packed_one_gives(
    pooling: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = 'The "{}" [MASK].' if pooling == "mask" else ""
    encoder = Encoder.from_pretrained("wiki-tiny", pooling=pooling, template=template)
    encoder.backbone.set_attn_implementation(attention)
    tokens = pad(encoder.tokenise(TEXTS), encoder.pad_id, width=40)
    tokens = replace(tokens, positions=torch.arange(40).flip(0).expand_as(tokens.ids))
    found = [encoder.encode(TEXTS), encoder.states(tokens)[tokens.mask]]
    padded(monkeypatch)
    assert torch.allclose(encoder.encode(TEXTS), found[0], atol=1e-5)
    assert torch.allclose(encoder.states(tokens)[tokens.mask], found[1], atol=1e-5)


def test_compiled_passes_are_refused_where_they_are_written_out() -> None:
    with pytest.raises(ValueError, match="compiled passes require a GPU; on a cpu they are written out"):
        Encoder.from_pretrained("wiki-tiny").compile_training()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the compiler itself
def test_compiled_training_passes_are_the_same_and_evaluation_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    padded(monkeypatch)
    encoder = Encoder.from_pretrained("wiki-tiny", dropout=0.0).train()
    tokens = pad(encoder.tokenise(TEXTS), encoder.pad_id)
    expected = encoder(tokens, tokens)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    encoder.compile_training()
    for a, b in zip(encoder(tokens, tokens), expected, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert compiled > 0
    encoder.encode(TEXTS)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled


@pytest.mark.parametrize("method", [SimCSE(), PromptBERT()])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_batches_have_one_shape_on_a_gpu(
    kind: str, method: Method, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy itself is left out here, for it needs a GPU."""
    monkeypatch.setattr("cse_core.data.batches.to_device", lambda tensor, device: tensor)
    monkeypatch.setattr("cse_core.data.batches.generator_for", lambda *_: torch.Generator())
    encoder = Encoder.from_pretrained("wiki-tiny")
    table = examples(CORPUS, method, encoder.tokenizer, 32)
    batches = Batches(table, 4, seed=1, pad_id=encoder.pad_id, device=torch.device(kind))
    all_columns = [tokens for step in range(batches.per_epoch) for tokens in batches.at(step).columns.values()]
    widths = {tokens.ids.shape[1] for tokens in all_columns}
    assert (len(widths) == 1) == (kind == "cuda")
    assert max(widths) == max(len(row) for column in table.column_names for row in table[column])


def test_bf16_passes_are_another_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    for packs in (True, False):
        monkeypatch.setattr(Encoder, "_runs_packed", property(lambda self, packs=packs: packs))
        encoder = Encoder.from_pretrained("wiki-tiny", dropout=0.0).train()
        tokens = pad(encoder.tokenise(TEXTS), encoder.pad_id)
        (exact,) = encoder(tokens)
        encoder.precision = "bf16"
        (rounded,) = encoder(tokens)
        assert rounded.dtype == torch.float32
        assert 1e-4 < (rounded - exact).abs().max() < 0.1


def loop_on(device: str, method: str, store: Path) -> Loop:
    run = Run(method=METHODS[method], backbone=TINY, corpus=CORPUS, precision="bf16" if device == "cuda" else "fp32")
    return Loop(replace(run, dropout=0.0), store, data=None, rules=("last",), device=torch.device(device))


@needs_gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_step_never_waits_for_the_gpu(method: str, cache: Path, tmp_path: Path) -> None:
    loop = loop_on("cuda", method, tmp_path)
    loop.train_step(0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        loop.train_step(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    loop.flush()
    assert math.isfinite(loop.history.curves["loss"][-1][1])


@needs_gpu
@pytest.mark.parametrize("method", METHODS)
def test_losses_on_a_gpu_are_the_cpus(method: str, cache: Path, tmp_path: Path) -> None:
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for device in ("cpu", "cuda"):
        loop = loop_on(device, method, tmp_path)
        for step in range(3):
            loop.train_step(step)
        loop.flush()
        curves[device] = loop.history.curves
    for name, points in curves["cpu"].items():
        expected, found = (torch.tensor(of)[:, 1] for of in (points, curves["cuda"][name]))
        assert torch.allclose(found, expected, rtol=0.05, atol=0.01), name
