"""The options of evaluate.py choose scorers and tasks; MLflow has scores by short names."""

import re
from pathlib import Path
from typing import Any

import pytest
import tyro

from cse_core.data.senteval import STS_TEST
from cse_core.evaluation.scorers import Cosine, Ranked
from cse_core.evaluation.suite import GROUPS
from cse_core.evaluation.tasks import STSTask
from cse_core.run import Corpus
from experiments.evaluate import Bars, Options, main, scorer_for
from experiments.results import csv_record
from experiments.tracking.run_content import metrics

ROOT = Path(__file__).parents[3]


def scorer(**options: Any) -> Any:
    return scorer_for(Options(encoder="wiki-tiny", **options))


def test_help_and_page_name_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(Options, args=["--help"])
    known = re.findall(r"\w+", capsys.readouterr().out)
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/evaluations.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(GROUPS)
    assert set(GROUPS) <= set(known)


def test_without_a_corpus_the_scorer_is_cosine_under_the_pooling_asked_for() -> None:
    assert scorer() == Cosine()
    assert scorer(pooling="mean") == Cosine("mean")
    assert scorer(pooling="mask", template="{} [MASK].") == Cosine("mask", "{} [MASK].")


def test_a_corpus_is_pinned_by_what_it_holds(tmp_path: Path, cache: Path) -> None:
    """Corpora of the same name with different sentences make two scorers."""
    found = []
    for folder, text in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "c.txt").write_text("".join(f"{text} {i}\n" for i in range(20)))
        found.append(scorer(corpus="c", corpus_lines=20, data=tmp_path / folder))
    assert [type(s) for s in found] == [Ranked, Ranked]
    assert (found[0].size, found[0].weight) == (20, 0.1)
    assert str(found[0]) != str(found[1])
    assert len(found[0].corpus.sha256) == 64
    ranks = scorer(corpus="c", corpus_lines=20, corpus_size=7, rank_weight=1.0, data=tmp_path / "a")
    assert ranks == Ranked(corpus=Corpus("c", 20, found[0].corpus.sha256), size=7, weight=1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpus": "c"}, "--corpus c: requires --corpus-lines of at least 2, .* got 0"),
        ({"corpus": "c", "corpus_lines": 9, "pooling": "mean"}, "no --pooling or --template, got 9, mean"),
        ({"corpus": "c", "corpus_lines": 9, "template": "{} [MASK]"}, "or --template, got 9, None and '{} .MASK.'"),
        ({"template": "{} [MASK]"}, r"--template {} \[MASK\]: requires --pooling mask"),
        ({"corpus_lines": 9}, "--corpus-lines, --corpus-size and --rank-weight require --corpus"),
        ({"rank_weight": 0.7}, "require --corpus"),
        ({"corpus_size": 7}, "require --corpus"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scorer(**options)


def test_the_checkpoint_by_dev_score_has_the_short_names_whatever_is_scored_first() -> None:
    def cell(task: str, metric: str, select: str = "as is") -> dict[str, Any]:
        return {"task": task, "metric": metric, "select": select, "scorer": "cosine", "score": 0.5}

    def names(*cells: dict[str, Any]) -> list[str]:
        return list(metrics({"cells": list(cells), "kept": {}, "studies": []}, 30))

    acc, rho, last = cell("trec", "acc"), cell("stsb", "spearman.all"), cell("stsb", "spearman.all", "last")
    assert names(acc) == ["Transfer/TREC"]
    assert names(acc, rho, last) == names(last, acc, rho) == ["STS/STS-B", "Transfer/TREC"]
    assert names(cell("trec_fast", "acc")) == ["Other/trec_fast"]
    seven = [cell(name, "spearman.all", "stsb_dev") for name in STS_TEST]
    assert "STS average" in names(*seven)
    assert "STS average" not in names(*seven[1:])  # a mean over fewer sets can't be compared
    assert "STS average: last" in names(*(each | {"select": "last"} for each in seven))


@pytest.mark.slow
def test_a_task_that_fails_is_named_and_the_others_are_shown_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: STSTask, name: str, inputs: object) -> None:
        raise ValueError(f"{name}: something of its own")

    monkeypatch.setattr(STSTask, "outcome", broken)
    with pytest.raises(ValueError, match="synthetic_dev: something of its own"):
        main(Options(encoder="wiki-tiny", tasks=("synthetic_dev", "phrases"), mlruns=tmp_path))
    assert "phrases" in capsys.readouterr().out
    rows = csv_record.read_results("own", tmp_path / csv_record.MANUAL_RUNS)
    assert rows["task"].tolist() == ["phrases"]


def test_without_a_terminal_scoring_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    bars = Bars()
    for done in range(0, 1001, 500):
        bars("embedding", done, 1000)
    assert [line for line in capsys.readouterr().out.splitlines() if "embedding" in line] == ["embedding: 0 of 1,000"]
    bars.printed_at = -1e9  # long ago
    bars("embedding", 1000, 1000)
    assert "embedding: 1,000 of 1,000" in capsys.readouterr().out


def test_an_empty_data_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"data folder .*: it is empty; expected SentEval's folder or corpora"):
        main(Options(encoder="wiki-tiny", data=tmp_path))
