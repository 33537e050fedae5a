"""A BERT-base with random weights on one GPU: share of the matmul rate, RankCSE against SimCSE, runs that share it.

    pytest tests/benchmarks/bench_gpu.py -o python_files="bench_*.py" -o addopts= -s

bf16 autocast, 32 tokens, synthetic sentences: neither data nor the hub is needed. Skipped if there is no GPU.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
import torch
from transformers import BertConfig, BertModel

from cse_core.method import Method
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution, Loop
from experiments.schema.scales import WIKI_MINI, WIKI_TINY
from tests.benchmarks.measure import matmul_rate, operations, record, share, share_of_card

WARM, STEPS, TURNS = 10, 30, 5
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bert-base")
    torch.manual_seed(0)
    tokenizer = Encoder.from_pretrained("wiki-tiny").tokenizer
    BertModel(BertConfig(vocab_size=len(tokenizer)), add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", autouse=True)
def examples_are_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def loop_of(model: str, batch: int, store: Path, method: Method | None = None, *, compiled: bool = False) -> Loop:
    run = Run(
        method=method or SimCSE(),
        backbone=Pretrained(model),
        corpus=Corpus("synthetic", 32_768),
        batch_size=batch,
        precision="bf16",
    )
    return Loop(run, Execution(store, device="cuda", compiled=compiled))


def step_seconds(loop: Loop) -> Callable[[], float]:
    """Return a function that measures a step's mean wall-clock seconds, over many steps without synchronisation."""
    for step in range(WARM):
        loop.train_step(step)

    def measured() -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for step in range(STEPS):
            loop.train_step(WARM + step)
        torch.cuda.synchronize()
        return (time.perf_counter() - started) / STEPS

    return measured


@pytest.mark.filterwarnings("default")  # of the compiler itself
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("batch", [64, 128, 512])
def test_share_of_the_matmul_rate(batch: int, compiled: bool, base: str, tmp_path: Path) -> None:
    loop = loop_of(base, batch, tmp_path, compiled=compiled)
    tokens = 2 * int(median(int(loop.batches.at(i)["text"].mask.sum()) for i in range(8)))
    step, took, rates = step_seconds(loop), [], []
    for _ in range(TURNS):
        took.append(step())
        rates.append(matmul_rate(torch.bfloat16, "cuda", size=8192))
    shares = share(operations(loop.encoder, tokens), took, rates)
    what = f"SimCSE step, 12 layers of 768, batch {batch}, bf16" + (", compiled" if compiled else "")
    note = f"{batch / median(took):.0f} sentences/s, {median(rates) / 1e12:.0f} TFLOP/s"
    aim = "at least 0.40" if batch == 512 else ""
    against = "of the card's bf16 matmul rate, real tokens"
    assert record(what, shares, against=against, wanted=aim, note=note, device="cuda") > 0


@pytest.mark.parametrize("batch", [64, 128, 512])
def test_rankcse_against_simcse(batch: int, base: str, tmp_path: Path) -> None:
    teachers = (Teacher(WIKI_TINY, 1 / 3), Teacher(WIKI_MINI, 2 / 3))
    plain, taught = (
        step_seconds(loop_of(base, batch, tmp_path, method)) for method in (SimCSE(), RankCSE(teachers=teachers))
    )
    ratios = [taught() / plain() for _ in range(TURNS)]
    what, against = f"RankCSE step, 12 layers of 768, batch {batch}", "of a SimCSE step, caches warm"
    assert record(what, ratios, against=against, wanted="at most 1.10", device="cuda") > 0


ALONE = """
import sys
from pathlib import Path
import torch
from tests.benchmarks.bench_gpu import loop_of, step_seconds
step = step_seconds(loop_of(sys.argv[1], 64, Path(sys.argv[2])))
print("warm", flush=True)
sys.stdin.readline()
rate = 64 / (sum(step() for _ in range(10)) / 10)
print(rate, torch.cuda.max_memory_reserved() / 2**30)
"""


@pytest.mark.parametrize("model", ["12 layers of 768", "6 layers of 256"])
def test_runs_that_share_the_card(model: str, base: str, tmp_path: Path) -> None:
    """Several processes at once, batch 64: they use what one process leaves of the card's rate."""
    rates: dict[int, float] = {}
    name = base if model == "12 layers of 768" else "wiki-medium"
    for runs in (1, 2, 4, 8, 16):
        command = [sys.executable, "-c", ALONE, name, str(tmp_path)]
        pipe = subprocess.PIPE
        started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(runs)]
        assert [process.stdout.readline() for process in started if process.stdout] == ["warm\n"] * runs
        for process in started:  # all at once, once all have warmed up
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        found = [process.communicate()[0].split() for process in started]
        rates[runs] = sum(float(rate) for rate, _ in found)
        assert share_of_card(model, runs, rates[runs] / rates[1], max(float(gib) for _, gib in found)) > 0
