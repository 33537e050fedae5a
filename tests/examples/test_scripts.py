"""The scripts of examples/, run as commands."""

import ast
import os
import re
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from cse_core.data.synthetic import sentences
from tests.support import forked

EXAMPLES = Path(__file__).parents[2] / "examples"


def said(script: str, *words: str, folder: Path) -> str:
    """What a script prints, in a folder of its own."""
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / script), *words]
    done = forked.run(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_scripts_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert len(lengths) == 2
    assert max(lengths.values()) < 70


@pytest.mark.slow
def test_a_loop_of_ones_own_lowers_every_term(tmp_path: Path) -> None:
    lines = said("own_loop.py", "--steps", "31", folder=tmp_path).splitlines()
    first, last = (ast.literal_eval(line.split(" ", 1)[1]) for line in (lines[0], lines[3]))
    assert first.keys() == {"contrastive", "consistency", "rank"}
    assert all(last[name] < first[name] for name in first)


@pytest.mark.slow
def test_one_scores_and_opens_what_one_trains(tmp_path: Path, real_data: Path) -> None:
    (tmp_path / "mine.txt").write_text("\n".join(sentences(256)) + "\n")
    output = said("train_and_share.py", "mine.txt", "my-encoder", "--data", str(real_data), folder=tmp_path)
    ours, theirs = re.findall(r"^(?:scored as [^{]*)?(\{.*\})$", output, re.MULTILINE)
    for task, metric, rounding in (("stsb", "spearman.all", 1e-6), ("trec", "acc", 1 / 500)):  # one of 500 questions
        scores = (ast.literal_eval(printed)[task][metric] for printed in (theirs, ours))
        assert next(scores) == pytest.approx(next(scores), abs=rounding)
    rows = [re.findall(r"\d\.\d{4}", line) for line in output.splitlines() if "[1.0000" in line]
    assert rows[0] == rows[1]  # sentence-transformers, transformers
    card = ModelCard.load(tmp_path / "my-encoder" / "README.md")
    found = {(one.dataset_name, one.metric_type): one.metric_value for one in card.data.eval_results or []}
    assert found["stsb", "spearman.all"] == ast.literal_eval(ours)["stsb"]["spearman.all"]
