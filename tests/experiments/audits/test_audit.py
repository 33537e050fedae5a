"""An audit retrains recorded runs, finds what was altered, and leaves record, store and MLflow as they are."""

import hashlib
import json
import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from filelock import FileLock

from cse_core.run import Corpus
from experiments.audit import Options, main
from experiments.audits.agreement import Recorded, compare
from experiments.audits.audit import MARKER, audit, retrain
from experiments.audits.sample import Draw, draw
from experiments.execution.job import ExecutionSettings, Job, execute
from experiments.execution.log_queue import record_results
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.results.provenance import environment, processor
from experiments.schema.study import Study
from experiments.tracking.mlflow_log import Tracker
from tests.support import forked, sweeps, tiny_study, without_ray
from tests.support.polling import until

STUDY = tiny_study.healthy(tiny_study.SCALE)
TEACHER, OTHER, STUDENT = tiny_study.run(seed=1), tiny_study.run(seed=2), tiny_study.taught(tiny_study.run(seed=1))
SEED = 7


def hashes(folder: Path) -> dict[str, str]:
    """The hash of each file's content, but not of lock files; a database is read as a file."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def command(mlruns: Path, store: Path, *options: str, ray: bool = True) -> list[str]:
    script = ("" if ray else without_ray.SCRIPT) + "from tests.support.tiny_study import main; main('audit')"
    words = ["--scale", "tiny", "--mlruns", str(mlruns), "--store", str(store), "--study", "healthy", "--count", "5"]
    return [sys.executable, "-c", script, *words, "--seed", str(SEED), *options]


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def mlruns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record as a sweep leaves it: CSVs, a store, MLflow's database."""
    folder = tmp_path_factory.mktemp("recorded") / "mlruns"
    tracker = Tracker(folder)
    for job in jobs_of([STUDY]).values():
        execute(job, ExecutionSettings(folder / "store"))
        tracker.log(folder / "store" / job.key)
    record_results(folder / "store", folder)
    return folder


def test_missing_inputs_are_named_before_anything_is_retrained(tmp_path: Path, mlruns: Path) -> None:
    recorded, execution = Recorded.read("tiny", mlruns), ExecutionSettings(tmp_path / "store")
    sample = draw([STUDY], recorded, 5, SEED, "cpu")
    lost = tuple(replace(job, encoder=replace(job.encoder, corpus=Corpus("lost", 320))) for job in sample.jobs)
    with pytest.raises(FileNotFoundError, match=r"nothing was started.*\n.*corpus lost: no such file"):
        retrain(replace(sample, jobs=lost), recorded, execution, "tiny")
    assert not execution.store.exists()


def test_a_report_that_can_not_be_written_is_refused_before_anything_is_retrained(tmp_path: Path) -> None:
    sample, recorded = Draw(None, (), (), 0, 0), Recorded.read("tiny", tmp_path)
    with pytest.raises(IsADirectoryError):
        retrain(sample, recorded, ExecutionSettings(tmp_path / "store"), "tiny", report=tmp_path)
    assert not (tmp_path / "store").exists()


@pytest.fixture(scope="module")
def audited(mlruns: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """The store that an audit of the whole record leaves, its report, what it printed."""
    folder = tmp_path_factory.mktemp("audited")
    store, report, before = folder / "store", folder / "report.json", hashes(mlruns)
    done = forked.run(command(mlruns, store, "--report", str(report), ray=False), env=sweeps.environment(store))
    assert done.returncode == 0, done.stdout + done.stderr
    assert hashes(mlruns) == before
    return store, json.loads(report.read_text()), words(done.stdout)


@pytest.fixture
def altered(mlruns: Path, tmp_path: Path) -> Path:
    """A copy of the record to be altered."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    for name in ("runs.csv", "results.csv", "curves.csv"):
        shutil.copy(mlruns / name, folder)
    return folder


def alter(path: Path, lines: dict[str, str], column: str, value: Any) -> None:
    """Change a column of the only line that has these values."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    mine = (frame[list(lines)] == pd.Series(lines)).all(axis=1)
    assert mine.sum() == 1
    frame.loc[mine, column] = value(frame.loc[mine, column].item()) if callable(value) else value
    frame.to_csv(path, index=False)


@pytest.mark.slow
def test_an_untouched_record_agrees_to_the_bit(audited: tuple[Path, dict[str, Any], str]) -> None:
    store, report, said = audited
    assert "3 of 3 recorded runs drawn with seed 7, and 0 that they need" in said
    assert "the record agrees" in said
    runs = report["runs"]
    assert len(runs) == 3
    assert {run["key"] for run in runs} == {TEACHER.key, OTHER.key, STUDENT.key}
    assert all(run["cells"] >= 4 and run["points"] >= 25 for run in runs)
    assert all((run["largest_cell"], run["largest_point"], run["differences"]) == (0, 0, []) for run in runs)
    assert {run["studies"][0] for run in runs} == {"healthy"}
    assert (store / STUDENT.key / "result.json").is_file()
    assert f"{STUDENT.key}, healthy, student s42: recorded on {environment('cpu', 1)['device']}, retrained on" in said


PLACE = {"key": STUDENT.key, "select": "synthetic_dev", "scorer": "cosine", "task": "synthetic"}
SPEARMAN, PEARSON = (PLACE | {"metric": metric} for metric in ("spearman.all", "pearson.all"))
POINT = {"key": OTHER.key, "name": "dev/synthetic_dev", "step": "8"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "column", "value", "named"),
    [
        ("results.csv", SPEARMAN, "score", lambda old: str(float(old) + 1e-9), "spearman.all"),
        ("results.csv", PEARSON, "pairs", "17", "pearson.all, pairs"),
        ("results.csv", PEARSON, "step", "17", "pearson.all, step"),
        ("curves.csv", POINT, "value", lambda old: f"{float(old) + 1e-6:.6f}", "dev/synthetic_dev, step 8"),
        ("curves.csv", POINT, "step", "9", "dev/synthetic_dev, step 9"),
        ("runs.csv", {"key": OTHER.key}, "settings", "learning_rate=0.1", "runs.csv, settings"),
    ],
)
def test_an_altered_value_is_found_and_named(
    file: str,
    line: dict[str, str],
    column: str,
    value: Any,
    named: str,
    altered: Path,
    audited: tuple[Path, dict[str, Any], str],
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alter(altered / file, line, column, value)
    assert audit([STUDY], count=3, seed=SEED, mlruns=altered, store=audited[0]) == 1
    said = words(capsys.readouterr().out)
    row = "student s42" if line["key"] == STUDENT.key else "b s2"
    place = f"synthetic_dev, cosine, synthetic, {named}" if file == "results.csv" else named
    assert re.search(rf"{line['key']}, healthy, {row}, [\w ,]*{re.escape(place)}: recorded \S+", said)
    assert "1 run with differences or failed" in said


@pytest.mark.slow
def test_an_interrupted_audit_resumes_with_the_same_seed_and_store(mlruns: Path, tmp_path: Path) -> None:
    store, log, before = tmp_path / "store", tmp_path / "log", hashes(mlruns)
    with log.open("w") as output:
        process = forked.Forked(command(mlruns, store), env=sweeps.environment(store), stdout=output)
        try:
            until(lambda: (store / MARKER).exists())
            with FileLock(store / f"{STUDENT.key}.lock"):  # so that the student can't end before the signal
                finished = until(lambda: list(store.glob("*/result.json")))
                process.send_signal(signal.SIGINT)
                process.wait(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 130
    assert f"re-run the same command with --seed {SEED} --store {store} to resume" in words(log.read_text())
    trained = finished[0].with_name("history.json").stat().st_mtime_ns
    again = forked.run(command(mlruns, store, ray=False), env=sweeps.environment(store))
    assert again.returncode == 0, again.stdout + again.stderr
    assert finished[0].with_name("history.json").stat().st_mtime_ns == trained
    assert hashes(mlruns) == before


@pytest.mark.slow
def test_a_store_of_sweeps_is_refused(mlruns: Path, cache: Path) -> None:
    with pytest.raises(ValueError, match="holds files that no audit made; expected an empty folder"):
        audit([STUDY], count=3, mlruns=mlruns, store=mlruns / "store")
    assert not (mlruns / "store" / MARKER).exists()


def test_an_empty_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the record has no trained run of the chosen studies"):
        audit([STUDY], count=3, mlruns=tmp_path)


ABOUT = {"scale": "tiny", "method": "simcse", "backbone": "wiki-tiny", "seed": 42, "seconds": 1.0}
ABOUT |= {"settings": "", "teachers": ""}


def recorded(device: str = "A processor, 2 cores", **scores: float) -> Recorded:
    """A record of the three runs and of one that no study declares; scores by task."""
    keys = (TEACHER.key, OTHER.key, STUDENT.key, "undeclared")
    lines = [{"key": key, "commit": ""} | cell for key in keys for cell in cells(scores)]
    points = [{"scale": "tiny", "key": key, "name": "loss", "step": 4, "value": 1.5} for key in keys]
    return Recorded(
        pd.DataFrame([ABOUT | {"key": key, "device": device} for key in keys], columns=csv_record.RUNS),
        pd.DataFrame(lines, columns=csv_record.SCORES),
        pd.DataFrame(points, columns=csv_record.CURVES),
    )


def cells(scores: dict[str, float]) -> list[dict[str, Any]]:
    """Scores by task, as results have them."""
    cell = {"select": "synthetic_dev", "scorer": "cosine", "pairs": 10, "step": 4, "version": 1}
    metrics = {"mr": "acc", "sts12": "spearman.mean"}
    return [
        cell | {"task": task, "metric": metrics.get(task, "spearman.all"), "score": score}
        for task, score in scores.items()
    ]


def result(device: str, loss: float = 1.5, **scores: float) -> dict[str, Any]:
    """A result.json of the student."""
    about = ABOUT | {"environment": {"device": device, "commit": "c", "dirty": "false"}}
    about |= {"key": STUDENT.key, "eval_steps": 4}
    return about | {"cells": cells(scores), "curves": {"loss": [(4, loss)]}}


def job(*tasks: str) -> Job:
    """The student's job with these tasks."""
    mine = jobs_of([STUDY])[STUDENT.key]
    return replace(mine, scorings=(replace(mine.scorings[0], tasks=tasks),))


def test_a_draw_is_repeatable_and_grows() -> None:
    known = recorded(synthetic=0.5)
    two, three = draw([STUDY], known, 2, SEED), draw([STUDY], known, 3, SEED)
    assert draw([STUDY], known, 2, SEED) == two
    assert three.drawn[:2] == two.drawn
    assert sorted(three.drawn) == sorted([TEACHER.key, OTHER.key, STUDENT.key])
    assert len({draw([STUDY], known, 1, seed).drawn for seed in range(20)}) == 3
    assert (two.candidates, two.undeclared) == (3, 1)


@pytest.mark.parametrize(
    ("on", "device", "drawn"),
    [
        ({}, "cpu", {"teacher", "other", "student"}),
        ({}, "cuda", set()),
        ({"other": "A card"}, "cpu", {"teacher", "student"}),
        ({"other": "A card"}, "cuda", {"other"}),
        ({"teacher": "A card"}, "cpu", {"other"}),  # the student needs it
        ({"student": "A card"}, "cuda", set()),
        ({"other": "unknown"}, "cpu", {"teacher", "other", "student"}),
    ],
)
def test_only_runs_of_this_kind_of_device_are_drawn(on: dict[str, str], device: str, drawn: set[str]) -> None:
    keys, known = {"teacher": TEACHER.key, "other": OTHER.key, "student": STUDENT.key}, recorded(synthetic=0.5)
    for name, card in on.items():
        known.runs.loc[known.runs["key"] == keys[name], "device"] = card
    if not drawn:
        with pytest.raises(ValueError, match=f"but for 3 of another kind of device than {device}"):
            draw([STUDY], known, 3, SEED, device)
        return
    found = draw([STUDY], known, 3, SEED, device)
    assert set(found.drawn) == {keys[name] for name in drawn}
    assert found.elsewhere == 3 - len(drawn)


def test_the_teacher_of_a_drawn_run_is_trained_before_it_and_compared_on_dev() -> None:
    known = recorded(synthetic=0.5, synthetic_dev=0.6)
    alone = next(found for seed in range(20) if (found := draw([STUDY], known, 1, seed)).drawn == (STUDENT.key,))
    assert [one.key for one in alone.jobs] == [TEACHER.key, STUDENT.key]
    tasks = [{task for scoring in one.scorings for task in scoring.tasks} for one in alone.jobs]
    assert tasks == [{"synthetic_dev"}, {"synthetic"}]
    assert alone.jobs[0].rules == jobs_of([STUDY])[TEACHER.key].rules


def test_tasks_without_a_recorded_score_are_not_scored() -> None:
    (one, *_) = draw([STUDY], recorded(sts12=0.5), 1, SEED).jobs
    assert [scoring.tasks for scoring in one.scorings] == [()] * len(one.scorings)


@pytest.mark.parametrize(
    ("here", "scores", "loss", "differing"),
    [
        ("A processor, 2 cores", {"synthetic": 0.5, "mr": 0.8}, 1.5, []),
        ("A processor, 64 cores", {"synthetic": 0.5 + 1e-13, "mr": 0.8}, 1.5, []),
        ("A processor, 2 cores", {"synthetic": 0.5 + 1e-11, "mr": 0.8}, 1.5, ["synthetic"]),
        ("A processor, 2 cores", {"synthetic": 0.5, "mr": 0.8}, 1.500001, ["loss"]),
        ("Another, 2 cores", {"synthetic": 0.50004, "mr": 0.81}, 1.50004, []),
        ("Another, 2 cores", {"synthetic": 0.50006, "mr": 0.81}, 1.50004, ["synthetic"]),
        ("Another, 2 cores", {"synthetic": 0.5, "mr": 0.83}, 1.5002, ["mr", "loss"]),
        ("Another, 2 cores", {"sts12": 0.5004}, 1.5, []),
        ("Another, 2 cores", {"sts12": 0.5006}, 1.5, ["sts12"]),
        ("A processor, 2 cores", {"sts12": 0.5004}, 1.5, ["sts12"]),
        ("Another, 2 cores", {"synthetic": float("nan"), "mr": 0.8}, 1.5, ["synthetic"]),
    ],
)
def test_scores_must_be_equal_on_the_same_kind_of_processor_and_within_tolerances_on_another(
    here: str, scores: dict[str, float], loss: float, differing: list[str]
) -> None:
    known = recorded(device="A processor, 2 cores", **{task: 0.8 if task == "mr" else 0.5 for task in scores})
    found = compare(job(*scores), result(here, loss, **scores), known)
    assert [one.task for one in found.differences] == differing


def test_a_score_of_one_side_only_differs_with_its_pairs_and_step() -> None:
    found = compare(job("synthetic", "mr"), result("A", synthetic=0.5), recorded("A", synthetic=0.5, mr=0.8))
    lost = [(one.metric, one.recorded, one.retrained, one.amount) for one in found.differences]
    assert lost == [("acc", 0.8, None, None), ("acc, pairs", "10", None, None), ("acc, step", "4", None, None)]
    found = compare(job("synthetic"), result("A", synthetic=0.5), recorded("A", mr=0.8))
    assert next((one.metric, one.recorded, one.retrained) for one in found.differences) == ("spearman.all", None, 0.5)


def test_a_kind_of_processor_has_no_number_of_cores_but_a_model() -> None:
    assert processor("AMD EPYC, 2 cores") == processor("AMD EPYC, 64 cores") == "AMD EPYC"
    assert processor("NVIDIA H100 80GB HBM3") == "NVIDIA H100 80GB HBM3"
    if Path("/proc/cpuinfo").is_file() and "cpu family" in Path("/proc/cpuinfo").read_text():
        assert re.fullmatch(r".+ \(family \d+, model \d+\)", processor(environment("cpu", 1)["device"]))


def test_without_names_an_audit_draws_from_the_plan_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Study] = []

    def record_studies(studies: list[Study], *_: object, **__: object) -> int:
        chosen.extend(studies)
        return 0

    monkeypatch.setattr("experiments.audits.audit.audit", record_studies)
    assert main(Options(count=1, mlruns=tmp_path, data=tmp_path)) == 0
    assert {"rankcse-table1", "plan-losses", "ladder", "pilots-transfer"} <= {study.name for study in chosen}
