"""The number of calls in a training step's loss and gradients: operators as written, and kernels of one graph.

    pytest tests/benchmarks/bench_launches.py -o python_files="bench_*.py" -o addopts= -s

The pass is padded as on a GPU, with two layers of 128. On a GPU each call is a launch, and a step of small products
takes as long as its launches. A graph's calls are counted in the code that torch's inductor writes for the CPU.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.utils._python_dispatch import TorchDispatchMode

from cse_core.graph import GeneratorState
from cse_core.method import Method
from cse_core.methods.compcse import CompCSE
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution, Loop, compiled_loss
from tests.benchmarks import measure

TINY = Pretrained("wiki-tiny")
METHODS: dict[str, Method] = {
    "SimCSE": SimCSE(),
    "RankCSE": RankCSE(teachers=(Teacher(TINY),)),
    "RankEncoder": RankEncoder(base=TINY, select="last", corpus_size=100),
    "WhitenedCSE": WhitenedCSE(groups=64, views="dropout", positives=3),
    "CompCSE": CompCSE(dims=43),
}
CALL = re.compile(r"^\s*(?:[\w, ]+ = )?(?:cpp_fused\w*|extern_kernels\.\w+|torch\.ops\.[\w.]+|aten\.[\w.]+)\(", re.M)


class Calls(TorchDispatchMode):
    """Count the operators that are called, except views, which launch nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("default")  # of the compiler itself
@pytest.mark.parametrize("name", METHODS)
def test_calls_of_a_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(Encoder, "runs_packed", False)
    run = Run(method=METHODS[name], backbone=TINY, corpus=Corpus("synthetic", 256))
    loop = Loop(run, Execution(tmp_path))
    batch = loop.batches.at(0)
    targets = loop.targets.at(batch.rows, loop.device)
    with Calls() as forward:
        total = run.method.loss(loop.encoder, batch, loop.modules, targets).total
    with Calls() as backward:
        total.backward()
    torch._dynamo.reset()
    graph = compiled_loss(run, loop.encoder)
    traced = replace(batch, generator=cast(Any, GeneratorState(batch.generator)))

    def step() -> None:
        graph(loop.encoder, traced, loop.modules, targets).total.backward()

    _, code = run_and_get_code(step)
    calls = sum(len(CALL.findall(source)) for source in code)
    written = forward.count + backward.count
    note = f"{calls} calls in one graph, {written} as written, {forward.count} of them forward"
    what, against = f"{name}, calls of a step in one graph, 2 layers", "of those as written, without views"
    assert measure.record(what, [calls / written], against=against, wanted="", note=note) < 0.5
