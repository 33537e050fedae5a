"""The layout that a GPU gets: the model's own padded forward, as far as a CPU can test it; the rest needs a GPU."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cse_core.data.batches import Batches, pad
from cse_core.data.examples import examples
from cse_core.method import Method
from cse_core.methods.baselines.arccse import ArcCSE
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.ct import CT
from cse_core.methods.baselines.dclr import DCLR
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.isbert import ISBERT
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.mixcse import MixCSE
from cse_core.methods.baselines.mocose import MoCoSE
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.compcse import CompCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution, Loop
from tests.support.method_steps import pooling_of, template_of

TINY = Pretrained("wiki-tiny")
CORPUS = Corpus("synthetic", 256)
TEXTS = ["A cat sat.", "the old man walked his dog along the river before breakfast", "no"]
METHODS: dict[str, Method] = {
    "simcse": SimCSE(),
    "rankcse": RankCSE(teachers=(Teacher(TINY, 1.0),), rank="list_mle"),
    "rankencoder": RankEncoder(base=TINY, select="last", corpus_size=100),
    "esimcse": ESimCSE(queue_size=100),
    "ct": CT(),
    "mixcse": MixCSE(negatives="both"),
}
DRAWN: dict[str, Method] = {  # by the device's own random numbers
    "mocose": MoCoSE(),
    "consert": ConSERT(),
    "dclr": DCLR(complement=TINY, select="last", objective="binary"),
    "pcl": PCL(deletion="value", positives="probability"),
    "arccse": ArcCSE(shortest=5),
    "l2pcsr": L2PCSR(layers=2),
}
OTHERS: dict[str, Method] = {
    "whitenedcse": WhitenedCSE(groups=64),
    "compcse": CompCSE(),
    "isbert": ISBERT(),
    "mlm": MLM(),
    "promptbert": PromptBERT(),
    "sncse": SNCSE(),
}
# What these save by computing only some rows is more than a wait costs: scores of the vocabulary for chosen tokens, the
# bare template once per distinct length, n-grams of real tokens. A mask is looked for ("_local_scalar_dense") on a CPU.
WAITS = {
    "isbert": {"index", "index_put"},
    "mlm": {"index", "index_put"},
    "promptbert": {"_unique2", "_local_scalar_dense"},
    "rankencoder": {"_local_scalar_dense"},  # are all scores finite? asked on a CPU only
    "sncse": {"_local_scalar_dense"},
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "_runs_packed", property(lambda self: False))


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
@pytest.mark.slow
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
    trained = (METHODS | DRAWN | OTHERS)[method]
    run = Run(
        method=trained,
        backbone=TINY,
        corpus=CORPUS,
        pooling=pooling_of(trained),
        template=template_of(trained),
        precision="bf16" if device == "cuda" else "fp32",
    )
    return Loop(replace(run, dropout=0.0), Execution(store, device=device))


class Waits(TorchDispatchMode):
    """The operations inside it whose result or shape the CPU must know: with a GPU, each waits until it is idle."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for part in args
            if isinstance(part, (list, tuple))
            for index in part
        )
        if by_mask or name in ("_local_scalar_dense", "nonzero", "masked_select", "equal") or "unique" in name:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool((x > 0).all()), "_local_scalar_dense"),
        (lambda x: x[x > 0], "index"),
        (lambda x: (x > 0).nonzero(), "nonzero"),
        (lambda x: x.unique(), "_unique2"),
    ],
)
def test_waits_are_seen(operation: Callable[[torch.Tensor], object], name: str) -> None:
    with Waits() as waits:
        operation(torch.arange(3.0))
    assert name in waits.names


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS | DRAWN | OTHERS)
def test_a_loss_and_its_gradients_need_no_number_on_the_cpu(
    method: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    padded(monkeypatch)
    loop = loop_on("cpu", method, tmp_path)
    loop.train_step(0)  # a first step may build what later ones share
    batch = loop.batches.at(1)
    targets = loop.targets.at(batch.rows, loop.device)
    with Waits() as waits:
        loop.run.method.loss(loop.encoder, batch, loop.modules, targets).total.backward()
    assert set(waits.names) == WAITS.get(method, set())


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("method", sorted((METHODS | DRAWN | OTHERS).keys() - {"isbert", "mlm", "promptbert"}))
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
