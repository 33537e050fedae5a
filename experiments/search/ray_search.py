"""A search: Ray Tune asks Optuna for settings, stops what falls behind, and every trial ends in the record.

Nothing here chooses by a test score: a trial's jobs train and keep a checkpoint by dev score, and score nothing; the
runs that they need are scored on dev, to be compared with the record.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from cse_core.training.loop import DivergedError
from experiments.cli.console import Bar
from experiments.execution.job import ExecutionSettings
from experiments.execution.log_queue import Logbook
from experiments.execution.plan import verify_reproduces_record
from experiments.execution.ray_sweep import RayConfig, SweepCallback, run_level, tuner
from experiments.execution.shared_job import execute_shared, fetch_recorded
from experiments.results import csv_record
from experiments.results.mlflow_log import UNREACHABLE_ERRORS, Tracker
from experiments.results.provenance import commit
from experiments.results.run_result import RESULT
from experiments.search.spaces import Search, distributions, settings_text
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared

Trials = list[tuple[dict[str, float], float]]  # settings and scores
optuna.logging.set_verbosity(optuna.logging.WARNING)
AIM: Any = {"metric": "score", "mode": "max"}
TIME_ATTR = "evaluations"  # what trials are compared at
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
ERROR = "error"  # of no trial in the record: the same command tries it again


class UndefinedError(ArithmeticError):
    """A run without any dev score."""


def run_trial(config: Mapping[str, float], search: Search, execution: ExecutionSettings) -> None:
    """One trial in a Ray worker, seed after seed. What its settings bring about is a result; other errors are none."""
    scores: list[float] = []
    clock = 0

    def tell(curves: Mapping[str, Sequence[Sequence[float]]]) -> None:
        """The best dev score so far, at each evaluation of the first seed; a resumed run's earlier ones as well."""
        nonlocal clock
        points = [] if scores else curves.get(f"dev/{search.scale.dev}", [])
        for at, best in enumerate(accumulate((score for _, score in points), max), 1):
            if clock < at < search.evaluations:
                clock = at
                tune.report(_trial_report([best], at, 0))

    try:
        for job in search.jobs(config):
            result = execute_shared(job, execution, on_step=lambda step, history: tell(history.curves))
            tell(result["curves"])  # of a run that was there already
            score = result["kept"][search.scale.dev]["score"]
            if score is None:
                raise UndefinedError(f"run {job.key}: its dev scores are undefined")
            scores.append(score)
            if len(scores) < len(search.seeds):  # between seeds' ends means of them and of a run under way say nothing
                tune.report(_trial_report(scores, len(scores) * search.evaluations, len(scores)))
    except (DivergedError, UndefinedError) as error:
        failed = f"{type(error).__name__}: {error}"
        tune.report({"score": math.nan, TIME_ATTR: 0, "ended": len(scores), "state": FAILED, "failed": failed})
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver names it with the settings
        failed = redact_credentials(f"{type(error).__name__}: {error}")
        tune.report({"score": math.nan, TIME_ATTR: 0, "ended": len(scores), "state": ERROR, "failed": failed})
    else:
        tune.report(_trial_report(scores, len(scores) * search.evaluations, len(scores)) | {"state": FINISHED})


def _trial_report(scores: Sequence[float], at: int, ended: int) -> dict[str, Any]:
    """What a trial reports at some point of its clock, of which so many seeds have ended."""
    return {"score": sum(scores) / len(scores), TIME_ATTR: at, "ended": ended, "state": STOPPED, "failed": ""}


class SearchCallback(tune.Callback):
    """Puts each trial into the record as it ends; all of it in the driver."""

    def __init__(self, search: Search, logbook: Logbook, bar: Bar) -> None:
        self.search, self.logbook, self.bar = search, logbook, bar
        self.mlruns = logbook.tracker.mlruns
        self.failed: dict[str, str] = {}
        self.ended = 0
        self.places: dict[str, str] = {}  # in the bar, by Ray's random names

    def __getstate__(self) -> dict[str, Any]:
        """Tune snapshots its callbacks; a search never restores them, it reads the record."""
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook."""
        path = _started(self.search, self.mlruns)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"\n{settings_text(trial.config)}\n")  # a line that was cut off stays by itself

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Ray Tune's hook."""
        of = len(self.search.seeds) * self.search.evaluations
        self.bar.move(self._place(trial), result[TIME_ATTR] / of)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook."""
        last, text = trial.last_result, settings_text(trial.config)
        keys = [job.key for job in self.search.jobs(trial.config)]
        for key in keys[: last["ended"]]:
            self.logbook.add(key)
        if last["failed"]:
            self.failed[text] = last["failed"]
        if last["state"] in (STOPPED, FAILED) and self.logbook.execution.shared:
            with suppress(OSError):  # they would only take room
                Shared(self.logbook.execution.shared).drop_states(keys[last["ended"] :])
        if last["state"] != ERROR:
            line = {"scale": self.search.scale.name, "search": self.search.name, "trial": text, "keys": " ".join(keys)}
            line |= {name: last[name] for name in ("state", "score", TIME_ATTR)} | {
                "commit": csv_record.commit_of(commit())
            }
            csv_record.merge_searches(self.mlruns, pd.DataFrame([line]))
        self._end(trial)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook: not recorded, so that the same command tries it again."""
        self.failed[settings_text(trial.config)] = "its worker was lost more often than it is retried"
        self._end(trial)

    def _end(self, trial: Any) -> None:
        self.ended += 1
        self.bar.end(self._place(trial))

    def _place(self, trial: Any) -> str:
        return self.places.setdefault(trial.trial_id, str(len(self.places)))


def run_search(
    search: Search, execution: ExecutionSettings, cluster: RayConfig, tracker: Tracker
) -> tuple[dict[str, str], bool]:
    """Go on with a search until it has its trials; settings -> reason of what failed, and whether it came to its end.

    A search that was interrupted tells the sampler what is recorded and begins with the settings that were under way,
    whose runs find their state. Nothing that Ray pickled is read.
    """
    results = csv_record.read_results(search.scale.name, tracker.mlruns)
    logbook = Logbook(tracker, execution)
    for level in search.nested():
        with Bar([job.key for job in level]) as bar:
            follow = SweepCallback(logbook, bar)
            run_level(level, execution, cluster, follow)
        if follow.failed or len(follow.finished) < len(level):
            return follow.failed | logbook.settle(), bool(follow.failed)
        for job in level:
            retry(partial(fetch_recorded, job.key, execution))
        verify_reproduces_record({job.key: job.name for job in level}, results, execution.store)
    known = recorded(search, tracker.mlruns)
    for key in _unlogged_runs(search, execution, tracker):  # of trials recorded while MLflow was away
        logbook.add(key)
    left, ahead = pending(search, known, _started(search, tracker.mlruns))
    if not left:
        return logbook.settle(), True
    # The sampler has another seed when it goes on: not the same draws again.
    sampler = optuna.samplers.TPESampler(seed=len(known) + len(ahead))
    asked = OptunaSearch(distributions(search.space), points_to_evaluate=ahead, sampler=sampler, **AIM)
    for settings, score in known:
        asked.add_evaluated_point(settings, score, error=math.isnan(score))
    with Bar([str(i) for i in range(left)]) as bar:
        watch = SearchCallback(search, logbook, bar)
        trainable = tune.with_parameters(run_trial, search=search, execution=execution)
        how = {"search_alg": asked, "num_samples": left, "scheduler": halving(search) if search.trials else None}
        how["max_concurrent_trials"] = cluster.workers or None
        tuner(trainable, cluster, execution, watch, space={}, **how).fit()
    return watch.failed | logbook.settle(), watch.ended >= left


def halving(search: Search) -> ASHAScheduler:
    """Stops the worse half at half of the first seed's evaluations, and of the rest at twice and four times as many."""
    last = len(search.seeds) * search.evaluations
    return ASHAScheduler(
        TIME_ATTR, max_t=last + 1, grace_period=max(1, search.evaluations // 2), reduction_factor=2, **AIM
    )


def recorded(search: Search, mlruns: Path) -> Trials:
    """Settings and scores of the trials that the record has; no number for what failed. Of the declared space alone."""
    lines = csv_record.read_searches(search.scale.name, mlruns)
    mine = lines[lines["search"] == search.name]
    found = [(json.loads(text), float(score)) for text, score in zip(mine["trial"], mine["score"], strict=True)]
    return [(settings, score) for settings, score in found if search.holds(settings)]


def pending(search: Search, known: Trials, started: Path) -> tuple[int, list[dict[str, float]]]:
    """How many trials are left, and settings known beforehand: a grid's, or the study's own and those begun."""
    done = [settings for settings, _ in known]
    if not search.trials:
        left = [settings for settings in search.combinations() if settings not in done]
        return len(left), left
    lines = started.read_text().splitlines() if started.is_file() else []
    begun = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    wanted = [settings for settings in (search.own, *begun) if search.holds(settings)]
    ahead = [settings for i, settings in enumerate(wanted) if settings not in (*done, *wanted[:i])]
    left = max(0, search.trials - len(done))
    return left, ahead[:left]


def _unlogged_runs(search: Search, execution: ExecutionSettings, tracker: Tracker) -> list[str]:
    """Runs of recorded trials that are not tracked, and whose folders can be had: a stopped trial has none of some."""
    lines = csv_record.read_searches(search.scale.name, tracker.mlruns)
    keys = set(" ".join(lines.loc[lines["search"] == search.name, "keys"]).split())
    with suppress(*UNREACHABLE_ERRORS):  # then all are handed in, and those that are tracked are not tracked twice
        keys -= tracker.keys()
    for key in keys:
        if not (execution.store / key / RESULT).is_file():
            retry(partial(fetch_recorded, key, execution))
    return [key for key in sorted(keys) if (execution.store / key / RESULT).is_file()]


def _started(search: Search, mlruns: Path) -> Path:
    return mlruns / "store" / f"{search.scale.name}-{search.name}.started"
