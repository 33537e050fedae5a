"""Evaluation sets of one's own: what a file must hold, and that its content names it."""

from pathlib import Path

import numpy as np
import pytest

from cse_core.data import own_pairs
from cse_core.data.senteval import pairs
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.metrics.correlation import correlations
from cse_core.training.selection import dev_sets
from tests.support.encoders import wiki_tiny

ROWS = [("A cat sleeps.", "A cat rests.", 4.5), ("It rains.", "The bank is shut.", 0.0), ("He sings.", "He hums.", 3.0)]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def line(first: str, second: str, score: float) -> str:
    return f"{first}\t{second}\t{score}"


def test_rows_are_read_with_or_without_a_header(tmp_path: Path) -> None:
    lines = [line(*row) for row in ROWS]
    for number, more in enumerate(([], ["sentence1\tsentence2\tscore"])):
        name = own_pairs.add(write(tmp_path / f"set{number}.tsv", *more, *lines))
        table = pairs(name).table
        read = zip(table["sentence1"][:], table["sentence2"][:], table["score"][:], strict=True)
        assert [*read] == ROWS


def test_another_content_is_another_set(tmp_path: Path) -> None:
    path = write(tmp_path / "one.tsv", *(line(*row) for row in ROWS))
    first = own_pairs.add(path)
    assert own_pairs.add(path) == first
    second = own_pairs.add(write(path, *(line(a, b, score + 1) for a, b, score in ROWS)))
    assert second != first
    assert [pairs(name).table["score"][0] for name in (first, second)] == [4.5, 5.5]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a\tb\t1", "c\td"], "line 2: 2 columns, expected 3 as in the first line; separate columns by tabs"),
        (["a\tb\t1", "c\td\thigh"], "line 2: expected two sentences and a finite score"),
        (["a\tb\t1", "c\td\tnan"], "line 2: expected two sentences and a finite score"),
        (["a\tb\t1", "\td\t2"], "line 2: expected two sentences and a finite score"),
        (["first\tsecond\tscore", "a\tb\t1", "c\td\t2"], "expected at least 3 pairs, found 2"),
    ],
)
def test_a_file_of_another_form_is_refused_by_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own_pairs.add(write(tmp_path / "bad.tsv", *lines))


def test_a_missing_file_and_a_set_of_another_process_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.tsv: no such file"):
        own_pairs.add(tmp_path / "gone.tsv")
    with pytest.raises(ValueError, match="set own_gone_00000000: not added in this process"):
        pairs("own_gone_00000000")


def test_it_is_scored_as_every_set_is_and_selects_checkpoints(tmp_path: Path) -> None:
    (name,) = suite.expand_names([str(write(tmp_path / "mine.tsv", *(line(*row) for row in ROWS)))])
    assert dev_sets(name) == (name,)
    encoder = wiki_tiny()
    scored = suite.evaluate(encoder, Cosine(), [name])
    a, b = (encoder.encode([row[side] for row in ROWS]).double() for side in (0, 1))
    cosines = (a * b).sum(1) / a.norm(dim=1) / b.norm(dim=1)
    expected = correlations(cosines.numpy(), np.array([row[2] for row in ROWS]), ["all"] * 3)
    assert scored[name].metrics == pytest.approx(expected)
    assert scored[name].rows == 3
