"""The layout that a GPU gets: the model's own padded forward, as far as a CPU can test it; the rest needs a GPU."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cse_core.data.batches import Batches, pad
from cse_core.data.examples import examples
from cse_core.method import Method
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from tests.support.padded_loops import CORPUS, DRAWN, METHODS, OTHERS, Waits, loop_on, padded

TEXTS = ["A cat sat.", "the old man walked his dog along the river before breakfast", "no"]
# What these save by computing only some rows is more than a wait costs: scores of the vocabulary for chosen tokens, the
# bare template once per distinct length, n-grams of real tokens. The models of transformers, which DiffCSE calls, ask
# whether a mask has padding ("_local_scalar_dense").
WAITS = {
    "isbert": {"index", "index_put", "repeat_interleave"},
    "mlm": {"index", "index_put"},
    "diffcse": {"index", "index_put", "_local_scalar_dense"},
    "promptbert": {"_unique2"},
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last_mean", "mask"])
@pytest.mark.slow
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


@pytest.mark.parametrize("method", [SimCSE(), PromptBERT()])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.slow
def test_batches_have_at_most_three_shapes_on_a_gpu(
    kind: str, method: Method, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy itself is left out here, for it needs a GPU."""
    monkeypatch.setattr("cse_core.data.batches.to_device", lambda tensor, device: tensor)
    monkeypatch.setattr("cse_core.data.batches.generator_for", lambda *_: torch.Generator())
    encoder = Encoder.from_pretrained("wiki-tiny")
    table = examples(CORPUS, method, encoder.tokenizer, 32)
    batches = Batches(table, 4, seed=1, pad_id=encoder.pad_id, device=torch.device(kind), positions=512)
    all_columns = [tokens for step in range(batches.per_epoch) for tokens in batches.at(step).columns.values()]
    widths = {tokens.ids.shape[1] for tokens in all_columns}
    longest = max(len(row) for column in table.column_names for row in table[column])
    if kind == "cuda":
        assert len(widths) <= 3
        assert all(width % 8 == 0 for width in widths)
        assert max(widths) - 8 < longest <= max(widths)
    else:
        assert max(widths) == longest


def test_bf16_passes_are_another_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    for packs in (True, False):
        monkeypatch.setattr(Encoder, "runs_packed", property(lambda self, packs=packs: packs))
        encoder = Encoder.from_pretrained("wiki-tiny", dropout=0.0).train()
        tokens = pad(encoder.tokenise(TEXTS), encoder.pad_id)
        (exact,) = encoder(tokens)
        encoder.precision = "bf16"
        (rounded,) = encoder(tokens)
        assert rounded.dtype == torch.float32
        assert 1e-4 < (rounded - exact).abs().max() < 0.1


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool((x > 0).all()), "_local_scalar_dense"),
        (lambda x: x[x > 0], "index"),
        (lambda x: (x > 0).nonzero(), "nonzero"),
        (lambda x: x.unique(), "_unique2"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.cpu(), "cpu"),
        (lambda x: x.numpy(), "numpy"),
        (lambda x: np.asarray(x), "__array__"),
        (lambda x: x.to("cpu", copy=True), "_to_copy"),
        (lambda x: x.repeat_interleave(x.long()), "repeat_interleave"),
        (lambda x: x.long().bincount(), "bincount"),
    ],
)
def test_waits_are_seen(operation: Callable[[torch.Tensor], object], name: str) -> None:
    with Waits() as waits:
        operation(torch.arange(3.0))
    assert waits.names == [name]


def test_what_needs_no_wait_is_not_recorded() -> None:
    x = torch.arange(3.0)
    with Waits() as waits:
        x[x.argsort()].double().to(x.device).repeat_interleave(2).clone()
        x.repeat_interleave(x.long(), output_size=3)
    assert waits.names == []


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS | DRAWN | OTHERS)
def test_a_step_needs_no_number_on_the_cpu(
    method: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks of values are left out, as on a GPU."""
    padded(monkeypatch)
    for module in ("functional.rank_vectors", "models.pooling"):
        monkeypatch.setattr(f"cse_core.{module}.values_are_readable", lambda values: False)
    loop = loop_on("cpu", method, tmp_path)
    loop.train_step(0)  # a first step may build what later ones share
    with Waits() as waits:
        loop.train_step(1)
    assert set(waits.names) == WAITS.get(method, set())


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("method", sorted((METHODS | DRAWN | OTHERS).keys() - WAITS.keys()))
def test_a_step_never_waits_for_the_gpu(method: str, cache: Path, tmp_path: Path) -> None:
    loop = loop_on("cuda", method, tmp_path)
    loop.train_step(0)
    try:
        torch.cuda.set_sync_debug_mode("error")
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
