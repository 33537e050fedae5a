"""Run a search: Ray Tune gets settings from Optuna and stops the worse trials; every trial is recorded.

No test score is used. The jobs of a trial train, select a checkpoint by dev score and score nothing else. Their
teachers and bases are scored on dev, to be compared with the record.
"""

import json
import math
import time
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
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from cse_core.training.loop import DivergedError
from experiments.cli.console import Bar
from experiments.execution.job import ExecutionSettings
from experiments.execution.log_queue import Logbook
from experiments.execution.ray_sweep import RayConfig, run_jobs, tuner
from experiments.execution.shared_job import execute_shared, fetch_recorded
from experiments.execution.tune_hooks import SweepCallback, unusable_runs
from experiments.results import csv_record
from experiments.results.provenance import commit
from experiments.results.run_result import read_result
from experiments.searches.spaces import Search, distributions, settings_text
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared
from experiments.tracking.mlflow_log import Tracker

Trials = list[tuple[dict[str, float], float]]  # settings and scores
optuna.logging.set_verbosity(optuna.logging.WARNING)
AIM: Any = {"metric": "score", "mode": "max"}
TIME_ATTR = "evaluations"  # trials are compared after the same number
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
ERROR = "error"  # not recorded, so that the same command tries the trial again


class TimedSearch(OptunaSearch):
    """Optuna's search, which suggests no further settings after a number of seconds; trials in progress end."""

    def __init__(self, space: Any, seconds: float, **options: Any) -> None:
        super().__init__(space, **options)
        self.ends, self.suggested, self.over = time.monotonic() + seconds, 0, False

    def suggest(self, trial_id: str) -> Any:
        """Return the next settings, or `Searcher.FINISHED` after the time limit."""
        if time.monotonic() >= self.ends:
            self.over = True
            return Searcher.FINISHED
        settings = super().suggest(trial_id)
        self.suggested += settings is not None
        return settings


class UndefinedError(ArithmeticError):
    """A run has no defined dev score."""


def run_trial(config: Mapping[str, float], search: Search, execution: ExecutionSettings) -> None:
    """Train one trial in a Ray worker, seed after seed. Divergence is a result; other errors are not recorded."""
    scores: list[float] = []
    clock = 0

    def report_progress(curves: Mapping[str, Sequence[Sequence[float]]]) -> None:
        """Report the best dev score so far at each evaluation of the first seed, also those before a resume."""
        nonlocal clock
        points = [] if scores else curves.get(f"dev/{search.scale.dev}", [])
        for at, best in enumerate(accumulate((score for _, score in points), max), 1):
            if clock < at < search.start.evaluations:
                clock = at
                tune.report(_trial_report([best], at, 0))

    try:
        for job in search.jobs(config):
            result = execute_shared(job, execution, on_step=lambda step, history: report_progress(history.curves))
            report_progress(result["curves"])  # if the run was trained before
            score = result["kept"][search.scale.dev]["score"]
            if score is None:
                raise UndefinedError(f"run {job.key}: its dev scores are undefined")
            scores.append(score)
            if len(scores) < len(search.seeds):  # means are comparable only when a seed has ended
                tune.report(_trial_report(scores, len(scores) * search.start.evaluations, len(scores)))
    except Exception as error:  # noqa: BLE001 - the driver reports any error together with the settings
        state = FAILED if isinstance(error, DivergedError | UndefinedError) else ERROR
        failed = redact_credentials(f"{type(error).__name__}: {error}")
        tune.report({"score": math.nan, TIME_ATTR: 0, "ended": len(scores), "state": state, "failed": failed})
    else:
        tune.report(_trial_report(scores, len(scores) * search.start.evaluations, len(scores)) | {"state": FINISHED})


def _trial_report(scores: Sequence[float], at: int, ended: int) -> dict[str, Any]:
    """Return what a trial reports after `at` evaluations, with the number of seeds that ended."""
    return {"score": sum(scores) / len(scores), TIME_ATTR: at, "ended": ended, "state": STOPPED, "failed": ""}


class SearchCallback(tune.Callback):
    """Records each trial as it ends, in the driver."""

    def __init__(self, search: Search, logbook: Logbook, bar: Bar) -> None:
        self.search, self.logbook, self.bar = search, logbook, bar
        self.mlruns = logbook.tracker.mlruns
        self.failed: dict[str, str] = {}
        self.ended = 0
        self.bar_keys: dict[str, str] = {}  # keys in the bar, by Ray's random trial ids

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles its callbacks, but a search resumes from the record."""
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Save the settings, so that an interrupted search resumes with them."""
        path = _started_path(self.search, self.mlruns)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"\n{settings_text(trial.config)}\n")  # the first line break ends a line that was cut off

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Move the progress bar."""
        evaluations = len(self.search.seeds) * self.search.start.evaluations
        self.bar.move(self._bar_key(trial), result[TIME_ATTR] / evaluations, f"dev {result['score']:.3f}")

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Record the trial and log its runs."""
        last, text = trial.last_result, settings_text(trial.config)
        keys = [job.key for job in self.search.jobs(trial.config)]
        for key in keys[: last["ended"]]:
            self.logbook.add(key)
        if last["failed"]:
            self.failed[text] = last["failed"]
        if last["state"] in (STOPPED, FAILED) and self.logbook.execution.shared:
            with suppress(OSError):  # leftovers only take up space
                Shared(self.logbook.execution.shared).drop_states(keys[last["ended"] :])
        if last["state"] != ERROR:
            line = {"scale": self.search.scale.name, "search": self.search.name, "trial": text, "keys": " ".join(keys)}
            line |= {name: last[name] for name in ("state", "score", TIME_ATTR)}
            line["commit"] = csv_record.commit_of(commit())
            csv_record.merge_searches(self.mlruns, pd.DataFrame([line]))
        self._end(trial, failed=bool(last["failed"]))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Note a trial whose worker was lost too often; it is not recorded, so the same command tries it again."""
        self.failed[settings_text(trial.config)] = "its worker was lost more often than a run is retried"
        self._end(trial, failed=True)

    def _end(self, trial: Any, *, failed: bool = False) -> None:
        self.ended += 1
        self.bar.end(self._bar_key(trial), failed=failed)

    def _bar_key(self, trial: Any) -> str:
        return self.bar_keys.setdefault(trial.trial_id, str(len(self.bar_keys)))


def run_search(
    search: Search,
    execution: ExecutionSettings,
    cluster: RayConfig,
    tracker: Tracker,
    *,
    trials: int | None = None,
    seconds: float = math.inf,
) -> tuple[dict[str, str], bool]:
    """Run or resume a search; return the reasons of failures by settings, and whether it ran to the end or its limit.

    It makes at most `trials` further trials, and begins none after `seconds`. A resumed search gives the recorded
    trials to the sampler and starts with the interrupted settings, whose runs resume from their states. Nothing that
    Ray pickled is read.
    """
    logbook, begun = Logbook(tracker, execution, search.nested_jobs()), time.monotonic()
    failed, ended = _run_nested(search, execution, cluster, logbook)
    if failed or not ended:
        return failed, ended
    recorded = recorded_trials(search, tracker.mlruns)
    for key in _unlogged_runs(search, execution, tracker):  # of trials recorded while MLflow was unreachable
        logbook.add(key)
    left, ahead = pending(search, recorded, _started_path(search, tracker.mlruns))
    left = left if trials is None else min(left, trials)
    if not left:
        return logbook.settle(), True
    algorithm = _search_algorithm(search, recorded, ahead, left, seconds - (time.monotonic() - begun))
    with Bar({str(i): f"trial {i + 1}" for i in range(left)}) as bar:
        callback = SearchCallback(search, logbook, bar)
        trainable = tune.with_parameters(run_trial, search=search, execution=execution)
        how = {"search_alg": algorithm, "num_samples": left, "scheduler": halving(search) if search.trials else None}
        how["max_concurrent_trials"] = cluster.workers or None
        tuner(trainable, cluster, execution, callback, space={}, **how).fit()
    expected = algorithm.suggested if algorithm.over else left
    return callback.failed | logbook.settle(), callback.ended >= expected


def trials_left(search: Search, mlruns: Path) -> int:
    """Return the number of trials that are left to make."""
    return pending(search, recorded_trials(search, mlruns), _started_path(search, mlruns))[0]


def _search_algorithm(
    search: Search, recorded: Trials, ahead: Sequence[dict[str, float]], left: int, seconds: float
) -> TimedSearch:
    # A resumed sampler needs another seed, or it would draw the same settings again.
    sampler = optuna.samplers.TPESampler(seed=len(recorded) + len(ahead))
    space, first = distributions(search.space), list(ahead[:left])
    algorithm = TimedSearch(space, seconds, points_to_evaluate=first, sampler=sampler, **AIM)
    for settings, score in recorded:
        algorithm.add_evaluated_point(settings, score, error=math.isnan(score))
    return algorithm


def _run_nested(
    search: Search, execution: ExecutionSettings, cluster: RayConfig, logbook: Logbook
) -> tuple[dict[str, str], bool]:
    """Run all teachers and bases; return the reasons of failures by key, and whether it was not interrupted."""
    results = csv_record.read_results(search.scale.name, logbook.tracker.mlruns)
    jobs = search.nested_jobs()
    if not jobs:
        return {}, True
    unusable = unusable_runs({job.key: job.name for job in jobs}, results, execution)
    with Bar({job.key: job.name for job in jobs}) as bar:
        callback = SweepCallback(logbook, bar)
        run_jobs(jobs, execution, cluster, callback, unusable)
    if callback.failed or len(callback.finished) < len(jobs):
        return callback.failed | logbook.settle(), callback.have_ended(jobs)
    return {job.key: reason for job in jobs if (reason := retry(partial(unusable, job.key)))}, True


def halving(search: Search) -> ASHAScheduler:
    """Return a scheduler that stops the worse half at 1/2 of the first seed's evaluations, then at 1x and 2x."""
    last = len(search.seeds) * search.start.evaluations
    return ASHAScheduler(
        TIME_ATTR, max_t=last + 1, grace_period=max(1, search.start.evaluations // 2), reduction_factor=2, **AIM
    )


def recorded_trials(search: Search, mlruns: Path) -> Trials:
    """Return settings and scores of the recorded trials in the declared space; the score of a failed one is NaN."""
    lines = csv_record.read_searches(search.scale.name, mlruns)
    lines = lines[lines["search"] == search.name]
    trials = [(json.loads(text), float(score)) for text, score in zip(lines["trial"], lines["score"], strict=True)]
    return [(settings, score) for settings, score in trials if search.holds(settings)]


def pending(search: Search, trials: Trials, started: Path) -> tuple[int, list[dict[str, float]]]:
    """Return the number of trials left, and settings to start with: a grid's, or the studies' and interrupted ones."""
    done = [settings for settings, _ in trials]
    if not search.trials:
        left = [settings for settings in search.combinations() if settings not in done]
        return len(left), left
    lines = started.read_text().splitlines() if started.is_file() else []
    begun = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    first = [settings for settings in (search.default_settings, *begun) if search.holds(settings)]
    ahead = [settings for i, settings in enumerate(first) if settings not in (*done, *first[:i])]
    left = max(0, search.trials - len(done))
    return left, ahead[:left]


def _unlogged_runs(search: Search, execution: ExecutionSettings, tracker: Tracker) -> list[str]:
    """Return the keys of recorded trials' runs that have a result and are not in MLflow; stopped trials have fewer."""
    lines = csv_record.read_searches(search.scale.name, tracker.mlruns)
    keys = set(" ".join(lines.loc[lines["search"] == search.name, "keys"]).split())
    with suppress(OSError):  # if unreachable, return all: logging a run twice changes nothing
        keys -= tracker.keys()

    def is_stored(key: str) -> bool:
        return read_result(execution.store / key) is not None

    stored = set(filter(is_stored, keys))
    for key in keys - stored:
        retry(partial(fetch_recorded, key, execution))
    return sorted(stored | set(filter(is_stored, keys - stored)))


def _started_path(search: Search, mlruns: Path) -> Path:
    return mlruns / "store" / f"{search.scale.name}-{search.name}.started"
