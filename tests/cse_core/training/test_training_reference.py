"""The training loop against a plain loop written from the documentation: SimCSE's recipe, one line a sentence of it.

The reference takes from the project the encoder's pass and the names of the random streams, and nothing else: order,
padding, head, loss, clipping, rate, optimiser and dev selection are written out here.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cse_core.data import synthetic
from cse_core.method import Tokens
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.seeding import seed_for
from cse_core.training.loop import Loop

SENTENCES, BATCH, EPOCHS = 20, 8, 2
STEPS = EPOCHS * 3  # batches of 8, 8 and 4: the last one is smaller, and of more than two
RUN = Run(
    method=SimCSE(),
    backbone=Pretrained("wiki-tiny"),
    corpus=Corpus("synthetic", SENTENCES),
    seed=7,
    epochs=EPOCHS,
    batch_size=BATCH,
    learning_rate=3e-4,
    warmup=0.45,
    dropout=0.3,
    max_length=16,  # cuts some of the sentences
)


def trained_by_the_loop(run: Run, store: Path) -> Loop:
    loop = Loop(run, store, data=None, rules=("last",), device=torch.device("cpu"))
    assert loop.history.steps == STEPS
    for step in range(STEPS):
        loop.train_step(step)
    loop.flush()
    return loop


class Reference:
    """What the documentation says of a SimCSE run. `warmup` is a number of steps."""

    def __init__(self, run: Run, warmup: int, *, fused: bool) -> None:
        self.run, self.warmup = run, warmup
        self.encoder = Encoder.from_pretrained(run.backbone.name, pooling="cls", dropout=run.dropout)
        self.head = nn.Linear(self.encoder.width, self.encoder.width)  # tanh(W h + b), W normal(0.02), b zero
        generator = torch.Generator().manual_seed(seed_for(run.seed, "modules"))
        nn.init.normal_(self.head.weight, std=0.02, generator=generator)
        nn.init.zeros_(self.head.bias)
        ids = self.encoder.tokenizer(synthetic.sentences(SENTENCES), truncation=True, max_length=run.max_length)
        self.ids: list[list[int]] = ids["input_ids"]
        self.parameters = [*self.encoder.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=fused, foreach=False
        )
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.encoder.train()

    def rate(self, step: int) -> float:
        """Up from 0 over the warm-up, then down to 0 at the last step."""
        if step < self.warmup:
            return self.run.learning_rate * step / self.warmup
        return self.run.learning_rate * (STEPS - step) / (STEPS - self.warmup)

    def rows(self, step: int) -> list[int]:
        """Each epoch has an order of its own, from the run's seed."""
        epoch, position = divmod(step, STEPS // EPOCHS)
        order = np.random.default_rng(seed_for(self.run.seed, f"order/{epoch}")).permutation(SENTENCES)
        return order[position * BATCH : (position + 1) * BATCH].tolist()

    def batch(self, rows: list[int]) -> Tokens:
        """Filled on the right to the longest of the batch."""
        texts = [self.ids[row] for row in rows]
        longest = max(map(len, texts))
        ids = torch.tensor([text + [self.encoder.pad_id] * (longest - len(text)) for text in texts])
        mask = torch.tensor([[True] * len(text) + [False] * (longest - len(text)) for text in texts])
        return Tokens(ids, mask)

    def loss(self, step: int) -> Tensor:
        """InfoNCE of two dropout views of the same ids, from the first to the second, at temperature 0.05."""
        torch.manual_seed(seed_for(self.run.seed, f"dropout/{step}"))
        tokens = self.batch(self.rows(step))
        first, second = (self.head(vectors).tanh() for vectors in self.encoder(tokens, tokens))
        cosines = nn.functional.normalize(first, dim=-1) @ nn.functional.normalize(second, dim=-1).T
        return nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(first)))

    def train(self) -> None:
        for step in range(STEPS):
            loss = self.loss(step)
            self.losses.append(loss.item())
            loss.backward()
            self.clip()
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(step)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def clip(self) -> None:
        """The gradient of backbone and head, as one vector, is cut to a norm of 1."""
        self.norms.append(torch.stack([p.grad.norm() for p in self.parameters if p.grad is not None]).norm().item())
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)


def difference(loop: Loop, reference: Reference) -> tuple[float, float]:
    """The largest of any weight: of the backbone, of the head."""
    theirs = dict(reference.encoder.named_parameters())
    mine = dict(loop.encoder.named_parameters())
    assert mine.keys() == theirs.keys()
    backbone = max((mine[name] - theirs[name]).abs().max().item() for name in mine)
    heads = list(loop.modules.parameters())
    assert len(heads) == 2
    pairs = zip(heads, reference.head.parameters(), strict=True)
    return backbone, max((a - b).abs().max().item() for a, b in pairs)


# 2.7 steps are three (cut off they would be two), and 2.4 are two (rounded up they would be three).
@pytest.mark.parametrize(("share", "warmup"), [(0.45, 3), (0.4, 2)])
@pytest.mark.slow
def test_a_run_is_the_documented_loop_bit_for_bit(tmp_path: Path, share: float, warmup: int) -> None:
    """Two epochs with dropout and a warm-up that is no whole number of steps, gradients above the clip and below it."""
    run = replace(RUN, warmup=share)
    loop, reference = trained_by_the_loop(run, tmp_path), Reference(run, warmup, fused=True)
    reference.train()
    assert [value for _, value in loop.history.curves["loss"]] == reference.losses
    assert difference(loop, reference) == (0.0, 0.0)
    assert max(reference.norms) > 1  # else the clip was never at work
    fresh = Reference(run, warmup, fused=True)
    moved = [(a - b).abs().max().item() for a, b in zip(reference.parameters, fresh.parameters, strict=True)]
    assert min(moved) > 0  # backbone and head, every one
    assert reference.rows(0) != reference.rows(STEPS // EPOCHS)  # the second epoch has another order
    assert len({len(ids) for ids in reference.ids}) > 2  # there is something to fill


@pytest.mark.slow
def test_the_fused_optimiser_is_adamw_but_for_rounding(tmp_path: Path) -> None:
    """The losses of the written-out AdamW differ only by rounding.

    Weights can't be compared so closely: where a gradient is nothing but rounding (a key's bias), Adam's step is as
    long as any other and its sign is chance; what is compared is what weights do.
    """
    loop, reference = trained_by_the_loop(RUN, tmp_path), Reference(RUN, 3, fused=False)
    reference.train()
    found = [value for _, value in loop.history.curves["loss"]]
    assert found == pytest.approx(reference.losses, rel=1e-5)
    assert found[0] == reference.losses[0]
    heads = zip(loop.modules.parameters(), reference.head.parameters(), strict=True)
    assert max((a - b).abs().max().item() for a, b in heads) < 1e-6


@pytest.mark.slow
def test_a_batch_is_taught_by_its_own_sentences_vectors(tmp_path: Path) -> None:
    """RankCSE's first epoch: teachers' cosines are those of the batch's truncated sentences, without dropout."""
    shares = {"wiki-mini": 1 / 4, "wiki-tiny": 3 / 4}
    teachers = tuple(Teacher(Pretrained(name), share) for name, share in shares.items())
    run = replace(RUN, method=RankCSE(teachers=teachers, contrastive_weight=0.0, consistency_weight=0.0))
    loop, reference = trained_by_the_loop(run, tmp_path), Reference(run, 3, fused=True)
    encoders = {name: Encoder.from_pretrained(name, pooling="cls") for name in shares}

    def loss(step: int) -> Tensor:
        rows = reference.rows(step)
        tokens = reference.batch(rows)
        mixed = torch.zeros(len(rows), len(rows))
        for name, encoder in encoders.items():
            unit = nn.functional.normalize(encoder.embed([reference.ids[row] for row in rows]), dim=-1)
            mixed += shares[name] * unit @ unit.T
        torch.manual_seed(seed_for(run.seed, f"dropout/{step}"))
        first, second = (reference.head(v).tanh() for v in reference.encoder(tokens, tokens))
        student = nn.functional.normalize(first, dim=-1) @ nn.functional.normalize(second, dim=-1).T
        total = torch.zeros(())
        for i in range(len(rows)):  # ListNet, the positive left out
            others = [j for j in range(len(rows)) if j != i]
            target = (mixed[i, others] / 0.0125).softmax(0)
            total = total - (target * (student[i, others] / 0.025).log_softmax(0)).sum() / len(rows)
        return total

    reference.loss = loss
    reference.train()
    # Teachers embed all sentences in batches of their own: another padding, another last bit.
    assert [value for _, value in loop.history.curves["loss"]] == pytest.approx(reference.losses, rel=1e-4)
