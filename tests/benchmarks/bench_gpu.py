"""A BERT-base with random weights on one GPU: shares of the matmul rate, kernels, other trainers, runs that share it.

    pytest tests/benchmarks/bench_gpu.py -o python_files="bench_*.py" -o addopts= -s

bf16 autocast, 32 tokens, synthetic sentences: neither data nor the hub is needed. Skipped if there is no GPU; with
CSE_TINY=1 everything but compiled steps is tried on a CPU, with wiki-tiny and few steps.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

from cse_core.data.corpora import sentences
from cse_core.method import Method
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import resolve
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution, Loop
from experiments.schema.scales import WIKI_MINI, WIKI_TINY
from tests.benchmarks.measure import kernels_of, matmul_rate, operations, quotients, record, share, share_of_card

TINY = os.environ.get("CSE_TINY") == "1"
DEVICE = "cpu" if TINY else "cuda"
WARM, STEPS, TURNS = (1, 2, 2) if TINY else (10, 30, 5)
BATCHES = [8] if TINY else [64, 128, 512]
WAYS = ["eager", "compiled", "without-cuda-graphs"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
pytestmark = [
    pytest.mark.skipif(not TINY and not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("default"),  # of the compiler and of other libraries
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    if TINY:
        return str(resolve("wiki-tiny"))
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


def run_of(model: str, batch: int, method: Method | None = None, precision: str = "bf16") -> Run:
    return Run(
        method=method or SimCSE(),
        backbone=Pretrained(model),
        corpus=Corpus("synthetic", 256 if TINY else 32_768),
        batch_size=batch,
        precision="fp32" if TINY else precision,  # ty: ignore[invalid-argument-type]
    )


def loop_of(run: Run, store: Path, way: str = "eager") -> Loop:
    """Return a run's loop: eager, compiled with CUDA graphs, or compiled without them."""
    if TINY and way != "eager":
        pytest.skip("compiled steps need a GPU")
    with pytest.MonkeyPatch.context() as patch:
        if way == "without-cuda-graphs":
            compiled: Any = torch.compile
            patch.setattr(torch, "compile", lambda loss, **options: compiled(loss, **options | {"mode": None}))
        return Loop(run, Execution(store, device=DEVICE, compiled=way != "eager"))


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def step_seconds(loop: Loop) -> Callable[[], float]:
    """Return a function that measures a step's mean wall-clock seconds, over many steps without synchronisation."""
    for step in range(WARM):
        loop.train_step(step)

    def measured() -> float:
        wait()
        started = time.perf_counter()
        for step in range(STEPS):
            loop.train_step(WARM + step)
        wait()
        return (time.perf_counter() - started) / STEPS

    return measured


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch", BATCHES)
def test_share_of_the_matmul_rate(batch: int, way: str, base: str, tmp_path: Path) -> None:
    """Record it, then the number of kernels of a step and the share of its time in which they run."""
    loop = loop_of(run_of(base, batch), tmp_path, way)
    tokens = 2 * int(median(int(loop.batches.at(i)["text"].mask.sum()) for i in range(8)))
    step, took, rates = step_seconds(loop), [], []
    for _ in range(TURNS):
        took.append(step())
        rates.append(matmul_rate(torch.bfloat16, DEVICE, size=512 if TINY else 8192))
    shares = share(operations(loop.encoder, tokens), took, rates)
    what = f"SimCSE step, 12 layers of 768, batch {batch}, bf16" + ("" if way == "eager" else f", {way}")
    note = f"{batch / median(took):.0f} sentences/s, {median(rates) / 1e12:.0f} TFLOP/s"
    aim = "at least 0.40" if batch == 512 else ""
    against = "of the card's bf16 matmul rate, real tokens"
    assert record(what, shares, against=against, wanted=aim, note=note, device=DEVICE) > 0
    loop.train_step(0)  # the batches ahead are those that follow
    kernels, busy, idle = kernels_of(lambda: loop.train_step(loop.step), STEPS, DEVICE)
    note = f"{kernels:.0f} kernels a step, {1000 * busy:.1f} ms; {1000 * idle:.1f} ms between them while profiled"
    against = "of a step's time, in which the card is busy"
    assert record(f"{what}, busy", [busy / t for t in took], against=against, wanted="", note=note, device=DEVICE) > 0


@pytest.mark.parametrize("batch", BATCHES)
def test_rankcse_against_simcse(batch: int, base: str, tmp_path: Path) -> None:
    teachers = (Teacher(WIKI_TINY, 1 / 3), Teacher(WIKI_MINI, 2 / 3))
    plain, taught = (
        step_seconds(loop_of(run_of(base, batch, method), tmp_path))
        for method in (SimCSE(), RankCSE(teachers=teachers))
    )
    ratios = [taught() / plain() for _ in range(TURNS)]
    what, against = f"RankCSE step, 12 layers of 768, batch {batch}", "of a SimCSE step, caches warm"
    assert record(what, ratios, against=against, wanted="at most 1.10", device=DEVICE) > 0


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
def test_against_another_trainer(batch: int, precision: str, base: str, tmp_path: Path) -> None:
    """In turns, at the same precision, on the same sentences."""
    from tests.benchmarks.peer import PEER, peer_steps  # lazy: may not be installed

    run = run_of(base, batch, precision=precision)
    texts = sentences(run.corpus)["text"][: batch * (WARM + STEPS)]
    step, took, theirs = step_seconds(loop_of(run, tmp_path)), [], []
    for turn in range(TURNS):
        took.append(step())
        later = peer_steps(run, texts, tmp_path / str(turn), DEVICE)[WARM - 1 :]
        theirs.append(sum(later) / len(later))
    what = f"SimCSE step, 12 layers of 768, batch {batch}, against a peer, {precision}"
    note = f"{batch / median(took):.0f} against {batch / median(theirs):.0f} sentences/s"
    against = f"times as fast as {PEER}, {precision}"
    ratios, aim = quotients(theirs, took), "at least 3" if precision == "bf16" else ""
    assert record(what, ratios, against=against, wanted=aim, note=note, device=DEVICE) > 0


ALONE = """
import sys
from pathlib import Path
from tests.benchmarks.bench_gpu import BATCHES, DEVICE, STEPS, TURNS, kernels_of, loop_of, run_of, step_seconds
loop = loop_of(run_of(sys.argv[1], BATCHES[0]), Path(sys.argv[2]))
step = step_seconds(loop)
print("warm", flush=True)
sys.stdin.readline()
seconds = sum(step() for _ in range(2 * TURNS)) / 2 / TURNS
loop.train_step(0)
busy = kernels_of(lambda: loop.train_step(loop.step), STEPS, DEVICE)[1]
print(BATCHES[0] / seconds, busy / seconds)
"""


def card_memory() -> tuple[float, float]:
    """Return the GiB of the card that are in use, by any process, and its GiB in all."""
    free, total = torch.cuda.mem_get_info() if DEVICE == "cuda" else (0, 2**30)
    return (total - free) / 2**30, total / 2**30


@pytest.mark.parametrize("model", ["12 layers of 768", "6 layers of 256"])
def test_runs_that_share_the_card(model: str, base: str, tmp_path: Path) -> None:
    """Several processes at once, batch 64: they use what one process leaves of the card's rate."""
    rates: dict[int, float] = {}
    name, busy, gib = base if model == "12 layers of 768" else "wiki-medium", 0.0, 0.0
    before, card = card_memory()
    for runs in (1, 2) if TINY else (1, 2, 4, 8, 16):
        if runs * gib > card:
            break
        command = [sys.executable, "-c", ALONE, name, str(tmp_path)]
        pipe = subprocess.PIPE
        started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(runs)]
        assert [process.stdout.readline() for process in started if process.stdout] == ["warm\n"] * runs
        gib = (card_memory()[0] - before) / runs
        for process in started:  # all at once, once all have warmed up
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        found = [tuple(map(float, process.communicate()[0].splitlines()[-1].split())) for process in started]
        rates[runs] = sum(rate for rate, _ in found)
        busy = found[0][1] if runs == 1 else busy
        assert share_of_card(model, runs, rates[runs] / rates[1], gib, card, busy, DEVICE) > 0
