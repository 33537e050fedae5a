"""Searches of nuisance settings, those that no claim is about: on dev scores alone, over seeds that no study reports.

A search without a number of trials takes every combination once, as RankCSE's authors did; any other asks Optuna's
sampler, and ASHA stops what falls behind. Compare methods by what they reach after equally many trials (the curve of
the expected maximum).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from cse_core.evaluation.scorers import Cosine
from cse_core.lookup import look_up, unknown
from cse_core.method import with_fields
from cse_core.run import Run
from experiments.execution.job import Job, Scoring
from experiments.schema.recipes import rankcse_run, simcse_run
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES, SEARCH_SEEDS
from experiments.schema.study import Scale

PUBLISHED_RATE = 3e-5  # what a scale's learning rate stands for
TRIALS = 24


@dataclass(frozen=True)
class LogUniform:
    """Any number from `low` to `high`, evenly on a logarithmic scale."""

    low: float
    high: float


Space = Mapping[str, LogUniform | tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of one run by name, each with the values it may have, `trials` of them; without trials, all."""

    name: str
    source: str
    scale: Scale
    start: Run
    space: Space
    trials: int = 0
    seeds: tuple[int, ...] = SEARCH_SEEDS

    def __post_init__(self) -> None:
        ranges = [name for name, values in self.space.items() if isinstance(values, LogUniform)]
        if ranges and not self.trials:
            raise ValueError(f"search {self.name}: a grid wants values for {', '.join(ranges)}, got a range")
        for settings in self.combinations():
            self.jobs(settings)  # a run's own words where it can't have such settings

    @property
    def evaluations(self) -> int:
        """Dev scores of one training."""
        lines = self.scale.corpus.lines * self.start.epochs
        return max(1, lines // self.start.batch_size // self.start.eval_steps)

    @property
    def own(self) -> dict[str, float]:
        """The study's settings, which a sampled search begins with."""
        settings = self.start.settings()
        return {name: settings[name] for name in self.space}

    def combinations(self) -> list[dict[str, float]]:
        """Every combination of the space's values, of a range its ends."""
        values = [(v.low, v.high) if isinstance(v, LogUniform) else v for v in self.space.values()]
        return [dict(zip(self.space, chosen, strict=True)) for chosen in product(*values)]

    def holds(self, settings: Mapping[str, float]) -> bool:
        """Whether settings are of this space, which may have been declared otherwise when they were tried."""
        return settings.keys() == self.space.keys() and all(
            values.low <= settings[name] <= values.high if isinstance(values, LogUniform) else settings[name] in values
            for name, values in self.space.items()
        )

    def jobs(self, settings: Mapping[str, float]) -> tuple[Job, ...]:
        """A training for each seed, kept by the scale's dev set, with nothing else scored."""
        of_run = {field.name for field in fields(Run)}
        method = with_fields(self.start.method, **{k: v for k, v in settings.items() if k not in of_run})
        run = replace(self.start, method=method, **{k: v for k, v in settings.items() if k in of_run})
        label = " ".join(f"{name}={value:.3g}" for name, value in settings.items())
        return tuple(self._job(replace(run, seed=seed), f"search {self.name} {label}") for seed in self.seeds)

    def nested(self) -> list[tuple[Job, ...]]:
        """What must be trained before any trial, in levels that need only earlier ones."""
        rules: dict[Run, list[str]] = {}
        deep: dict[Run, int] = {}

        def need(run: Run) -> int:
            for one, rule in run.nested_checkpoints():
                rules.setdefault(one, []).append(rule)
                deep[one] = need(one)
            return 1 + max((deep[one] for one, _ in run.nested_checkpoints()), default=-1)

        need(self.start)
        jobs = {
            one: self._job(one, f"{one.method.name} {one.backbone.name}", *rules[one], tasks=(self.scale.dev,))
            for one in deep  # scored on dev, as the record has it: weights must give the recorded score
        }
        return [tuple(jobs[one] for one in deep if deep[one] == level) for level in sorted(set(deep.values()))]

    def _job(self, run: Run, label: str, *rules: str, tasks: tuple[str, ...] = ()) -> Job:
        kept = dict.fromkeys(rules or (self.scale.dev,))
        return Job(run, self.scale.name, label, tuple(Scoring(rule, Cosine(), tasks) for rule in kept))


def distributions(space: Space) -> dict[str, Any]:
    """A space in Optuna's terms."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution  # lazy: slow import

    return {
        name: FloatDistribution(v.low, v.high, log=True) if isinstance(v, LogUniform) else CategoricalDistribution(v)
        for name, v in space.items()
    }


def settings_text(settings: Mapping[str, float]) -> str:
    """Settings as the record names them."""
    return json.dumps(dict(sorted(settings.items())))


def _rankcse(rank: str, trials: int) -> Callable[[Scale], Search]:
    """Temperatures of RankCSE's grid (Table 9); its two learning rates, or what lies around them."""
    name = f"rankcse-{rank.replace('_', '')}" + ("" if trials else "-grid")

    def at(scale: Scale) -> Search:
        start = rankcse_run(scale, BASE, rank)
        assert start  # every scale has something for BERT-base
        rate = scale.training.get("learning_rate", PUBLISHED_RATE)
        grid = (0.0125, 0.025, 0.05)
        space: dict[str, Any] = {"learning_rate": learning_rate_range(rate) if trials else (rate * 2 / 3, rate)}
        space["student_temperature"] = grid
        if rank == "list_net":
            space["teacher_temperature"] = grid
        source = "RankCSE, App. B" if not trials else "this project, after RankCSE, App. B"
        return Search(name=name, source=source, scale=scale, start=start, space=space, trials=trials)

    return at


def learning_rate_range(rate: float) -> LogUniform:
    """A tenth of a learning rate to ten thirds of it."""
    return LogUniform(rate / 10, rate * 10 / 3)


def simcse(scale: Scale) -> Search:
    """As many trials for the baseline; temperatures from SimCSE's own ablation (Gao et al., EMNLP 2021)."""
    start = simcse_run(scale, BASE)
    assert start  # every scale has something for BERT-base
    space: dict[str, Any] = {
        "learning_rate": learning_rate_range(start.learning_rate),
        "temperature": (0.01, 0.05, 0.1),
    }
    return Search(name="simcse", source="this project", scale=scale, start=start, space=space, trials=TRIALS)


SEARCHES: dict[str, Callable[[Scale], Search]] = {
    "simcse": simcse,
    "rankcse-listnet": _rankcse("list_net", TRIALS),
    "rankcse-listmle": _rankcse("list_mle", TRIALS),
    "rankcse-listnet-grid": _rankcse("list_net", 0),
    "rankcse-listmle-grid": _rankcse("list_mle", 0),
}


def choose_searches(names: Sequence[str], scale: str) -> list[Search]:
    """The searches of the given names: a search, or a method for all of its searches."""
    size = look_up("scale", scale, SCALES)
    found: dict[str, Callable[[Scale], Search]] = {}
    if not names:
        raise ValueError(f"no name of a search; known: all, rankcse, {', '.join(SEARCHES)}")
    for name in names:
        mine = {one: make for one, make in SEARCHES.items() if name in (one.partition("-")[0], "all")}
        mine = {name: SEARCHES[name]} if name in SEARCHES else mine
        if not mine:
            raise unknown("search", name, ["all", "rankcse", *SEARCHES])
        found |= mine
    return [make(size) for make in found.values()]
