"""Alternatives that were tried for speed and are not used: their time as a multiple of the code in use.

pytest tests/benchmarks/bench_tried.py -o python_files="bench_*.py" -o addopts= -s
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from cse_core.data.batches import pad
from cse_core.data.corpora import sentences
from cse_core.functional.rank_vectors import _assign_ranks, rank_vectors
from cse_core.models.encoder import Encoder
from cse_core.models.packed_forward import attend, dropout
from experiments.schema.scales import SCALES
from tests.benchmarks.measure import by_turns, quotients, record

TURNS = 20


def compare(what: str, tried: Callable[[], object], used: Callable[[], object], against: str, why: str) -> float:
    works = {"tried": tried, "used": used}
    by_turns(3, **works)
    timed = by_turns(TURNS, **works)
    ratios = quotients(timed["tried"], timed["used"])
    note = f"{why} ({1000 * median(timed['tried']):.1f} against {1000 * median(timed['used']):.1f} ms)"
    return record(what, ratios, against=against, wanted="", note=note, table="tried")


@pytest.fixture(autouse=True)
def two_threads() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)


def test_torchs_fused_attention() -> None:
    parts = [torch.randn(256, 32, 64, requires_grad=True) for _ in range(3)]
    mask, gradient = torch.arange(32) < torch.randint(20, 33, (128, 1)), torch.randn(256, 32, 64)
    apart = [part.view(128, 2, 32, 64) for part in parts]

    def fused() -> None:
        found = F.scaled_dot_product_attention(*apart, attn_mask=mask[:, None, None])
        torch.autograd.grad(found, parts, gradient.view(128, 2, 32, 64))

    def used() -> None:
        torch.autograd.grad(attend(*parts, mask, 0.0), parts, gradient)

    why = "its backward pass costs more than it saves at 32 tokens"
    assert compare("torch's fused attention", fused, used, "of two products and a softmax, there and back", why) > 1


def test_torchs_dropout() -> None:
    x = torch.randn(3400, 128)
    why = "bernoulli_ draws a number at a time, on one thread"
    assert (
        compare("torch's dropout", lambda: F.dropout(x, 0.3), lambda: dropout(x, 0.3), "of 16 bits a number", why) > 1
    )


@pytest.mark.filterwarnings("default")  # of the compiler itself
def test_compiled_padded_passes(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = sentences(SCALES["small"].corpus, real_data)["text"][:64]
    ours, theirs = (Encoder.from_pretrained("wiki-tiny", dropout=0.0).train() for _ in range(2))
    tokens = pad([row[:32] for row in ours.tokenise(texts)], ours.pad_id)
    theirs.backbone.compile(dynamic=False)

    def there_and_back(encoder: Encoder, *, packs: bool) -> None:
        monkeypatch.setattr(Encoder, "runs_packed", property(lambda self: packs))
        encoder(tokens, tokens)[0].square().sum().backward()

    why = "fusing saves less than padding and unread states cost, and every process compiles anew"
    tried, used = partial(there_and_back, theirs, packs=False), partial(there_and_back, ours, packs=True)
    assert compare("torch.compile on the padded pass", tried, used, "of the packed pass, no dropout", why) > 1


def test_one_sort_of_wide_keys() -> None:
    scores, ranks = torch.randn(64, 10_000), torch.arange(10_000.0)
    torch.set_num_threads(1)  # the code in use would have a pool of two, the alternative has none

    def wide() -> None:
        rows, index = scores.numpy(), np.arange(10_000, dtype=np.int64)
        found = np.empty_like(rows)
        for row, into in zip(rows, found, strict=True):
            bits = row.view(np.int32)
            keys = (bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int64) << 32 | index
            keys.sort()
            into[keys & 0xFFFFFFFF] = ranks.numpy()

    used = partial(_assign_ranks, scores, ranks)
    why = "a comparing sort, vectorised, is slower than two radix sorts of 16 bits"
    assert compare("ranks by one sort of 64-bit keys", wide, used, "of two radix sorts", why) > 1


def test_ranks_counted_in_cells() -> None:
    a, corpus = torch.randn(64, 128), F.normalize(torch.randn(10_000, 128), dim=-1)
    cells = 4096

    def counted() -> torch.Tensor:
        scores = F.normalize(a, dim=-1) @ corpus.T
        low, high = scores.aminmax(dim=1, keepdim=True)
        cell = ((scores - low) * ((cells - 1) / (high - low))).long() + torch.arange(64)[:, None] * cells
        counts = torch.bincount(cell.view(-1), minlength=64 * cells).view(64, cells)
        middle = counts.cumsum(1).float() - (counts + 1).float() / 2
        return F.normalize(middle.view(-1)[cell] - middle.view(-1)[cell].mean(1, keepdim=True), dim=1)

    def used() -> torch.Tensor:
        return rank_vectors(a, corpus, normalise=False)

    error = (counted() @ counted().T - used() @ used().T).abs().max()
    why = f"off by up to {error:.0e} in a rank similarity; exact ranks cost little more"
    assert compare("ranks counted in 4,096 cells", counted, used, "of exact ranks", why) > 0


def test_updating_only_the_words_of_the_batch() -> None:
    def updated(rows: int) -> Callable[[], object]:
        weight = torch.nn.Parameter(torch.randn(rows, 128))
        weight.grad = torch.randn(rows, 128)
        optimizer = torch.optim.AdamW([weight], lr=1e-4, weight_decay=0.0, fused=True)
        return lambda: (torch.nn.utils.clip_grad_norm_([weight], 1.0), optimizer.step())

    why = "little of a step, and rows that rest would miss what the moments still owe them: another optimiser"
    assert compare("AdamW and clipping, 1,200 words", updated(1_200), updated(30_522), "of all 30,522 words", why) < 1
