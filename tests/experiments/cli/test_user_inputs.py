"""A user's own sentences, encoder, teachers and evaluation set on the command line."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
import tyro

from cse_core.data import own_pairs
from cse_core.data.synthetic import pairs, sentences
from cse_core.evaluation.scorers import Ranked, Whitened
from cse_core.methods.rankcse import RankCSE
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import backbone_hash
from cse_core.run import Pretrained, Run
from experiments import run as run_command
from experiments.cli.user_inputs import read_encoder
from experiments.run import build, build_all, make_plan


def parsed(*arguments: str) -> Any:
    return tyro.cli(run_command.options_for(arguments[0]), args=list(arguments[1:]))


def built(*arguments: str) -> Run:
    return build(arguments[0], parsed(*arguments))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "mine.txt").write_text("\n".join(sentences(200)) + "\n")
    return tmp_path / "mine.txt"


def write_pairs(path: Path, count: int = 60, header: bool = False) -> Path:
    rows = pairs("dev")[:count]
    lines = [f"{first}\t{second}\t{score}" for _, first, second, score in rows]
    path.write_text("\n".join((["first\tsecond\tscore"] if header else []) + lines) + "\n")
    return path


def test_a_corpus_of_ones_own_is_trained_on_by_all_runs_that_are_needed(texts: Path) -> None:
    run = built("rankcse", "--corpus", str(texts))
    assert (run.corpus.lines, run.corpus.name) == (200, str(texts))
    assert [nested.corpus for nested in run.nested()] == [run.corpus] * 2
    assert built("consert", "--corpus", str(texts)).corpus == run.corpus  # which trains on the STS sets by default
    few = built("simcse", "--corpus", str(texts), "--corpus-lines", "100")
    assert few.corpus.lines == 100
    assert few.key != built("simcse", "--corpus", str(texts)).key
    copy = texts.with_name("copy.txt")
    copy.write_text(texts.read_text())
    assert built("rankcse", "--corpus", str(copy)).key == run.key  # known by its content
    copy.write_text(texts.read_text() + "One more.\n")
    assert built("rankcse", "--corpus", str(copy)).key != run.key
    named = built("simcse", "--corpus", "wiki_sentences_1m", "--corpus-lines", "64").corpus
    assert (named.name, named.lines) == ("wiki_sentences_1m", 64)


def test_a_corpus_of_several_columns_is_for_methods_that_take_them(tmp_path: Path) -> None:
    path = tmp_path / "nli.csv"
    path.write_text("sent0,sent1,hard_neg\n" + "".join(f'"{text}",yes,no\n' for text in sentences(20)))
    with pytest.raises(
        ValueError, match=r"method esimcse: expected sentences in one column, got sent0, sent1, hard_neg"
    ):
        built("esimcse", "--corpus", str(path))
    one = built("esimcse", "--corpus", str(path), "--columns", "sent0").corpus
    plain = path.with_suffix(".txt")
    plain.write_text("\n".join(sentences(20)) + "\n")
    assert one.identity == built("esimcse", "--corpus", str(plain)).corpus.identity
    with pytest.raises(ValueError, match="--columns sent0: requires --corpus"):
        built("esimcse", "--columns", "sent0")


def test_columns_of_pairs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,c,d\n" + "".join(f'0,"{a}","{b}",{score}\n' for _, a, b, score in pairs("dev")[:9]))
    plan = make_plan(parsed("simcse", "--dev", str(path), "--evaluate", str(path), "--pair-columns", "b", "c", "d"))
    assert plan.rules == (*plan.tasks, "last")
    assert own_pairs.find(plan.tasks[0]).rows == tuple(("all", *row[1:]) for row in pairs("dev")[:9])
    with pytest.raises(ValueError, match="expected sentence, sentence, score, got"):
        make_plan(parsed("simcse", "--dev", str(path)))
    with pytest.raises(ValueError, match="--pair-columns b c d: requires a file in --dev or --evaluate"):
        make_plan(parsed("simcse", "--pair-columns", "b", "c", "d"))


def test_a_backbone_of_ones_own_has_its_pooling_unless_another_is_given(tmp_path: Path) -> None:
    Encoder.from_pretrained("wiki-tiny", pooling="mean").save_pretrained(tmp_path / "mine")
    run = built("rankcse", "--backbone", str(tmp_path / "mine"))
    assert run.backbone == Pretrained(str(tmp_path / "mine"), backbone_hash(tmp_path / "mine"))
    assert run.pooling == "mean"
    assert [nested.backbone for nested in run.nested()] == [run.backbone]
    assert run.learning_rate == built("rankcse").learning_rate
    assert built("simcse", "--backbone", str(tmp_path / "mine"), "--pooling", "cls").pooling == "cls"
    assert built("promptbert", "--backbone", str(tmp_path / "mine")).pooling == "mask"  # the method's


def test_teachers_are_encoders_runs_or_scorers_with_their_shares() -> None:
    method = built("rankcse", "--teachers", "wiki-mini:0.25", "wiki-tiny@whitened:0.25", "simcse:0.5").method
    assert isinstance(method, RankCSE)
    mini, whitened, trained = method.teachers
    assert (mini.encoder, mini.weight, mini.scorer) == (read_encoder("wiki-mini"), 0.25, None)
    assert isinstance(whitened.scorer, Whitened)
    assert whitened.scorer.corpus == built("rankcse").corpus
    assert isinstance(trained.encoder, Run)
    assert (trained.encoder.key, trained.select) == (built("simcse").key, "stsb_dev")
    equal = built("rankcse", "--teachers", "wiki-mini", "wiki-tiny@ranks").method
    assert isinstance(equal, RankCSE)
    assert [teacher.weight for teacher in equal.teachers] == [0.5, 0.5]
    assert isinstance(equal.teachers[1].scorer, Ranked)


def test_a_teachers_scorer_enters_the_key() -> None:
    keys = {built("rankcse", "--teachers", name).key for name in ("wiki-tiny", "wiki-tiny@whitened", "wiki-tiny@ranks")}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--corpus", "nowhere.txt"), "--corpus nowhere.txt: no such file; for a corpus of the data folder"),
        (("--backbone", "nowhere"), "backbone 'nowhere': neither embedded"),
        (("--teachers", "wiki-tiny:0.5", "wiki-mini"), "expected a weight for each or for none, got 1"),
        (("--teachers", "wiki-tiny:0.5", "wiki-mini:0.7"), "weights must not be negative and add up to 1"),
        (("--teachers", "wiki-tiny@flow"), "--teachers wiki-tiny@flow: expected @whitened or @ranks"),
        (("--teachers", "nowhere:1"), "'nowhere'"),
    ],
)
def test_inputs_that_can_not_be_used_are_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        built("rankcse", *arguments)


def test_one_seed_or_several() -> None:
    runs = build_all("simcse", parsed("simcse", "--seeds", "3", "1", "3"))
    assert [run.seed for run in runs] == [3, 1]
    assert runs[1].key == built("simcse", "--seed", "1").key
    with pytest.raises(ValueError, match="--seed 1 and --seeds 2 3: give one of the two"):
        build_all("simcse", parsed("simcse", "--seed", "1", "--seeds", "2", "3"))
    for seeds in (("--seed", "-2"), ("--seeds", "3", "-2")):
        with pytest.raises(ValueError, match="--seed: expected a number of at least 0, got -2"):
            build_all("simcse", parsed("simcse", *seeds))


@pytest.mark.slow
def test_tasks_and_rules_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    plan = make_plan(parsed("simcse", "--evaluate", "sts", "transfer", "--dev", "avg_sts"))
    assert plan.rules == ("avg_sts", "last")
    assert plan.tasks[:2] + plan.tasks[-1:] == ("sts12", "sts13", "mrpc")
    own = write_pairs(tmp_path / "my pairs.tsv", header=True)
    plan = make_plan(parsed("simcse", "--evaluate", str(own), "--dev", str(own)))
    assert plan.rules == (plan.tasks[0], "last")
    assert re.fullmatch(r"own_my_pairs_[0-9a-f]{8}", plan.rules[0])
    assert len(own_pairs.find(plan.rules[0]).rows) == 60
    for name, value in (("--dev", "stsb_def"), ("--evaluate", "stss")):
        with pytest.raises(ValueError, match=f"unknown .*{value}.*did you mean"):
            make_plan(parsed("simcse", name, value))
    with pytest.raises(ValueError, match="stsb_neighbours: neighbours require a corpus, which the scorer cosine lacks"):
        make_plan(parsed("simcse", "--evaluate", "stsb_neighbours"))


@pytest.mark.slow
def test_ones_own_everything_is_trained_on_two_seeds_scored_and_logged(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CSE_DATA", raising=False)  # no data but the user's
    own, mlruns = write_pairs(tmp_path / "pairs.tsv"), tmp_path / "mlruns"
    arguments = ["rankcse", "--corpus", str(texts), "--dev", str(own), "--evaluate", str(own), "--seeds", "1", "2"]
    settings = ["--teachers", "wiki-mini:0.5", "wiki-tiny@whitened:0.5", "--batch-size", "50", "--eval-steps", "2"]
    run_command.main([*arguments, *settings, "--mlruns", str(mlruns)])
    said = capsys.readouterr().out
    results = [json.loads(path.read_text()) for path in mlruns.glob("own/*/result.json")]
    assert sorted(result["seed"] for result in results) == [1, 2]
    (rule,) = {select for result in results for select in result["kept"]} - {"last"}
    scores = {
        result["seed"]: 100 * cell["score"]
        for result in results
        for cell in result["cells"]
        if (cell["select"], cell["metric"]) == (rule, "spearman.all")
    }
    # The checkpoint was chosen on the very pairs that it is scored on here: both numbers are one.
    assert {result["seed"]: 100 * result["kept"][rule]["score"] for result in results} == pytest.approx(scores)
    shown = [*(scores[seed] for seed in (1, 2)), statistics.mean(scores.values()), statistics.stdev(scores.values())]
    assert re.search(r"\s*│\s*".join([rule, *(f"{value:.2f}" for value in shown)]), said)
    for result in results:
        assert f"checkpoint: {mlruns / 'own' / result['key'] / rule}" in said
        assert (mlruns / "own" / result["key"] / rule / "model.safetensors").is_file()
    assert "mlflow ui" in said
