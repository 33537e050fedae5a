"""Which examples each step sees, and what padding adds."""

import random

import numpy as np
import pytest
import torch
from datasets import Dataset, Features, List, Value, concatenate_datasets
from hypothesis import given
from hypothesis import strategies as st

from cse_core.data import examples
from cse_core.data.batches import Batches, Column, pad, stack, steps_per_epoch
from cse_core.method import Tokens
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus
from tests.support.encoders import wiki_tiny

CPU = torch.device("cpu")
id_lists = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=7), min_size=1, max_size=6)


def table_of(lists: list[list[int]], name: str = "text") -> Dataset:
    return Dataset.from_dict({name: lists}, features=Features({name: List(Value("int32"))}))


def numbered(n: int, batch_size: int = 4, *, seed: int = 42) -> Batches:
    """Batches of n examples, the i-th of 1 + i % 5 tokens i + 1."""
    table = table_of([[i + 1] * (1 + i % 5) for i in range(n)])
    return Batches(table, batch_size, seed=seed, pad_id=0, device=CPU, positions=512)


def epoch_of(batches: Batches, epoch: int) -> list[list[int]]:
    first = epoch * batches.per_epoch
    return [batches.rows(step).tolist() for step in range(first, first + batches.per_epoch)]


@given(st.integers(3, 60), st.integers(3, 17), st.integers(0, 3), st.integers(0, 5))
def test_an_epoch_has_every_example_once_but_for_a_leftover_of_two(n: int, size: int, epoch: int, seed: int) -> None:
    batches = epoch_of(numbered(n, size, seed=seed), epoch)
    seen = [row for batch in batches for row in batch]
    left_out = n % size if n % size < 3 else 0
    assert len(set(seen)) == len(seen) == n - left_out
    assert set(seen) <= set(range(n))
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert len(batches[-1]) == (n % size if n % size > 2 else size)


@pytest.mark.parametrize(
    ("examples", "size", "steps"),
    [
        *((1_000_000, 64, 15_625), (1_000_000, 128, 7_813), (1_000_000, 512, 1_954), (16_384, 64, 256)),
        *((5, 4, 1), (6, 4, 1), (7, 4, 2), (3, 4, 1), (2, 2, 1), (2, 4, 0), (1, 4, 0), (0, 4, 0)),
    ],
)
def test_an_epoch_has_so_many_steps(examples: int, size: int, steps: int) -> None:
    """The first three are the published batch sizes on a million sentences."""
    assert steps_per_epoch(examples, size) == steps


@pytest.mark.parametrize("n", [0, 1, 2])
def test_fewer_than_three_examples_are_refused(n: int) -> None:
    message = f"{n} training examples make no batch: a contrastive loss needs at least three"
    with pytest.raises(ValueError, match=message):
        numbered(n)


def test_the_order_depends_only_on_seed_and_epoch() -> None:
    orders = {(seed, epoch): epoch_of(numbered(30, seed=seed), epoch) for seed in (0, 1) for epoch in (0, 1, 2)}
    assert len({str(order) for order in orders.values()}) == len(orders)
    for (seed, epoch), order in orders.items():
        np.random.seed(epoch)
        torch.manual_seed(epoch)
        assert epoch_of(numbered(30, seed=seed), epoch) == order
    assert all(len({row for batch in order for row in batch}) == 28 for order in orders.values())  # a leftover of two
    flat = {size: [row for batch in epoch_of(numbered(30, size), 1) for row in batch] for size in (3, 5, 30)}
    assert flat[3] == flat[5] == flat[30]


def test_rows_do_not_depend_on_the_order_of_calls() -> None:
    steps = [*range(40), *range(40)]
    forward = {step: numbered(30).rows(step).tolist() for step in range(40)}
    random.Random(0).shuffle(steps)
    jumping = numbered(30)
    for step in steps:
        assert jumping.rows(step).tolist() == forward[step]
    assert forward[0] != forward[8]  # the next epoch's first batch


def test_a_batch_holds_the_examples_of_its_rows() -> None:
    batches = numbered(23)
    for step in (0, 3, 5, 11):
        batch = batches.at(step)
        assert batch.rows.tolist() == batches.rows(step).tolist()
        tokens = batch["text"]
        lengths = [1 + row % 5 for row in batch.rows.tolist()]
        assert tokens.ids.shape == (len(lengths), max(lengths))
        assert tokens.mask.sum(1).tolist() == lengths
        assert [set(ids[m].tolist()) for ids, m in zip(tokens.ids, tokens.mask, strict=True)] == [
            {row + 1} for row in batch.rows.tolist()
        ]
        assert tokens.positions is None


def test_columns_keep_to_the_same_rows() -> None:
    lists = [[i] * (1 + i % 3) for i in range(9)]
    features = Features({name: List(Value("int32")) for name in ("anchor", "other")})
    table = Dataset.from_dict({"anchor": lists, "other": [[*ids, 7, 7] for ids in lists]}, features=features)
    batch = Batches(table, 4, seed=0, pad_id=99, device=CPU, positions=512).at(1)
    assert batch["anchor"].ids[:, 0].tolist() == batch["other"].ids[:, 0].tolist() == batch.rows.tolist()
    assert (batch["other"].mask.sum(1) - batch["anchor"].mask.sum(1)).tolist() == [2] * 4
    assert (batch["anchor"].ids[~batch["anchor"].mask] == 99).all()


def test_each_step_has_its_own_generator() -> None:
    def draw(step: int, seed: int = 42) -> list[float]:
        return torch.rand(3, generator=numbered(30, seed=seed).at(step).generator).tolist()

    draws = [draw(0), draw(1), draw(8), draw(0, seed=1)]
    assert len({str(values) for values in draws}) == 4
    assert draw(1) == draws[1]


@given(id_lists, st.sampled_from([0, 1, 5]))
def test_padding_adds_the_pad_id_on_the_right_and_masks_it(lists: list[list[int]], pad_id: int) -> None:
    tokens = pad(lists, pad_id)
    longest = max(map(len, lists))
    assert tokens.ids.tolist() == [ids + [pad_id] * (longest - len(ids)) for ids in lists]  # also where ids hold it
    assert tokens.mask.tolist() == [[True] * len(ids) + [False] * (longest - len(ids)) for ids in lists]
    assert (tokens.ids.dtype, tokens.mask.dtype) == (torch.int64, torch.bool)


@given(id_lists, id_lists)
def test_stacking_is_padding_everything_at_once(first: list[list[int]], second: list[list[int]]) -> None:
    stacked, padded = stack([pad(first, 3), pad(second, 3)], 3), pad(first + second, 3)
    assert torch.equal(stacked.ids, padded.ids)
    assert torch.equal(stacked.mask, padded.mask)


def test_stacking_fills_ids_mask_and_positions() -> None:
    short = Tokens(torch.tensor([[5, 6]]), torch.tensor([[True, True]]), torch.tensor([[4, 2]]))
    long = Tokens(torch.tensor([[7, 8, 9], [7, 1, 1]]), torch.tensor([[True, True, True], [True, False, False]]))
    both = stack([short, long], 1)
    assert both.ids.tolist() == [[5, 6, 1], [7, 8, 9], [7, 1, 1]]
    assert both.mask.tolist() == [[True, True, False], [True, True, True], [True, False, False]]
    assert both.positions is not None
    assert both.positions.tolist() == [[4, 2, 0], [0, 1, 2], [0, 1, 2]]
    assert stack([long, long], 1).positions is None


@given(id_lists, st.data())
def test_a_column_is_the_table_also_when_it_is_sliced_or_in_pieces(lists: list[list[int]], draw: st.DataObject) -> None:
    whole = table_of([*lists, [], *lists])
    start = draw.draw(st.integers(0, len(whole) - 1))
    sliced = whole.select(range(start, draw.draw(st.integers(start + 1, len(whole)))))
    for table in (whole, sliced, concatenate_datasets([sliced, whole, sliced])):
        column = Column(table, "text")
        assert len(column) == len(table)
        assert [column[row].tolist() for row in range(len(column))] == table["text"][:]


def test_a_column_of_the_examples_is_the_table_in_any_number_of_pieces(
    cache: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = wiki_tiny().tokenizer
    found = {}
    for chunk, lines in ((4096, 40), (7, 41)):  # another number of lines, for another table in the cache
        monkeypatch.setattr(examples, "CHUNK", chunk)
        table = examples.examples(Corpus("synthetic", lines), SimCSE(), tokenizer, 12)
        assert table.data.column("text").num_chunks == -(-lines // chunk)
        column = Column(table, "text")
        found[chunk] = [column[row].tolist() for row in range(len(column))]
        assert found[chunk] == table["text"][:]
        assert column[0].dtype == np.int32
    assert len(found[4096]) == 40
    assert max(map(len, found[7])) == 12


def test_a_column_in_one_piece_is_no_copy() -> None:
    table = table_of([[1, 2], [3], [4, 5, 6]])
    arrow = table.data.column("text").chunk(0).values.to_numpy()
    column = Column(table, "text")
    assert all(np.shares_memory(column[row], arrow) for row in range(3))
