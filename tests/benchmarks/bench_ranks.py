"""Rank similarities, compared with numpy's argsort of argsort of the cosine matrix.

pytest tests/benchmarks/bench_ranks.py -o python_files="bench_*.py" -o addopts= -s
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from cse_core.functional.rank_vectors import BLOCK, rank_similarity
from tests.benchmarks.measure import by_turns, quotients, record

SENTENCES, CORPUS, WIDTH = 1_000, 100_000, 768


def with_numpy(a: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    a, corpus = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, corpus))
    ranks = np.argsort(np.argsort(a @ corpus.T, axis=1), axis=1).astype(np.float32)
    ranks -= (len(corpus) - 1) / 2
    ranks /= np.linalg.norm(ranks, axis=1, keepdims=True)
    return ranks @ ranks.T


def needed_work(a: torch.Tensor, corpus: torch.Tensor) -> torch.Tensor:
    """Do what any ranking by radix sorts must do: both products, and two sorts of 16 bits per row."""
    products = (a @ corpus.T).numpy()

    def sort_both_halves(row: np.ndarray) -> None:
        for half in (0, 1):
            np.argsort(row[half::2], kind="stable")

    with ThreadPoolExecutor(2) as threads:
        deque(threads.map(sort_both_halves, products.view(np.uint16)), maxlen=0)
    return torch.from_numpy(products) @ torch.from_numpy(products).T


def test_rank_similarities_of_a_thousand_sentences() -> None:
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    a, corpus = (torch.randn(n, WIDTH, generator=generator) for n in (SENTENCES, CORPUS))
    results: dict[str, np.ndarray] = {}
    timed = by_turns(
        3,
        ours=lambda: results.update(ours=rank_similarity(a, a, corpus, "order").numpy()),
        numpy=lambda: results.update(numpy=with_numpy(a.numpy(), corpus.numpy())),
        needed=lambda: needed_work(a, corpus),
    )
    assert np.abs(results["ours"] - results["numpy"]).max() < 1e-4  # cosines' last bits differ, and so do ranks
    note = f"{min(timed['ours']):.1f} against {min(timed['numpy']):.1f} s, exact ranks, {2 * BLOCK:,} held at most"
    what, against = "rank similarities, 1,000 sentences, 100,000 in the corpus, d 768", "times as fast as numpy"
    bound = "two radix sorts of 16 bits; the products for cosines and for similarities"
    ratios = quotients(timed["numpy"], timed["ours"])
    ratio = record(what, ratios, against=against, wanted="at least 3", bound=bound, note=note)
    # Measured: 4.7 on an EPYC. Where numpy's argsort uses AVX-512 it is 1.7 to 2.4, and the products take the rest.
    assert ratio > 1
    # Measured: 1.1 to 1.5 on an EPYC with AVX-512. Unlike numpy's time, this is the same work on every processor.
    assert min(timed["ours"]) < 2 * min(timed["needed"])
