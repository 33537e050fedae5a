"""The time of a step of each method, relative to a SimCSE step with as many encoder passes, from paired timings.

    pytest tests/benchmarks/bench_steps.py -o python_files="bench_*.py" -o addopts= -s

Each round times the plain step and then the method's, so that a noisy machine slows both. Two threads, wiki-tiny, 64
sentences of the small scale's corpus; teachers' vectors are computed before. The baselines are compared with SimCSE's
own step, whatever passes they make.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.functional.whitening import group_whiten
from cse_core.method import Batch, Encode, Loss, Method, with_fields
from cse_core.methods.compcse import CompCSE
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.models.fp32_products import PRODUCTS, faster_products
from cse_core.run import Pretrained, Run
from cse_core.training.loop import Execution, Loop
from experiments.schema.recipes import RUNS, simcse_run
from experiments.schema.scales import SCALES, WIKI_MINI, WIKI_TINY
from tests.benchmarks.measure import by_turns, quotients, record

ROUNDS, FEWER_ROUNDS = 80, 20


@dataclass(frozen=True, kw_only=True)
class Plain(SimCSE):
    """SimCSE with `passes` dropout views, the first against each of the others (itself if there is no other)."""

    name: ClassVar[str] = "plain"
    passes: int = 2

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        z = [modules["head"](h) for h in encode(*[batch["text"]] * self.passes)]
        total = sum((info_nce(z[0], other, self.temperature) for other in z[1:] or z), torch.zeros(()))
        return Loss(total, {"contrastive": total})


BASE = "bert-base-uncased"
# DCLR and L2P-CSR use the untrained backbone instead of a SimCSE run: a step costs the same.
READY: dict[str, dict[str, Any]] = {"l2pcsr": {"initial": None}, "dclr": {"complement": WIKI_TINY}}
TEACHERS = (Teacher(WIKI_TINY, 1 / 3), Teacher(WIKI_MINI, 2 / 3))
# The method, the number of passes of the SimCSE step to compare it with, and the aim.
CASES: dict[str, tuple[Method, int, str]] = {
    "RankCSE ListNet": (RankCSE(teachers=TEACHERS), 2, "at most 1.10"),
    "RankCSE ListMLE": (RankCSE(teachers=TEACHERS, rank="list_mle"), 2, "at most 1.10"),
    "WhitenedCSE shared": (WhitenedCSE(groups=64), 1, ""),
    "WhitenedCSE dropout": (WhitenedCSE(groups=64, views="dropout"), 3, ""),
    "CompCSE": (CompCSE(), 2, ""),
    "RankEncoder, corpus of 10,000": (RankEncoder(base=WIKI_TINY, corpus_size=10_000), 2, ""),
}
BOUNDS = {"RankEncoder, corpus of 10,000": "sorting 64 rows of 10,000 cosines"}


# Baselines with the small scale's settings, and how many times as long as SimCSE's a step may take.
BASELINES = {"esimcse": 2, "mocose": 2, "consert": 2, "ct": 2, "isbert": 2, "dclr": 2, "pcl": 20, "arccse": 4}
BASELINES |= {"l2pcsr": 10, "mixcse": 2}


def simcse() -> Run:
    run = simcse_run(SCALES["small"], BASE)
    assert isinstance(run, Run)
    return run


def steps(run: Run, store: Path, data: Path) -> Callable[[], None]:
    loop = Loop(run, Execution(store, data=data))
    return lambda: loop.train_step(loop.step % loop.history.steps)


@pytest.mark.parametrize("name", CASES)
def test_step(name: str, tmp_path: Path, real_data: Path) -> None:
    torch.set_num_threads(2)
    method, passes, wanted = CASES[name]
    plain, one = (steps(replace(simcse(), method=m), tmp_path, real_data) for m in (Plain(passes=passes), method))
    by_turns(5, plain=plain, one=one)  # warm
    timed = by_turns(ROUNDS, plain=plain, one=one)
    ratios = quotients(timed["one"], timed["plain"])
    note = f"{1000 * median(timed['one']):.1f} against {1000 * median(timed['plain']):.1f} ms"
    against = f"of a SimCSE step with {passes} passes"
    assert record(f"{name}, step", ratios, against=against, wanted=wanted, bound=BOUNDS.get(name, ""), note=note) < 1.5


@pytest.mark.parametrize("name", BASELINES)
def test_baseline_step(name: str, tmp_path: Path, real_data: Path) -> None:
    torch.set_num_threads(2)
    run = RUNS[name](SCALES["small"], BASE)
    assert isinstance(run, Run)
    ready = replace(run, method=with_fields(run.method, **READY.get(name, {})), corpus=simcse().corpus)
    plain, one = (steps(each, tmp_path, real_data) for each in (simcse(), ready))
    by_turns(3, plain=plain, one=one)  # warm
    timed = by_turns(FEWER_ROUNDS, plain=plain, one=one)
    ratios = quotients(timed["one"], timed["plain"])
    note = f"{1000 * median(timed['one']):.1f} against {1000 * median(timed['plain']):.1f} ms"
    against = "of a SimCSE step"
    assert record(f"{type(run.method).__name__}, step", ratios, against=against, wanted="", note=note) < BASELINES[name]


@pytest.mark.parametrize(("threads", "encoder"), [(1, "wiki-tiny"), (2, "wiki-tiny"), (1, "wiki-medium")])
def test_step_with_the_faster_products(threads: int, encoder: str, tmp_path: Path, real_data: Path) -> None:
    torch.set_num_threads(threads)
    before = PRODUCTS.fp32_precision
    with faster_products():
        chosen = PRODUCTS.fp32_precision
    if chosen == before:
        pytest.skip("this processor has no faster products")
    step = steps(replace(simcse(), backbone=Pretrained(encoder)), tmp_path, real_data)

    def with_precision(precision: str) -> None:
        PRODUCTS.fp32_precision = precision
        step()

    ways = {"fast": partial(with_precision, chosen), "plain": partial(with_precision, before)}
    by_turns(3, **ways)  # warm
    timed = by_turns(FEWER_ROUNDS, **ways)
    PRODUCTS.fp32_precision = before
    ratios = quotients(timed["fast"], timed["plain"])
    note = f"{1000 * median(timed['fast']):.1f} against {1000 * median(timed['plain']):.1f} ms"
    against = "of a step with MKL's products"
    name = f"SimCSE step on {encoder}, fp32 products of oneDNN, threads: {threads}"
    assert record(name, ratios, against=against, wanted="", note=note) < 0.9


def test_whitening_768_dimensions_in_384_groups() -> None:
    torch.set_num_threads(2)
    x = torch.randn(64, 768, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(768, generator=torch.Generator().manual_seed(1))
    took = by_turns(200, whitening=lambda: group_whiten(x, 384, order))["whitening"]
    against = "milliseconds, batch 64"
    milliseconds = [1000 * t for t in took]
    assert record("whitening 768 dimensions in 384 groups", milliseconds, against=against, wanted="at most 10") < 20
