"""How time and memory grow with sentences, batch and corpus size, as exponents.

    pytest tests/benchmarks/bench_scaling.py -o python_files="bench_*.py" -o addopts= -s

Memory is the growth of a process's peak; each point has its own process.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch

from cse_core.data.corpora import sentences
from cse_core.functional.rank_vectors import rank_similarity
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus
from cse_core.training.loop import Execution, Loop
from experiments.schema.recipes import simcse_run
from experiments.schema.scales import SCALES
from tests.benchmarks.measure import by_turns, curve


def embedding(count: int, data: Path, folder: Path) -> Callable[[], object]:
    """Embed Wikipedia sentences with wiki-tiny."""
    texts = sentences(Corpus("wiki_sentences_1m", count), data)["text"][:]
    encoder = Encoder.from_pretrained("wiki-tiny")
    return lambda: encoder.encode(texts)


def step(batch: int, data: Path, folder: Path) -> Callable[[], object]:
    """Make a SimCSE step."""
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert run is not None
    loop = Loop(replace(run, batch_size=batch), Execution(folder, data=data))
    return lambda: loop.train_step(0)


def ranks(size: int, data: Path, folder: Path) -> Callable[[], object]:
    """Rank a corpus for 64 sentences."""
    a, corpus = torch.randn(64, 128), torch.randn(size, 128)
    return lambda: rank_similarity(a, a, corpus, "order")


# By name: the work, the quantity it grows with, and that quantity's values.
WORKS: dict[str, tuple[Callable[[int, Path, Path], Callable[[], object]], str, tuple[int, ...]]] = {
    "embedding": (embedding, "sentences", (2_000, 4_000, 8_000, 16_000)),
    "SimCSE step": (step, "batch", (32, 64, 128, 256)),
    "rank similarities of 64": (ranks, "corpus size", (10_000, 20_000, 50_000, 100_000)),
}


def grown(name: str, size: int, data: Path, folder: Path) -> None:
    """Print by how many MiB the work raises the peak of this process; called by `memory`."""
    torch.set_num_threads(2)
    make, _, sizes = WORKS[name]
    make(sizes[0] // 8, data, folder)()  # loads libraries and their buffers first
    work = make(size, data, folder)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak (getrusage's would be the parent's)
    before = _status("VmRSS")
    work()
    print((_status("VmHWM") - before) / 1024)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def memory(name: str, size: int, data: Path, folder: Path) -> float:
    code = "import sys; from pathlib import Path; from tests.benchmarks.bench_scaling import grown; "
    code += "grown(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))"
    command = [sys.executable, "-c", code, name, str(size), str(data), str(folder)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("name", WORKS)
def test_growth(name: str, real_data: Path, tmp_path: Path, cache: Path) -> None:
    torch.set_num_threads(2)
    make, of, sizes = WORKS[name]
    works = {str(size): make(size, real_data, tmp_path) for size in sizes}
    by_turns(1, **works)  # warm
    timed = by_turns(5, **works)
    points = {size: 1000 * median(timed[str(size)]) for size in sizes}
    assert curve(f"time, {name}", of, points, "ms") < 1.4
    held = {size: memory(name, size, real_data, tmp_path) for size in sizes}
    assert curve(f"memory, {name}", of, held, "MiB") < 1.4
