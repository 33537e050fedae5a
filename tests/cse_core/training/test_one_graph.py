"""A whole training loss, encoder included, is one graph of torch.compile; losses and gradients are those without it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import Queue
from threading import current_thread
from typing import Any, cast

import pytest
import torch

from cse_core.data.batches import Batches, BatchesAhead, widths_for
from cse_core.graph import GeneratorState, rand, randint, randn, randperm
from cse_core.method import Batch
from cse_core.training.loop import compiled_loss
from tests.support.padded_loops import DRAWN, METHODS, OTHERS, Waits, loop_on, padded

CPU = torch.device("cpu")
REFUSED = {  # what torch.compile does not follow
    "diffcse": "is no single graph",  # hooks into its models
    "dclr": "is no single graph",  # takes a gradient inside its loss
    "l2pcsr": "is no single graph",
    "counting": "reads a number that changes with the steps, and each would need another graph; leave --compiled out",
}
PAPERS = {"simcse", "rankcse", "rankencoder", "whitenedcse", "compcse"}
IN_CI = PAPERS | {"list_net", "esimcse", "diffcse", "counting"}


def check(backend: str, store: Path, methods: set[str], widths: Sequence[int] = (32,)) -> None:
    """Train all methods in one process, whose limit of graphs is the number of widths."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.compiled_steps"]
    command += [backend, str(store), ",".join(map(str, widths)), *sorted(methods)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == methods
    for method, outcome in found.items():
        if method in REFUSED:
            assert outcome["refused"].startswith(f"method {method}: its loss {REFUSED[method]}"), method
            continue
        assert 0 < outcome["graphs"] <= len(widths), method
        eager, compiled = outcome["eager"], outcome["compiled"]
        assert eager.keys() == compiled.keys()
        for name, values in eager.items():
            nothing = 1e-8 if name == "loss/consistency" else None  # 0 without dropout, as both views are the same
            assert compiled[name] == pytest.approx(values, rel=1e-4, abs=nothing), (method, name)


@pytest.mark.slow
def test_the_papers_losses_are_one_graph(cache: Path, tmp_path: Path) -> None:
    """RankCSE is trained twice, with two temperatures: the first run's graph does not count in the second."""
    check("eager", tmp_path, IN_CI)


@pytest.mark.slow
@pytest.mark.nightly
def test_all_losses_are_one_graph(cache: Path, tmp_path: Path) -> None:
    check("aot_eager", tmp_path, (METHODS | DRAWN | OTHERS).keys() - IN_CI)


@pytest.mark.slow
@pytest.mark.nightly
def test_there_is_one_graph_for_each_width(cache: Path, tmp_path: Path) -> None:
    check("eager", tmp_path, {"simcse", "promptbert"}, (23, 31, 32))


@pytest.mark.slow
@pytest.mark.nightly
def test_inductor_gives_the_same_losses(cache: Path, tmp_path: Path) -> None:
    check("inductor", tmp_path, PAPERS)


def test_a_packed_pass_is_not_compiled(cache: Path, tmp_path: Path) -> None:
    loop = loop_on("cpu", "simcse", tmp_path)
    with pytest.raises(ValueError, match="compiled passes require a GPU; on a cpu they are written out"):
        compiled_loss(loop.run, loop.encoder)


def test_draws_stay_outside_of_cuda_graphs() -> None:
    assert torch.Tag.cudagraph_unsafe in torch.ops.cse.draw.default.tags


@pytest.mark.parametrize("graph", [False, True])
def test_a_generators_state_draws_as_the_generator_does(graph: bool) -> None:
    def draws(generator: torch.Generator) -> list[torch.Tensor]:
        to = {"generator": generator, "device": CPU}
        return [
            rand(2, 3, **to),
            randperm(5, **to),
            randn(4, dtype=torch.float64, **to),
            randint(3, 9, (2, 2), **to),
            rand(1, **to),
        ]

    def fresh() -> torch.Generator:
        return torch.Generator().manual_seed(7)

    torch._dynamo.reset()
    found = (torch.compile(draws, backend="eager", fullgraph=True) if graph else draws)(
        cast(Any, GeneratorState(fresh()))
    )
    generator = fresh()
    expected = [
        torch.rand(2, 3, generator=generator),
        torch.randperm(5, generator=generator),
        torch.randn(4, generator=generator, dtype=torch.float64),
        torch.randint(3, 9, (2, 2), generator=generator),
        torch.rand(1, generator=generator),
    ]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(draws(fresh()), expected, strict=True))


@pytest.mark.parametrize(
    ("longest", "widths"),
    [(32, (16, 24, 32)), (128, (48, 88, 128)), (8, (8,)), (9, (8, 16)), (31, (16, 24, 32)), (505, (176, 344, 510))],
)
def test_batches_have_at_most_three_widths(longest: int, widths: tuple[int, ...]) -> None:
    assert widths_for(longest, 510) == widths  # RoBERTa has 514 positions, two of them before the first token


@pytest.mark.slow
def test_batches_made_ahead_are_the_same(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: Batches = loop_on("cpu", "simcse", tmp_path).batches
    made, by_step = Queue[tuple[int, str]](), batches.at

    def noted(step: int) -> Batch:
        made.put((step, current_thread().name))
        return by_step(step)

    monkeypatch.setattr(batches, "at", noted)
    ahead = BatchesAhead(batches)
    assert made.get(timeout=60)[0] == 0  # before any is asked for
    for step, new in ((0, [1]), (1, [2]), (2, [3]), (7, [7, 8]), (8, [9]), (3, [3, 4]), (3, [3, 4])):
        found, expected = ahead.at(step), by_step(step)
        steps, threads = zip(*(made.get(timeout=60) for _ in new), strict=True)
        assert [*steps] == new
        assert current_thread().name not in threads
        assert torch.equal(found.rows, expected.rows)
        assert torch.equal(found["text"].ids, expected["text"].ids)
        assert found.generator.initial_seed() == expected.generator.initial_seed()
    assert made.empty()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_reads_nothing_from_the_device(
    precision: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, gradients, scale, clipping, optimiser and schedule; what `flush` reads is one stack of losses."""
    padded(monkeypatch)
    loop = loop_on("cpu", "simcse", tmp_path)
    loop.scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    loop.encoder.precision = precision
    loop.train_step(0)
    with Waits() as waits:
        loop.train_step(1)
    assert waits.names == []
    with Waits() as waits:
        loop.flush()
    skipped = ["_local_scalar_dense"] * (precision == "fp16")
    assert waits.names == ["tolist", *skipped, "_local_scalar_dense"]
