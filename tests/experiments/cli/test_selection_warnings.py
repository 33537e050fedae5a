"""Before training, a warning says what would make a selected checkpoint's score mean less."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cse_core.data import own_pairs, senteval
from cse_core.data.synthetic import pairs
from cse_core.evaluation import suite
from cse_core.evaluation.sts_subsets import SEEN, disjoint
from cse_core.run import Corpus
from experiments.cli import selection_warnings as module
from experiments.cli.selection_warnings import selection_warnings
from tests.support.plans import BASE

pytestmark = pytest.mark.slow  # the synthetic pairs are made once
RUN = replace(BASE, corpus=Corpus("synthetic", 640), batch_size=64, eval_steps=2)  # ten steps


def write(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{first}\t{second}\t{i}\n" for i, (first, second) in enumerate(rows)))
    return own_pairs.add(path)


def test_pairs_that_select_and_are_scored_are_counted_in_either_order_and_spelling(tmp_path: Path) -> None:
    rows = [(first, second) for _, first, second, _ in pairs("dev")[:40]]
    dev = write(tmp_path / "dev.tsv", rows[:20])
    swapped = [(second.upper(), f"{first}!") for first, second in rows[15:18]]
    task = write(tmp_path / "task.tsv", [*swapped, *rows[20:30]])
    apart = write(tmp_path / "apart.tsv", rows[30:])
    (warning,) = selection_warnings(RUN, dev, (task, apart), None)
    assert f"{dev} selects the checkpoint by pairs that are scored too, in {task} (3 of 13 pairs)" in warning
    assert apart not in warning
    assert "sts_disjoint" not in warning  # which is about STS-B's dev set
    assert list(selection_warnings(RUN, dev, (apart,), None)) == []
    assert list(selection_warnings(RUN, "last", (task,), None)) == []


def test_pairs_of_a_test_set_are_found_in_its_disjoint_part_too(tmp_path: Path, real_data: Path) -> None:
    apart = suite.expand_names(("sts16_disjoint",))
    assert list(selection_warnings(RUN, "stsb_dev", apart, real_data)) == []
    evaluation, *seen = (senteval.pairs(name, real_data) for name in ("sts16", *SEEN))
    rows = evaluation.table.select(disjoint(evaluation, dict(zip(SEEN, seen, strict=True))))
    dev = write(tmp_path / "dev.tsv", list(zip(rows["sentence1"], rows["sentence2"], strict=True))[:50])
    (warning,) = selection_warnings(RUN, dev, apart, real_data)
    assert f"in sts16_disjoint (50 of {len(rows)} pairs)" in warning


def test_a_choice_among_fewer_than_three_is_warned_of() -> None:
    def said(**changes: Any) -> list[str]:
        return list(selection_warnings(replace(RUN, **changes), "synthetic_dev", ("synthetic",), None))

    assert said(eval_steps=3) == []
    # A smaller last batch is a step too: three an epoch of 190 sentences, and six dev scores.
    assert said(corpus=Corpus("synthetic", 190), epochs=4) == []
    assert said(eval_steps=4) == ["synthetic_dev selects among 2 dev scores of about 10 steps; --eval-steps 1 gives 10"]
    (one,) = said(eval_steps=125)  # the last step's
    assert one.startswith("synthetic_dev selects among 1 dev score of about 10 steps")
    assert said(eval_steps=125, epochs=50) == []
    (cut,) = said(max_steps=2)
    assert cut == "synthetic_dev selects among 1 dev score of about 2 steps"
    (single,) = said(max_steps=1)
    assert single == "synthetic_dev selects among 1 dev score of about 1 step"


def test_sts_disjoint_is_named_only_if_a_set_is_scored_that_it_covers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = "A dog runs.", "A cat sleeps."
    task = write(tmp_path / "task.tsv", [shared, ("One.", "Two."), ("Three.", "Four.")])
    of_set = SimpleNamespace(pairs=[shared])
    monkeypatch.setattr(module, "pairs", lambda name, data: of_set)
    monkeypatch.setattr(module, "unordered_pairs", lambda found: [frozenset(pair) for pair in found.pairs])
    (own,) = selection_warnings(RUN, "stsb_dev", (task,), None)
    assert own.endswith(f"in {task} (1 of 1 pairs)")
    (both,) = selection_warnings(RUN, "stsb_dev", (task, "sts12"), None)
    assert both.endswith("; sts_disjoint leaves them out")
