"""What a step of each method costs beyond a SimCSE step with as many encoder passes, as a ratio of paired timings.

    pytest tests/benchmarks -o python_files="bench_*.py"

Each round times the plain step and then the method's, so that a noisy machine slows both; the ratio is of the medians.
Two threads, wiki-tiny, 64 sentences of the small scale's corpus.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from cse_core.contrastive import info_nce
from cse_core.method import Batch, Encode, Loss, Method
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.whitenedcse import WhitenedCSE, group_whiten
from cse_core.run import Run
from cse_core.train import Loop
from experiments.runs import simcse_run
from experiments.scales import SCALES, WIKI_MINI, WIKI_TINY

ROUNDS = 80


@dataclass(frozen=True, kw_only=True)
class Plain(SimCSE):
    """SimCSE with `passes` dropout views, the first against each of the others (against itself if it is alone)."""

    name: ClassVar[str] = "plain"
    passes: int = 2

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        z = [modules["head"](h) for h in encode(*[batch["text"]] * self.passes)]
        total = sum((info_nce(z[0], other, self.temperature) for other in z[1:] or z), torch.zeros(()))
        return Loss(total, {"contrastive": total})


TEACHERS = (Teacher(WIKI_TINY, 1 / 3), Teacher(WIKI_MINI, 2 / 3))
# The method, and with how many passes SimCSE is to be compared.
CASES: dict[str, tuple[Method, int]] = {
    "RankCSE ListNet": (RankCSE(teachers=TEACHERS), 2),
    "RankCSE ListMLE": (RankCSE(teachers=TEACHERS, rank="list_mle"), 2),
    "WhitenedCSE shared": (WhitenedCSE(groups=64), 1),
    "WhitenedCSE dropout": (WhitenedCSE(groups=64, views="dropout"), 3),
    "RankEncoder 10,000": (RankEncoder(base=WIKI_TINY, corpus_size=10_000), 2),
}


def steps(method: Method, store: Path, data: Path) -> Callable[[], None]:
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert isinstance(run, Run)
    loop = Loop(replace(run, method=method), store, data=data, keep=("last",), device=torch.device("cpu"))
    return lambda: loop.train_step(loop.step % loop.history.steps)


@pytest.mark.parametrize("name", CASES)
def test_step(name: str, benchmark: Any, tmp_path: Path, real_data: Path) -> None:
    torch.set_num_threads(2)
    method, passes = CASES[name]
    plain, one = (steps(m, tmp_path, real_data) for m in (Plain(passes=passes), method))
    seconds = []

    def before() -> None:
        started = time.perf_counter()
        plain()
        seconds.append(time.perf_counter() - started)

    benchmark.pedantic(one, setup=before, rounds=ROUNDS, warmup_rounds=5)
    beyond = median(benchmark.stats.stats.data) / median(seconds[5:]) - 1
    benchmark.extra_info["beyond SimCSE"] = f"{beyond:+.1%} ({passes} passes)"
    print(f"\n{name}: {beyond:+.1%} beyond SimCSE with {passes} passes ({median(seconds) * 1000:.1f} ms)")


def test_whitening_768_dimensions_in_384_groups(benchmark: Any) -> None:
    torch.set_num_threads(2)
    x = torch.randn(64, 768, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(768, generator=torch.Generator().manual_seed(1))
    benchmark(lambda: group_whiten(x, 384, order))
