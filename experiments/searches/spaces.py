"""Declare searches of settings that no claim is about, by dev scores only, on seeds that only the study `search` has.

A search without a number of trials tries every combination once, as RankCSE's authors did. Any other search draws
settings with Optuna's sampler, and ASHA stops the worse trials. Compare methods by their expected maximum after the
same number of trials.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from cse_core.evaluation.scorers import Cosine
from cse_core.lookup import look_up, unknown
from cse_core.run import Run
from cse_core.space import LogUniform, with_settings
from experiments.execution.job import Job, Scoring
from experiments.execution.plan import required_jobs
from experiments.schema.recipes import present, rankcse_run, simcse_run
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES, SEARCH_SEEDS
from experiments.schema.study import Scale

PUBLISHED_RATE = 3e-5  # the published learning rate, which a scale may replace
TRIALS = 24


Space = Mapping[str, LogUniform | tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search over a space of settings of one run: `trials` draws, or every combination if `trials` is 0."""

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
            raise ValueError(f"search {self.name}: a grid needs values for {', '.join(ranges)}, got a range")
        for settings in self.combinations():
            self.jobs(settings)  # raises the run's own error for invalid settings

    @property
    def default_settings(self) -> dict[str, float]:
        """The settings of the studies, which a sampled search tries first."""
        settings = self.start.settings()
        return {name: settings[name] for name in self.space}

    def combinations(self) -> list[dict[str, float]]:
        """Return every combination of the space's values; for a range, of its two ends."""
        values = [(v.low, v.high) if isinstance(v, LogUniform) else v for v in self.space.values()]
        return [dict(zip(self.space, chosen, strict=True)) for chosen in product(*values)]

    def holds(self, settings: Mapping[str, float]) -> bool:
        """Return whether settings lie in this space; recorded ones may come from an earlier declaration."""
        return settings.keys() == self.space.keys() and all(
            values.low <= settings[name] <= values.high if isinstance(values, LogUniform) else settings[name] in values
            for name, values in self.space.items()
        )

    def jobs(self, settings: Mapping[str, float]) -> tuple[Job, ...]:
        """Return a job for each seed, which trains, selects by the scale's dev set and scores nothing else."""
        run = with_settings(self.start, settings)
        label = " ".join(f"{name}={value:.3g}" for name, value in settings.items())
        selected = (Scoring(self.scale.dev, Cosine(), ()),)
        return tuple(
            Job(replace(run, seed=seed), self.scale.name, f"search {self.name} {label}", selected)
            for seed in self.seeds
        )

    def nested_jobs(self) -> list[Job]:
        """Return the jobs of teachers and bases, which come before any trial, in an order of training."""
        # Scored on dev, to verify that the weights give the recorded score.
        return required_jobs(self.start, self.scale.name, (self.scale.dev,))


def distributions(space: Space) -> dict[str, Any]:
    """Return a space as Optuna's distributions."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution  # lazy: slow import

    return {
        name: FloatDistribution(v.low, v.high, log=True) if isinstance(v, LogUniform) else CategoricalDistribution(v)
        for name, v in space.items()
    }


def settings_text(settings: Mapping[str, float]) -> str:
    """Return settings as text, as in the record."""
    return json.dumps(dict(sorted(settings.items())))


def _rankcse(rank: str, trials: int) -> Callable[[Scale], Search]:
    """Return a search of RankCSE's temperatures (Table 9) and its two learning rates, or a range around them."""
    name = f"rankcse-{rank.replace('_', '')}" + ("" if trials else "-grid")

    def at(scale: Scale) -> Search:
        start = present(rankcse_run(scale, BASE, rank))
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
    """Return the range from a tenth of a learning rate to ten thirds of it."""
    return LogUniform(rate / 10, rate * 10 / 3)


def simcse(scale: Scale) -> Search:
    """Return a search for the baseline with as many trials and the temperatures of its ablation (Gao et al., 2021)."""
    start = present(simcse_run(scale, BASE))
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
    """Return the searches of the given names: a search, or a method for all of its searches."""
    size = look_up("scale", scale, SCALES)
    chosen: dict[str, Callable[[Scale], Search]] = {}
    if not names:
        raise ValueError(f"no name of a search; known: all, rankcse, {', '.join(SEARCHES)}")
    for name in names:
        matching = {key: make for key, make in SEARCHES.items() if name in (key.partition("-")[0], "all")}
        matching = {name: SEARCHES[name]} if name in SEARCHES else matching
        if not matching:
            raise unknown("search", name, ["all", "rankcse", *SEARCHES])
        chosen |= matching
    return [make(size) for make in chosen.values()]
