"""Searches as declared, and real searches in real processes."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from ray.tune.search import Searcher

from cse_core.run import Corpus, Run
from experiments import search as search_command
from experiments.execution.job import ExecutionSettings
from experiments.execution.log_queue import Logbook
from experiments.execution.ray_sweep import RayConfig
from experiments.results import csv_record
from experiments.schema.scales import SCALES, SEARCH_SEEDS
from experiments.searches import ray_search, search_report
from experiments.searches.ray_search import (
    TIME_ATTR,
    SearchCallback,
    TimedSearch,
    distributions,
    halving,
    pending,
    run_search,
)
from experiments.searches.spaces import SEARCHES, LogUniform, choose_searches, settings_text
from experiments.storage.shared_storage import Shared
from tests.support import forked, tiny_study, without_ray
from tests.support.polling import until
from tests.support.shared_folders import prepared, saved
from tests.support.sweeps import add_empty_database, environment, leave

ROOT = Path(__file__).parents[3]
TINY = tiny_study.searches()["tiny"](tiny_study.SCALE)
DEFAULTS = {"learning_rate": 3e-4, "student_temperature": 0.025}
KEYS = [job.key for job in TINY.jobs(DEFAULTS)]
GRID = replace(TINY, start=tiny_study.run(), space={"learning_rate": (1e-4, 2e-4)}, trials=0)


def command(mlruns: Path, *words: str, ray: bool = True) -> list[str]:
    script = ("" if ray else without_ray.SCRIPT) + "from tests.support.tiny_study import main; main('search')"
    add_empty_database(mlruns)
    options = [*words, "--scale", "tiny", "--mlruns", str(mlruns), "--workers", "1"]
    return [sys.executable, "-c", script, *options]


def search(mlruns: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return forked.run(command(mlruns, *names, ray=False), env=environment(mlruns))


def test_the_page_shows_what_a_search_prints_today(capsys: pytest.CaptureFixture[str]) -> None:
    mlruns = ROOT / "mlruns"
    search_report.print_outcome(*choose_searches(("simcse",), "small"), {}, True, mlruns)
    shown = re.findall(r"```\n(search simcse: \d.*?)```", (ROOT / "docs/sweeps.md").read_text(), re.DOTALL)[0]
    said = capsys.readouterr().out.replace(str(mlruns), "mlruns").splitlines()
    assert [line for line in shown.splitlines() if line != "..." and line not in said] == []


def test_missing_inputs_of_a_search_are_named_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = replace(TINY.start, corpus=Corpus("lost", 320))
    monkeypatch.setitem(SEARCHES, "lost", lambda scale: replace(TINY, start=start))
    add_empty_database(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing was started.*\n.*corpus lost: no such file"):
        search_command.main(search_command.Options(searches=("lost",), mlruns=tmp_path))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("name", "runs"), [("rankcse-listnet-grid", 18), ("rankcse-listmle-grid", 6)])
def test_rankcse_grids_are_as_many_runs_as_the_paper_says(name: str, runs: int) -> None:
    for scale in ("small", "paper"):
        one = SEARCHES[name](SCALES[scale])
        keys = [job.key for settings in one.combinations() for job in one.jobs(settings)]
        assert len(keys) == len(set(keys)) == runs * len(SEARCH_SEEDS)
    assert sorted({settings["learning_rate"] for settings in one.combinations()}) == pytest.approx([2e-5, 3e-5])


@pytest.mark.parametrize("name", SEARCHES)
def test_no_search_scores_a_task_or_trains_a_seed_that_a_study_reports(name: str) -> None:
    one = SEARCHES[name](SCALES["small"])
    settings = {key: v.low if isinstance(v, LogUniform) else v[0] for key, v in one.space.items()}
    jobs = one.jobs(settings)
    assert not {job.encoder.seed for job in jobs if isinstance(job.encoder, Run)} & set(SCALES["paper"].seeds)
    assert all(not s.tasks and s.select == "stsb_dev" for job in jobs for s in job.scorings)
    assert len({job.key for job in jobs}) == len(SEARCH_SEEDS)
    for key, value in settings.items():  # what is searched reaches the run
        assert all(job.encoder.settings()[key] == value for job in jobs if isinstance(job.encoder, Run))


def test_nested_runs_come_first_with_the_checkpoint_that_is_read() -> None:
    small = SEARCHES["rankcse-listnet"](SCALES["small"])
    jobs = small.nested_jobs()
    assert {job.encoder for job in jobs} == set(small.start.nested())
    assert all([s.select for s in job.scorings] == ["stsb_dev"] for job in jobs)
    over = replace(TINY, start=tiny_study.run(teachers=(tiny_study.Teacher(TINY.start, select="last"),)))
    assert [job.encoder for job in over.nested_jobs()] == [*TINY.start.nested(), TINY.start]
    assert SEARCHES["simcse"](SCALES["small"]).nested_jobs() == []


def test_names_are_of_searches_or_of_methods() -> None:
    of_rankcse = [name for name in SEARCHES if name != "simcse"]
    assert [one.name for one in choose_searches(["rankcse"], "small")] == of_rankcse
    assert [one.name for one in choose_searches(["simcse", "simcse"], "paper")] == ["simcse"]
    unknown = r"unknown search 'rankcs' \(did you mean rankcse\?\); known: all, rankcse, simcse"
    with pytest.raises(ValueError, match=unknown):
        choose_searches(["rankcs"], "small")
    with pytest.raises(ValueError, match="no name of a search"):
        choose_searches([], "small")
    with pytest.raises(ValueError, match="dropout must be in"):
        replace(TINY, space={"dropout": (0.1, 1.0)})
    with pytest.raises(ValueError, match="a grid needs values for learning_rate, got a range"):
        replace(GRID, space={"learning_rate": LogUniform(1, 2)})


def test_trials_that_were_started_come_first_among_those_left(tmp_path: Path) -> None:
    first, second, third = ({"learning_rate": rate, "student_temperature": 0.05} for rate in (1e-4, 2e-4, 3e-4))
    started = tmp_path / "started"
    five = replace(TINY, trials=5)
    assert pending(five, [], started) == (5, [DEFAULTS])
    lines = (first, DEFAULTS, second, first, third, {"gone": 1.0})
    started.write_text("".join(settings_text(settings) + "\n" for settings in lines))
    assert pending(five, [(first, 0.5)], started) == (4, [DEFAULTS, second, third])
    assert pending(five, [(first, 0.5), (DEFAULTS, 0.5)], started) == (3, [second, third])
    assert pending(five, [(first, 0.5)] * 4, started) == (1, [DEFAULTS])
    assert pending(five, [(first, 0.5)] * 7, started) == (0, [])
    grid = replace(TINY, space={"learning_rate": (1e-4, 2e-4), "student_temperature": (0.05,)}, trials=0)
    assert pending(grid, [(first, float("nan"))], started) == (1, [second])


def test_spaces_in_optunas_terms() -> None:
    found = distributions(TINY.space)
    assert (found["learning_rate"].low, found["learning_rate"].high, found["learning_rate"].log) == (1e-5, 1e-3, True)
    assert found["student_temperature"].choices == (0.025, 0.05)


def trials(mlruns: Path, name: str) -> pd.DataFrame:
    lines = csv_record.read_searches("tiny", mlruns)
    return lines[lines["search"] == name]


def test_the_worse_half_is_stopped_where_trials_are_compared() -> None:
    search = SEARCHES["simcse"](SCALES["small"])
    asha, first = halving(search), search.start.evaluations // 2
    started = [SimpleNamespace(trial_id=str(i)) for i in range(4)]
    for one in started:
        asha.on_trial_add(None, one)  # ty: ignore[invalid-argument-type]

    def stops(one: int, at: int, score: float) -> bool:
        decision = asha.on_trial_result(None, started[one], {TIME_ATTR: at, "score": score})  # ty: ignore[invalid-argument-type]
        assert decision in ("STOP", "CONTINUE")
        return decision == "STOP"

    assert not stops(0, first - 1, 0.1)  # too early to be compared
    scores = (0.60, 0.64, 0.61, 0.65)
    assert [stops(i, first, score) for i, score in enumerate(scores)] == [False, False, True, False]
    assert not stops(1, 2 * first, 0.66)
    assert stops(3, 2 * first, 0.65)


def failures(
    mlruns: Path, state: str, ended: int = 0, *, score: float = math.nan, failed: str = "", shared: str = ""
) -> list[str]:
    """End a trial in a state after so many of its seeds; return the failures that the search reports."""
    logged: list[str] = []
    tracker = SimpleNamespace(mlruns=mlruns, log=lambda folder: logged.append(folder.name))
    book = Logbook(tracker, ExecutionSettings(mlruns / "store", shared=shared))  # ty: ignore[invalid-argument-type]
    watch = SearchCallback(TINY, book, SimpleNamespace(end=lambda key, failed=False: None))  # ty: ignore
    for key in KEYS[:ended]:
        leave(mlruns / "store", key, studies=[])
    evaluations = 0 if math.isnan(score) else TINY.start.evaluations
    result = {"score": score, TIME_ATTR: evaluations, "state": state, "failed": failed, "ended": ended}
    watch.on_trial_complete(0, [], SimpleNamespace(config=DEFAULTS, trial_id="a", last_result=result))
    assert logged == KEYS[:ended]
    return list(watch.failed.values())


def test_a_trial_that_failed_for_another_reason_than_its_settings_is_tried_again_next_time(tmp_path: Path) -> None:
    lost, diverged = "OSError: no route to host", "DivergedError: nan"
    assert failures(tmp_path, "error", failed=lost) == [lost]
    assert not (tmp_path / "searches.csv").exists()
    assert failures(tmp_path, "failed", 1, failed=diverged) == [diverged]
    (line,) = trials(tmp_path, "tiny").to_dict("records")
    assert (line["state"], line["evaluations"]) == ("failed", 0)


def test_the_seeds_of_a_stopped_trial_that_ended_are_tracked(tmp_path: Path) -> None:
    failures(tmp_path, "stopped", 1, score=0.5)
    (line,) = trials(tmp_path, "tiny").to_dict("records")
    assert (line["state"], line["score"]) == ("stopped", 0.5)


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_trial_that_will_not_resume_leaves_no_state(tmp_path: Path, state: str) -> None:
    shared = Shared(prepared((tmp_path / "shared").as_uri()))
    for key in KEYS:
        shared.share_state(saved(tmp_path / "other" / key, 4, ("synthetic_dev",)), ("synthetic_dev",))
    failures(tmp_path, state, shared=shared.url)
    assert not [path for key in KEYS for path in (tmp_path / "shared" / key).glob("*")]


@pytest.mark.parametrize("unreachable", [False, True])
def test_a_search_that_has_all_its_trials_tracks_what_is_not_tracked(tmp_path: Path, unreachable: bool) -> None:
    place, logged = ExecutionSettings(tmp_path / "store"), [""]
    for settings in GRID.combinations():
        keys = [job.key for job in GRID.jobs(settings)]
        trial = {"scale": "tiny", "search": "tiny", "trial": settings_text(settings), "keys": " ".join(keys)}
        line = {**trial, "state": "finished", "score": 0.5, TIME_ATTR: 5, "commit": ""}
        csv_record.merge_searches(tmp_path, pd.DataFrame([line]))
    tracked, gone, damaged, *left = sorted(" ".join(csv_record.read_searches("tiny", tmp_path)["keys"]).split())
    (place.store / damaged).mkdir(parents=True)
    (place.store / damaged / "result.json").touch()
    for key in (tracked, *left):
        leave(place.store, key, studies=[])

    def log(folder: Path) -> None:
        logged.append(folder.name)
        if len(logged) == 2:
            raise OSError("MLflow is unreachable for a moment")

    def keys_of() -> set[str]:
        if unreachable:
            raise OSError("MLflow is unreachable for a moment")
        return {tracked}

    tracker = SimpleNamespace(mlruns=tmp_path, keys=keys_of, log=log)
    assert run_search(GRID, place, RayConfig(), tracker) == ({}, True)  # ty: ignore[invalid-argument-type]
    assert set(logged[2:]) == ({tracked, *left} if unreachable else set(left))
    assert gone not in logged


def test_an_interrupted_search_has_not_ended_although_a_trial_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one of two trials fails, Ray Tune returns as it does after Ctrl-C."""
    report = {"score": float("nan"), TIME_ATTR: 0, "ended": 0, "state": "failed", "failed": "DivergedError: nan"}

    def fit(callback: SearchCallback) -> None:
        trial = SimpleNamespace(config={"learning_rate": 1e-4}, trial_id="a", last_result=report)
        callback.on_trial_complete(0, [], trial)

    monkeypatch.setattr(ray_search, "tuner", lambda *given, **named: SimpleNamespace(fit=lambda: fit(given[3])))
    tracker = SimpleNamespace(mlruns=tmp_path, keys=set)
    settings = ExecutionSettings(tmp_path / "store")
    failed, whole = run_search(GRID, settings, RayConfig(), tracker)  # ty: ignore[invalid-argument-type]
    assert (list(failed.values()), whole) == (["DivergedError: nan"], False)


def begun(mlruns: Path) -> list[str]:
    """The settings of every trial that was started."""
    started = mlruns / "store" / "tiny-tiny.started"
    return [line.strip() for line in started.read_text().split("\n\n") if line.strip()] if started.is_file() else []


@pytest.mark.slow
@pytest.mark.parametrize("ray", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["one process", "Ray"])
def test_a_search_killed_and_started_again_goes_on_to_its_limits_and_reads_only_dev(tmp_path: Path, ray: bool) -> None:
    mlruns, log = tmp_path / "mlruns", tmp_path / "log"
    with log.open("w") as output:
        process = forked.Forked(
            command(mlruns, "tiny", ray=ray),
            env=environment(mlruns),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            until(lambda: len(set(begun(mlruns))) == 2 and len(trials(mlruns, "tiny")) == 1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    before, under_way = trials(mlruns, "tiny"), set(begun(mlruns))
    assert (len(before), len(under_way)) == (1, 2), log.read_text()
    done = search(mlruns, "tiny", "--trials", "1", "--minutes", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 trial is left; the command without --trials and --minutes makes them too" in done.stdout
    lines = trials(mlruns, "tiny")
    assert set(lines["trial"]) == under_way  # what was under way was not given up
    assert set(lines["state"]) <= {"finished", "stopped"}
    assert set(before["trial"]) <= set(lines["trial"])
    for line in lines[lines["state"] == "finished"].itertuples():
        kept = [json.loads((mlruns / "store" / key / "history.json").read_text())["kept"] for key in line.keys.split()]
        assert line.score == pytest.approx(sum(one["synthetic_dev"]["score"] for one in kept) / 2)
    scored = [set(np.load(path)) for path in (mlruns / "store").glob("*/pair_scores/*.npz")]
    assert scored == [{"synthetic_dev"}]  # of the nested run, whose weights must give the recorded score
    assert not (mlruns / "results.csv").exists()


@pytest.mark.slow
def test_a_grid_takes_every_combination_and_names_what_fails(tmp_path: Path) -> None:
    done = search(tmp_path, "tiny-grid")
    said = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    lines = trials(tmp_path, "tiny-grid")
    assert sorted(lines["state"]) == ["failed", "finished"]
    assert lines["score"].isna().tolist() == (lines["state"] == "failed").tolist()
    assert 'failed: {"temperature": 1e-40}: DivergedError: run' in said


def test_a_search_says_how_many_trials_are_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"scale": "tiny", "search": "tiny", "state": "finished", "keys": "x", "evaluations": 1, "commit": "x"}
    for made, left in enumerate(("3 trials are left", "2 trials are left", "1 trial is left", "none is left")):
        search_report.print_outcome(TINY, {}, True, tmp_path)
        said = capsys.readouterr().out
        assert left in said
        assert f"{made} trial{'' if made == 1 else 's'} recorded" in said
        new = line | {"trial": settings_text({"temperature": float(made)}), "score": 0.5}
        csv_record.merge_searches(tmp_path, pd.DataFrame([new]))


def test_after_its_time_a_search_suggests_nothing_more() -> None:
    space = distributions(TINY.space)
    timed = TimedSearch(space, 3600, metric="score", mode="max")
    assert timed.suggest("a").keys() == TINY.space.keys()
    assert (timed.suggested, timed.over) == (1, False)
    timed.ends = 0
    assert timed.suggest("b") == Searcher.FINISHED
    assert (timed.suggested, timed.over) == (1, True)
