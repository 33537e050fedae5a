"""Commands as users type them: a real run, scores of an encoder, and a message for each mistake."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cse_core.methods.rankcse import RankCSE
from cse_core.training.loop import DivergedError
from cse_core.training.run_state import History
from cse_core.training.train import OnStep
from experiments import run as run_command
from experiments.execution.job import Job, execute
from experiments.results import csv_record
from experiments.tracking.mlflow_log import Tracker
from tests.experiments.cli.run_words import built
from tests.support import forked
from tests.support.polling import until

ROOT = Path(__file__).parents[3]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_a_run_without_options_is_the_studys_own() -> None:
    assert built("simcse").key == "c4bb688a65d9"
    assert built("simcse", "--seed", "1").key != "c4bb688a65d9"


def test_options_reach_the_method_and_the_run() -> None:
    run = built("rankcse", "--rank", "list_mle", "--student-temperature", "0.1", "--seed", "3", "--dropout", "0.2")
    assert isinstance(run.method, RankCSE)
    assert (run.method.rank, run.method.student_temperature, run.seed, run.dropout) == ("list_mle", 0.1, 3, 0.2)
    assert [teacher.weight for teacher in run.method.teachers] == [1 / 3, 2 / 3]
    assert built("rankcse", "--distillation-weight", "0").nested() == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simcse", "--scale", "huge"), "unknown scale 'huge'; known: quickstart, small"),
        (("simcse", "--backbone", "roberta-base"), "scale small has no backbone 'roberta-base'; known: bert-base-unc"),
        (("simcse", "--seed", f"{2**63}"), f"seed must be in 0 to {2**63 - 1}, got {2**63}"),
    ],
)
def test_impossible_runs_are_refused_in_words(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built(*arguments)


@pytest.mark.slow
def test_an_unknown_field_or_method_is_met_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run_command.main(["rankcse", "--temprature", "0.05"])
    assert stop.value.code == 2
    assert "--temperature" in said(capsys)
    with pytest.raises(ValueError, match=r"unknown method 'rankcs' \(did you mean rankcse\?\); known: simcse, rankcse"):
        run_command.main(["rankcs"])


def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run([sys.executable, str(ROOT / "experiments" / name), *arguments])


@pytest.mark.slow
def test_one_run_from_the_command_line(tmp_path: Path) -> None:
    sentences = ("--corpus", "synthetic", "--corpus-lines", "2048")
    place = ("--scale", "quickstart", "--eval-steps", "64", "--batch-size", "512", "--mlruns", str(tmp_path))
    arguments = (*place, *sentences)
    done = command("run.py", "simcse", *arguments)
    assert done.returncode == 0, done.stderr
    assert "batch_size=512" in done.stdout
    assert "synthetic_dev" in done.stdout
    folders = [path.parent for path in tmp_path.glob("own/*/last")]  # the untrained backbone has none
    assert len(folders) == 1
    scored = command("evaluate.py", str(folders[0] / "last"), "--tasks", "synthetic", "--mlruns", str(tmp_path))
    assert scored.returncode == 0, scored.stderr
    last, again = (
        [line for line in out.splitlines() if "│ synthetic " in line and "1000" in line][-1]
        for out in (done.stdout, scored.stdout)
    )
    assert last.split("│")[3:7] == again.split("│")[3:7]  # the same four scores, from the exported folder


@pytest.mark.slow
def test_an_encoder_is_scored_on_every_kind_of_task(tmp_path: Path, real_data: Path) -> None:
    """Printed, written as rows, logged; a second call adds what is new and finds the cached vectors."""
    place = ("--data", str(real_data), "--mlruns", str(tmp_path), "--cache")
    done = command("evaluate.py", "wiki-tiny", *place, "--tasks", "stsb", "stsb_groups", "trec_fast", "phrases")
    assert done.returncode == 0, done.stderr
    assert all(task in done.stdout for task in ("stsb", "stsb_groups", "trec_fast", "phrases", "embedding"))
    rows = csv_record.read_results("own", tmp_path / csv_record.MANUAL_RUNS)
    found = {task: set(mine["metric"]) for task, mine in rows.groupby("task")}
    assert found["trec_fast"] == {"acc", "devacc"}
    assert found["stsb"] == {"spearman.all", "spearman.mean", "spearman.wmean", "pearson.all"}
    assert {"kendall", "ndcg.linear", "ndcg.linear.random", "kendall.dropped"} <= found["stsb_groups"]
    again = command("evaluate.py", "wiki-tiny", *place, "--tasks", "stsb", "stsb_dissimilar")
    assert again.returncode == 0, again.stderr
    assert "embedding" not in again.stdout
    more = csv_record.read_results("own", tmp_path / csv_record.MANUAL_RUNS)
    assert set(more["task"]) == {*found, "stsb_dissimilar"}
    assert len(more) == len(rows) + 4
    (logged,) = Tracker(tmp_path).client.search_runs([Tracker(tmp_path).experiment("own")])
    score = more[(more["task"] == "trec_fast") & (more["metric"] == "acc")]["score"].item()
    assert logged.data.metrics["Other/trec_fast"] == score
    assert "Other/stsb_dissimilar" in logged.data.metrics


@pytest.mark.slow
def test_ranks_against_a_corpus_score_pairs_and_count_shared_neighbours(tmp_path: Path, real_data: Path) -> None:
    place = ("--data", str(real_data), "--mlruns", str(tmp_path))
    corpus = ("--corpus", "synthetic", "--corpus-lines", "2000", "--corpus-size", "500")
    done = command("evaluate.py", "wiki-tiny", *place, *corpus, "--tasks", "stsb", "neighbours")
    assert done.returncode == 0, done.stderr
    rows = csv_record.read_results("own", tmp_path / csv_record.MANUAL_RUNS)
    (scorer,) = set(rows["scorer"])
    assert re.fullmatch(r"rank 0.1 of 500 from synthetic:2000:[0-9a-f]{8} seed 42", scorer)  # pinned by its content
    shared = rows[rows["metric"] == "shared"]["score"].item()
    assert 0 < shared < 100
    (path,) = tmp_path.glob("own/*/figure_data/stsb_neighbours*.npz")
    with np.load(path) as arrays:
        assert arrays["shared"].mean() == pytest.approx(shared)
        assert arrays["cosines"].shape == arrays["pair_scores"].shape == (1379,)
    refused = command("evaluate.py", "wiki-tiny", *place, "--tasks", "neighbours")
    assert refused.returncode == 1
    assert "stsb_neighbours: neighbours require a corpus, which the scorer cosine lacks" in refused.stderr


@pytest.mark.slow
def test_errors_are_one_line_and_a_status(tmp_path: Path) -> None:
    missing = command("evaluate.py", "no-such-model", "--mlruns", str(tmp_path))
    assert missing.returncode == 1
    embedded = "wiki-medium, wiki-mini, wiki-tiny"
    assert missing.stderr.startswith(f"error: backbone 'no-such-model': neither embedded ({embedded})")
    assert missing.stderr.count("\n") == 1
    blocked = command("sweep.py", "quickstart", "--mlruns", "/proc/sys")
    assert blocked.returncode == 1
    assert "error: /proc/sys: can't be written" in blocked.stderr
    assert not any("Traceback" in done.stderr for done in (missing, blocked))


@pytest.mark.slow
def test_with_mlflow_away_rows_are_kept_and_no_password_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:ann-s-password@127.0.0.1:9")
    done = command("evaluate.py", "wiki-tiny", "--tasks", "synthetic", "--mlruns", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert set(csv_record.read_results("own", tmp_path / csv_record.MANUAL_RUNS)["task"]) == {
        "synthetic",
        "synthetic_dev",
    }
    assert "1 run is not in MLflow" in " ".join(done.stdout.split())
    assert "re-run the same command to log them" in " ".join(done.stdout.split())
    assert "ann-s-password" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_of_several_seeds_one_that_diverges_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverging(job: Job, *given: Any, on_step: OnStep, **how: Any) -> dict[str, Any]:
        def step(number: int, history: History) -> None:
            on_step(number, history)
            if getattr(job.encoder, "seed", 0) == 1 and number == 2:
                raise DivergedError("loss is nan at step 2 of 4")

        return execute(job, *given, on_step=step, **how)

    monkeypatch.setattr(run_command, "execute", diverging)
    words = ("simcse", "--scale", "quickstart", "--max-steps", "4", "--seeds", "1", "2", "3", "--mlruns", str(tmp_path))
    assert run_command.main([*words]) == 1
    printed = said(capsys)
    assert re.search(r"failed: seed 1 \(\w{12}\): DivergedError: loss is nan at step 2 of 4", printed)
    (*_, line) = re.findall(r"synthetic │ ([\d.– │]+) │", printed)
    _, first, second, third, mean, sd = (word for word in line.split() if word != "│")
    assert (first, mean, sd) == ("–", "–", "–")
    assert float(second) > 50 < float(third)
    assert "not in MLflow" not in printed
    client = Tracker(tmp_path).client
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert sorted(run.info.status for run in runs) == ["FAILED", *["FINISHED"] * 3]
    with pytest.raises(DivergedError):
        run_command.main([*words[:6], "1", *words[9:]])


@pytest.mark.slow
def test_ctrl_c_ends_a_run_with_one_line(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "experiments" / "run.py"), "simcse", "--scale", "quickstart"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*script, "--mlruns", str(tmp_path)], cwd=ROOT, stdout=log, stderr=subprocess.PIPE)
    until(lambda: list(tmp_path.glob("own/*/environment.json")))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130, said.decode()
    assert b"Traceback" not in said
    assert b"re-run the same command to resume" in said
