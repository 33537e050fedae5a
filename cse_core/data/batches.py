"""Padded batches of token ids, in an order that depends only on seed and step."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cse_core.data.text_files import MOST_CHARACTERS
from cse_core.method import Batch, Factors, Tokens, to_device
from cse_core.run import steps_per_epoch
from cse_core.seeding import generator_for, seed_for

if TYPE_CHECKING:
    from datasets import Dataset

Text = TypeVar("Text", str, tuple[str, ...])


def by_size(texts: Sequence[Text]) -> Iterator[list[Text]]:
    """Yield the texts, or tuples of texts, in lists of about a million characters at most.

    A tokenizer takes 160 bytes of memory per character, even for text that it cuts off.
    """
    part: list[Text] = []
    size = 0
    for text in texts:
        length = len(text) if isinstance(text, str) else sum(map(len, text))
        if part and size + length > MOST_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(text)
        size += length
    if part:
        yield part


class Column:
    """One column of id lists, as Arrow's flat values and offsets: no list objects, and no copy of a single chunk."""

    def __init__(self, table: "Dataset", name: str) -> None:
        pieces = table.data.column(name)
        lists = pieces.chunk(0) if pieces.num_chunks == 1 else pieces.combine_chunks()
        self.values = lists.values.to_numpy()
        self.offsets = lists.offsets.to_numpy()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int | np.integer) -> Int[np.ndarray, " t"]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


def pad(ids: Sequence[Sequence[int] | Int[np.ndarray, " _"]], pad_id: int, width: int = 0) -> Tokens:
    """Pad ids of different lengths on the right, to the longest of them and at least to `width`."""
    longest = max([width, *map(len, ids)])
    padded = np.full((len(ids), longest), pad_id, dtype=np.int64)
    mask = np.zeros((len(ids), longest), dtype=bool)
    for i, row in enumerate(ids):
        padded[i, : len(row)] = row
        mask[i, : len(row)] = True
    return Tokens(torch.from_numpy(padded), torch.from_numpy(mask))


def stack(tokens: Sequence[Tokens], pad_id: int) -> Tokens:
    """Concatenate several Tokens, padded to the longest, for one encoder pass over all views."""
    longest = max(part.ids.shape[1] for part in tokens)

    def fill(values: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(values, (0, longest - values.shape[1]), value=value)

    positions = None
    if any(part.positions is not None for part in tokens):
        positions = torch.cat([fill(part.position_ids, 0) for part in tokens])
    ids = torch.cat([fill(part.ids, pad_id) for part in tokens])
    mask = torch.cat([fill(part.mask, 0) for part in tokens])
    return Tokens(ids, mask, positions, _stacked_kept(tokens, longest), _stacked_factors(tokens, longest))


def _stacked_kept(tokens: Sequence[Tokens], longest: int) -> Bool[Tensor, " n #t #d"] | None:
    """Return what several Tokens keep of the embedding output: everything where `kept` is None."""
    given = [part.kept for part in tokens if part.kept is not None]
    if not given:
        return None
    width = max(kept.shape[2] for kept in given)
    by_token = any(kept.shape[1] > 1 for kept in given)
    rows = []
    for part in tokens:
        kept = part.mask.new_ones(len(part.mask), 1, 1) if part.kept is None else part.kept
        if by_token:
            kept = kept.expand(-1, part.ids.shape[1], -1)
            kept = torch.nn.functional.pad(kept, (0, 0, 0, longest - part.ids.shape[1]), value=True)
        rows.append(kept.expand(-1, -1, width))
    return torch.cat(rows)


def _stacked_factors(tokens: Sequence[Tokens], longest: int) -> Factors | None:
    """Return the factors of several Tokens, which must share one `features` tensor."""
    factors = [part.factors for part in tokens if part.factors is not None]
    if not factors:
        return None
    features = factors[0].features
    if len(factors) < len(tokens) or any(part.features is not features for part in factors):
        raise ValueError("tokens of one pass need the very same features in their factors, or no factors at all")
    widened = (torch.nn.functional.pad(f.tokens, (0, longest - f.tokens.shape[2]), value=1.0) for f in factors)
    return Factors(torch.cat(list(widened)), features)


def widths_for(longest: int, most: int) -> tuple[int, ...]:
    """Return the widths to which a GPU's batches are padded: a third, two thirds and all of the longest example.

    They are multiples of 8, as tensor cores prefer, but at most `most`, the encoder's number of positions. They are
    few, as torch.compile makes a graph for each shape.
    """
    return tuple(sorted({min(8 * math.ceil(longest * part / 24), most) for part in (1, 2, 3)}))


class Batches:
    """The batches of a run by step: examples are shuffled every epoch; only a last batch of one or two is dropped."""

    def __init__(
        self,
        table: "Dataset",
        batch_size: int,
        *,
        seed: int,
        pad_id: int,
        device: torch.device,
        positions: int,
        leave_out_duplicates: bool = False,
    ) -> None:
        self.columns = {name: Column(table, name) for name in table.column_names}
        self.examples, self.batch_size, self.seed = len(table), batch_size, seed
        self.pad_id, self.device, self.leave_out_duplicates = pad_id, device, leave_out_duplicates
        self.per_epoch = steps_per_epoch(self.examples, batch_size)
        if self.per_epoch == 0:
            raise ValueError(
                f"{self.examples} training examples make no batch: a contrastive loss needs at least three"
            )
        self.longest = max(int(np.diff(c.offsets).max()) for c in self.columns.values())
        self.widths = widths_for(self.longest, positions) if device.type == "cuda" else ()
        self._order = -1, np.empty(0, dtype=np.int64)

    def rows(self, step: int) -> Int[np.ndarray, " n"]:
        """Return the rows of the examples of one step."""
        epoch, position = divmod(step, self.per_epoch)
        known, order = self._order  # one tuple, as two threads may read and replace it
        if epoch != known:
            order = np.random.default_rng(seed_for(self.seed, f"order/{epoch}")).permutation(self.examples)
            self._order = epoch, order
        return order[position * self.batch_size : (position + 1) * self.batch_size]

    def at(self, step: int) -> Batch:
        """Return the batch of one step, on the device."""
        rows = self.rows(step)
        ids = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        longest = max(len(row) for column in ids.values() for row in column)
        width = next((width for width in self.widths if width >= longest), 0)
        columns = {}
        for name, column in ids.items():
            tokens = pad(column, self.pad_id, width)
            columns[name] = Tokens(to_device(tokens.ids, self.device), to_device(tokens.mask, self.device))
        generator = generator_for(self.seed, f"loss/{step}", self.device)
        return Batch(torch.from_numpy(rows), columns, generator, self.leave_out_duplicates)


class BatchesAhead:
    """Prepares the next batch in a background thread, while a GPU works on this one."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self._thread = batches, ThreadPoolExecutor(max_workers=1)
        self._next: tuple[int, Future[Batch]] = self._make(0)

    def at(self, step: int) -> Batch:
        """Return the batch of a step and start to prepare the next one."""
        known, batch = self._next
        if known != step:
            batch = self._make(step)[1]
        self._next = self._make(step + 1)
        return batch.result()

    def _make(self, step: int) -> tuple[int, "Future[Batch]"]:
        return step, self._thread.submit(self.batches.at, step)
