"""The loop that steps are compared with: sentence-transformers' trainer on pairs of equal texts."""

import time
from pathlib import Path

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

from cse_core.models.pretrained import resolve
from cse_core.run import Run

PEER = "SentenceTransformerTrainer with MultipleNegativesRankingLoss"


class Clock(TrainerCallback):
    """The times at which steps ended, on a GPU too."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.ends: list[float] = []

    def on_step_end(self, *args: object, **more: object) -> None:
        self.ends.append(time.perf_counter())

    def on_train_end(self, *args: object, **more: object) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            self.ends[-1] = time.perf_counter()


def peer_steps(run: Run, texts: list[str], folder: Path, device: str = "cpu") -> list[float]:
    """Return the seconds of each step except the first.

    On a GPU a step may end before its work there does; only the sum of many is right.
    """
    transformer = Transformer(str(resolve(run.backbone.name)), max_seq_length=run.max_length)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")
    model = SentenceTransformer(modules=[transformer, pooling], device=device)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=run.batch_size,
        num_train_epochs=1,
        learning_rate=run.learning_rate,
        use_cpu=device == "cpu",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        bf16=run.precision == "bf16",
    )
    clock, pairs = Clock(device), Dataset.from_dict({"anchor": texts, "positive": texts})
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=loss, callbacks=[clock]).train()
    return [b - a for a, b in zip(clock.ends, clock.ends[1:], strict=False)]
