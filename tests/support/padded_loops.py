"""Training loops of all methods with padded batches, as on a GPU, and a detector of what makes a GPU wait."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from cse_core.method import Batch, Encode, Loss, Method
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
from cse_core.methods.diffcse import DiffCSE
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
METHODS: dict[str, Method] = {
    "simcse": SimCSE(),
    "rankcse": RankCSE(teachers=(Teacher(TINY, 1.0),), rank="list_mle"),
    "list_net": RankCSE(teachers=(Teacher(TINY, 1.0),), rank="list_net", temperature=0.1),
    "rankencoder": RankEncoder(base=TINY, select="last", corpus_size=100),
    "esimcse": ESimCSE(queue_size=100),
    "ct": CT(),
    "mixcse": MixCSE(negatives="both"),
}
DRAWN: dict[str, Method] = {  # these use the device's random numbers
    "mocose": MoCoSE(queue_size=256),  # full after six steps
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
    "diffcse": DiffCSE(generator=Pretrained("wiki-mini"), detection_weight=1.0),
}


@dataclass(frozen=True, kw_only=True)
class Counting(SimCSE):
    """A method that divides its loss by the number of the step, an int."""

    name: ClassVar[str] = "counting"

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        head: Any = modules["head"]
        head.steps = getattr(head, "steps", 0) + 1
        (vectors,) = encode(batch["text"])
        total = vectors.square().mean() / head.steps
        return Loss(total, {"total": total})


WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount")


def padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "runs_packed", property(lambda self: False))


def loop_on(device: str, method: str, store: Path, *, compiled: bool = False) -> Loop:
    """Return a run's loop: ten batches of 24 an epoch, and one of 16."""
    trained = (METHODS | DRAWN | OTHERS | {"counting": Counting()})[method]
    run = Run(
        method=trained,
        backbone=TINY,
        corpus=CORPUS,
        pooling=pooling_of(trained),
        template=template_of(trained),
        precision="bf16" if device == "cuda" else "fp32",
        batch_size=24,
        epochs=2,
    )
    return Loop(replace(run, dropout=0.0), Execution(store, device=device, compiled=compiled))


class Waits(TorchDispatchMode):
    """Record the operations whose result or shape the CPU must know: each makes it wait until the GPU is idle.

    Some methods call no operator for a tensor that is on the CPU already; these are recorded by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.calls = Calls(self.names)

    def __enter__(self) -> Self:
        self.calls.__enter__()
        return super().__enter__()

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        self.calls.__exit__(exc_type, exc_val, exc_tb)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = func.overloadpacket.__name__, kwargs or {}
        by_mask = name.startswith("index") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for part in args
            if isinstance(part, (list, tuple))
            for index in part
        )
        moved = named.get("device") and not named.get("non_blocking")  # GradScaler copies its scale without waiting
        copied = name == "_to_copy" and moved and named.get("dtype") in (None, args[0].dtype)
        unsized = name == "repeat_interleave" and named.get("output_size") is None
        if by_mask or copied or unsized or name in WAITING or "unique" in name:
            self.names.append(name)
        return func(*args, **named)


class Calls(TorchFunctionMode):
    """Record calls of methods that copy a tensor to the CPU."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in ("tolist", "cpu", "numpy", "__array__"):
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))
