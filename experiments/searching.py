"""A search: Ray Tune asks Optuna for settings, stops what falls behind, and every trial ends in the record.

Nothing here can read a test score: a trial's jobs train and keep a checkpoint by dev score, and score nothing.
"""

import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from cse_core.train import History
from experiments import record, show
from experiments.job import Place, commit, execute
from experiments.searches import Search, distributions, settings_text
from experiments.sharing import Shared, execute_shared
from experiments.tracking import Tracker
from experiments.trials import Cluster, Follow, run_level, tuner

Trials = list[tuple[dict[str, float], float]]  # settings and scores
CLOCK = "evaluations"  # what trials are compared at
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


def attempt(config: Mapping[str, float], search: Search, place: Place) -> None:
    """One trial in a Ray worker: seed after seed, reporting the mean over them of the best dev score so far."""
    scores: list[float] = []
    told = partial(_report, scores, search)
    try:
        for job in search.jobs(config):
            result = (execute_shared if place.shared else execute)(job, place, on_step=told)
            score = result["kept"][search.scale.dev]["score"]
            if score is None:
                raise ValueError(f"run {job.key}: its dev scores are undefined")
            scores.append(score)
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver names it with the settings
        tune.report({"score": float("nan"), CLOCK: 0, "state": FAILED, "failed": f"{type(error).__name__}: {error}"})
    else:
        tune.report(_told(scores, len(scores) * search.evaluations) | {"state": FINISHED})


def _report(scores: list[float], search: Search, step: int, history: History) -> None:
    kept = history.kept.get(search.scale.dev)
    if step % search.start.eval_steps == 0 and step < history.steps and kept and kept.score is not None:
        at = len(scores) * search.evaluations + step // search.start.eval_steps
        tune.report(_told([*scores, kept.score], at))


def _told(scores: list[float], at: int) -> dict[str, Any]:
    return {"score": sum(scores) / len(scores), CLOCK: at, "state": STOPPED, "failed": ""}


class Watch(tune.Callback):
    """Puts each trial into the record as it ends; all of it in the driver."""

    def __init__(self, search: Search, place: Place, tracker: Tracker, bar: show.Bar) -> None:
        self.search, self.place, self.tracker, self.bar = search, place, tracker, bar
        self.failed: dict[str, str] = {}
        self.ended = 0
        self.places: dict[str, str] = {}  # in the bar, by Ray's random names

    def __getstate__(self) -> dict[str, Any]:
        """Tune snapshots its callbacks; a search never restores them, it reads the record."""
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook."""
        with _started(self.search, self.tracker.mlruns).open("a") as file:
            file.write(settings_text(trial.config) + "\n")

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Ray Tune's hook."""
        of = len(self.search.seeds) * self.search.evaluations
        self.bar.move(self._place(trial), result[CLOCK] / of)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook."""
        last, text = trial.last_result, settings_text(trial.config)
        keys = [job.key for job in self.search.jobs(trial.config)]
        folders = [self.place.store / key for key in keys]
        for folder in folders:
            if self.place.shared:
                Shared(self.place.shared).fetch(folder.name, folder.parent, weights=False)
            if (folder / "result.json").is_file():
                self.tracker.log(folder)
        if last["failed"]:
            self.failed[text] = last["failed"]
        line = {"scale": self.search.scale.name, "search": self.search.name, "trial": text, "keys": " ".join(keys)}
        line |= {name: last[name] for name in ("state", "score", CLOCK)} | {"commit": record.commit_of(commit())}
        record.merge_searches(self.tracker.mlruns, pd.DataFrame([line]))
        self.ended += 1
        self.bar.end(self._place(trial))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook: not recorded, so that the same command tries it again."""
        self.failed[settings_text(trial.config)] = "its worker was lost more often than it is retried"

    def _place(self, trial: Any) -> str:
        return self.places.setdefault(trial.trial_id, str(len(self.places)))


def run_search(search: Search, place: Place, cluster: Cluster, tracker: Tracker) -> tuple[dict[str, str], bool]:
    """Go on with a search until it has its trials; settings -> reason of what failed, and whether it came to its end.

    A search that was interrupted tells the sampler what is recorded and begins with the settings that were under way,
    whose runs find their state. Nothing that Ray pickled is read.
    """
    for level in search.nested():
        with show.Bar([job.key for job in level]) as bar:
            follow = Follow(tracker, place, bar)
            run_level(level, place, cluster, follow)
        if follow.finished != {job.key for job in level}:
            return follow.failed, False
    known = recorded(search, tracker.mlruns)
    left, ahead = pending(search, known, _started(search, tracker.mlruns))
    sampler = optuna.samplers.TPESampler(seed=len(known))  # another one when it goes on: not the same draws again
    how: dict[str, Any] = {"metric": "score", "mode": "max"}
    asked = OptunaSearch(distributions(search.space), points_to_evaluate=ahead, sampler=sampler, **how)
    for settings, score in known:
        asked.add_evaluated_point(settings, score, error=math.isnan(score))
    last = len(search.seeds) * search.evaluations
    asha = ASHAScheduler(CLOCK, max_t=last + 1, grace_period=max(1, search.evaluations // 2), reduction_factor=2, **how)
    with show.Bar([str(i) for i in range(left)]) as bar:
        watch = Watch(search, place, tracker, bar)
        trainable = tune.with_parameters(attempt, search=search, place=place)
        how = {"search_alg": asked, "num_samples": left, "scheduler": asha if search.trials else None}
        if left:
            tuner(trainable, cluster, place, watch, space={}, **how).fit()
    return watch.failed, watch.ended + len(watch.failed) >= left


def recorded(search: Search, mlruns: Path) -> Trials:
    """Settings and scores of the trials that the record has; no number for what failed."""
    lines = record.read_searches(search.scale.name, mlruns)
    mine = lines[lines["search"] == search.name]
    return [(json.loads(line.trial), float(line.score)) for line in mine.itertuples()]


def pending(search: Search, known: Trials, started: Path) -> tuple[int, list[dict[str, float]]]:
    """How many trials are left, and settings known beforehand: a grid's, or the study's own and those begun."""
    done = [settings for settings, _ in known]
    if not search.trials:
        left = [settings for settings in search.combinations() if settings not in done]
        return len(left), left
    begun = [json.loads(line) for line in started.read_text().splitlines()] if started.is_file() else []
    wanted = [settings for settings in (search.own, *begun) if settings.keys() == search.space.keys()]
    ahead = [settings for i, settings in enumerate(wanted) if settings not in (*done, *wanted[:i])]
    left = max(0, search.trials - len(done))
    return left, ahead[:left]


def _started(search: Search, mlruns: Path) -> Path:
    return mlruns / "store" / f"{search.scale.name}-{search.name}.started"
