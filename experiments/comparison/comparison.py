"""Define comparisons with equal tuning: which settings are drawn, which runs they need, which win. Nothing trains here.

Each method has several independent searches. A search draws `trials` settings and trains each once, with its own seed.
The best quarter by dev score is trained with `MORE_SEEDS` further seeds, and the settings with the highest mean dev
score win the search. The finals train each winner with fresh seeds, and only they are scored on the tasks. The
published settings are trained with as many fresh seeds, for a row next to the tuned ones.

Teachers and bases that are the baseline have the settings that won the baseline's search of the same number. So it is
tuned there too, and such methods are drawn after the baseline's searches.

A comparison on another encoder can take the settings that won here over (`transfers`). Then nothing is drawn: a search
tries the settings that won the search of its number, with a third, once and three times their learning rate.

All trials follow from the comparison and from earlier dev scores. So a comparison resumes from the record alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.run import Run, parts_of
from cse_core.space import SCORING_WEIGHT, LogUniform, Values, with_settings
from cse_core.training.selection import dev_sets
from experiments.execution.job import Job
from experiments.execution.plan import merge_jobs, required_jobs
from experiments.results.stored_scores import Scoring
from experiments.schema.rows import rank_scorer
from experiments.schema.study import Scale, check_name, replace_runs, with_seed

SAMPLERS = ("random", "tpe")
TRIAL_SEEDS, FINAL_SEEDS = 401, 801  # the first of each; no study uses these
MORE_SEEDS = 2  # of the settings that a search promotes
RATES = (1 / 3, 1.0, 3.0)  # times the learning rate of settings from another comparison
PUBLISHED = -1  # in place of a search's number: the published settings
Settings = Mapping[str, Any]
Address = tuple[str, str]  # a run's key, and how its pairs are scored


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What each method gets: independent searches, trials of each, and fresh seeds of each winner."""

    trials: int = 16
    searches: int = 4
    finals: int = 8

    @property
    def promoted(self) -> int:
        """How many settings of a search get more seeds."""
        return max(1, self.trials // 4)

    @property
    def more_seeds(self) -> int:
        """How many further seeds these settings get: none if there is one of them, which would win anyway."""
        return MORE_SEEDS if self.promoted > 1 else 0

    @property
    def runs(self) -> int:
        """The number of a method's runs, without teachers and bases."""
        return self.searches * (self.trials + self.promoted * self.more_seeds + self.finals) + self.finals


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A method to compare: its run with the published settings, and the space in which it is tuned.

    `published` has the settings that the published row adds to this run: how pairs are scored, what the space fixes.
    """

    name: str
    start: Run
    space: Mapping[str, Values]
    published: Settings = field(default_factory=dict)
    file: str = ""  # of the user's own method


@dataclass(frozen=True)
class Trial:
    """A training run: the settings that a search of a method drew, or the published ones, and a seed."""

    entrant: Entrant
    search: int
    settings: Settings
    run: Run
    scorer: Scorer  # by cosine, or also by ranks if the settings say so

    def with_seed(self, seed: int) -> "Trial":
        """Return the trial of the same settings, teachers and bases with another seed."""
        return replace(self, run=replace(self.run, seed=seed))

    @property
    def of_search(self) -> str:
        """The search that it belongs to, in words."""
        return "published" if self.search == PUBLISHED else f"search {self.search + 1}"

    @property
    def address(self) -> Address:
        return self.run.key, str(self.scorer)

    @cached_property
    def alike(self) -> Address:
        """What trials of equal settings share, whatever their seeds."""
        return self.with_seed(0).address


@dataclass(frozen=True)
class Scores:
    """Dev scores by address, and the keys of runs that diverged or whose dev score is undefined."""

    by_address: Mapping[Address, float]
    failed: frozenset[str] = frozenset()

    def of(self, trial: Trial) -> float | None:
        """Return a trial's dev score; None if it failed or has not ended."""
        return self.by_address.get(trial.address)

    def has_ended(self, trial: Trial) -> bool:
        """Return whether a trial has a dev score or failed."""
        return trial.address in self.by_address or trial.run.key in self.failed


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Methods to compare at a scale, with the same budget for each. The first is the baseline.

    `measures` has the scores of the finals: by name, the tasks whose mean it is. The first measure decides. `transfers`
    is the comparison of these methods on another encoder whose settings are tried here.
    """

    name: str
    scale: Scale
    entrants: tuple[Entrant, ...]
    measures: Mapping[str, tuple[str, ...]]
    dev: str
    budget: Budget = field(default_factory=Budget)
    sampler: str = "random"
    margin: float = 0.5  # points
    tested: tuple[str, ...] = ()  # methods whose gains are tested together; empty: all but the baseline
    nested_seeds: tuple[int, ...] = (42, 1)  # of teachers and bases: each search takes the next one
    transfers: "Comparison | None" = None

    def __post_init__(self) -> None:
        check_name("comparison", self.name)
        names = [entrant.name for entrant in self.entrants]
        if len(set(names)) < max(2, len(names)):
            raise ValueError(f"a comparison needs two or more different methods, got {', '.join(names) or 'none'}")
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, got {self.sampler!r}")
        if unknown := set(self.tested) - set(names[1:]):
            raise ValueError(f"tested must name methods beside the baseline, {', '.join(names[1:])}; got {unknown}")
        if not dev_sets(self.dev):
            raise ValueError(f"a comparison selects by dev scores, and {self.dev!r} has none")
        if self.transfers:
            self._check_transfer(self.transfers)

    def _check_transfer(self, other: "Comparison") -> None:
        if (self.budget.trials, self.budget.searches) != (len(RATES), other.budget.searches):
            wish = f"{len(RATES)} trials and {other.budget.searches} searches"
            raise ValueError(f"comparison {self.name} tries the settings of {other.name}: expected {wish}")
        names = [each.name for each in other.entrants if "learning_rate" in each.space]
        if wrong := [e.name for e in self.entrants if e.name not in names or "learning_rate" not in e.space]:
            raise ValueError(
                f"comparison {self.name}: {', '.join(wrong)}: expected methods of {other.name} that search the "
                "learning rate"
            )

    @cached_property
    def block(self) -> int:
        """The number of seeds that a search uses."""
        return self.budget.trials + self.budget.more_seeds

    def trial(
        self,
        entrant: Entrant,
        search: int,
        settings: Settings,
        seed: int,
        *,
        turn: int = 0,
        tuned: Settings | None = None,
    ) -> Trial:
        """Return the trial of settings and a seed. Teachers and bases that are the baseline have the settings `tuned`.

        `turn` chooses the seed of teachers and bases.
        """
        nested = self.nested_seeds[turn % len(self.nested_seeds)]
        try:
            run = with_settings(entrant.start, settings)
            if tuned:
                new = {old: with_settings(old, tuned) for old in run.nested() if self._is_baseline(old)}
                run = replace(run, method=replace_runs(run.method, new))
            run = with_seed(run, nested, nested=True)
        except ValueError as error:
            raise ValueError(f"method {entrant.name}, settings {settings_text(settings)}: {error}") from error
        weight = settings.get(SCORING_WEIGHT, 0.0)
        scorer = rank_scorer(self.scale, weight=weight) if weight else Cosine()
        return Trial(entrant, search, settings, replace(run, seed=seed), scorer)

    @cached_property
    def _drawn(self) -> dict[tuple[str, int, str], list[Trial]]:
        """A cache of the searches' draws, for the sampler that does not depend on a search's own scores."""
        return {}

    def _is_baseline(self, run: Run) -> bool:
        baseline = self.entrants[0].start
        return replace(run, seed=baseline.seed) == baseline

    def needs_baseline(self, entrant: Entrant) -> bool:
        """Return whether teachers or bases of a method can be the baseline; it is then drawn after the baseline."""
        settings = (entrant.start.method, tuple(entrant.space.values()))
        return any(self._is_baseline(run) for run, _ in parts_of(settings, Run))

    def has_chosen(self, entrant: Entrant, scores: Scores) -> bool:
        """Return whether all trials of a method's searches have ended, also those with more seeds."""
        trials = [trial for stage in STAGES[:-1] for trial in self.stage(stage, scores, (entrant,))]
        return bool(trials) and all(map(scores.has_ended, trials))

    def has_settings(self, entrant: Entrant, scores: Scores) -> bool:
        """Return whether the settings to try are known: they are drawn, or have won in the comparison before."""
        other = self.transfers
        return not other or other.has_chosen(_named(entrant.name, other.entrants), scores)

    def draws(self, entrant: Entrant, search: int, scores: Scores) -> list[Trial]:
        """Return a search's trials so far: with `random` all of them, with `tpe` one more than have a score.

        With settings of another comparison there are none until it has chosen, or if its search has no winner.
        """
        winner = self.selected(self.entrants[0], search, scores) if self.needs_baseline(entrant) else None
        tuned = winner[0] if winner else None
        if self.transfers:
            return self._transferred(self.transfers, entrant, search, scores, tuned)
        if self.sampler != "random":
            return self._draw(entrant, search, scores, tuned)
        address = entrant.name, search, settings_text(tuned or {})
        if address not in self._drawn:
            self._drawn[address] = self._draw(entrant, search, scores, tuned)
        return list(self._drawn[address])

    def _draw(self, entrant: Entrant, search: int, scores: Scores, tuned: Settings | None) -> list[Trial]:
        import optuna  # lazy: slow import

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Each search of each method has its own random stream; `hash` would differ between processes.
        seed = int(sha256(f"{entrant.name} {search}".encode()).hexdigest()[:8], 16)
        kind = optuna.samplers.TPESampler if self.sampler == "tpe" else optuna.samplers.RandomSampler
        study = optuna.create_study(direction="maximize", sampler=kind(seed=seed))
        space, trials = _distributions(entrant.space), []
        for i in range(self.budget.trials):
            asked = study.ask(space)
            settings = {name: _chosen(entrant.space[name], value) for name, value in asked.params.items()}
            seed = TRIAL_SEEDS + self.block * search + i
            trials.append(self.trial(entrant, search, settings, seed, turn=search, tuned=tuned))
            if self.sampler == "random":
                continue
            if not scores.has_ended(trials[-1]):
                break
            score = scores.of(trials[-1])
            study.tell(asked, score, state=None if score is not None else optuna.trial.TrialState.FAIL)
        return trials

    def _transferred(
        self, other: "Comparison", entrant: Entrant, search: int, scores: Scores, tuned: Settings | None
    ) -> list[Trial]:
        theirs = _named(entrant.name, other.entrants)
        winner = other.selected(theirs, search, scores) if self.has_settings(entrant, scores) else None
        if winner is None:
            return []
        won, first = _at_same_places(winner[0], theirs.space, entrant.space), TRIAL_SEEDS + self.block * search
        every = [{**won, "learning_rate": rate * won["learning_rate"]} for rate in RATES]
        return [
            self.trial(entrant, search, settings, first + i, turn=search, tuned=tuned)
            for i, settings in enumerate(every)
        ]

    def promotions(self, entrant: Entrant, search: int, scores: Scores) -> list[Trial]:
        """Return the further trials of a search's best settings; none if a single one is promoted, or nothing ended."""
        return self._promoted(entrant, search, scores, self.draws(entrant, search, scores))

    def _promoted(self, entrant: Entrant, search: int, scores: Scores, draws: Sequence[Trial]) -> list[Trial]:
        first = TRIAL_SEEDS + self.block * search + self.budget.trials
        ended = [trial for trial in draws if scores.of(trial) is not None]
        best: dict[Address, Trial] = {}  # by settings, of which a space of choices may draw some again
        for trial in sorted(ended, key=lambda trial: -(scores.of(trial) or 0.0)):
            best.setdefault(trial.alike, trial)
        seeds = range(first, first + self.budget.more_seeds)
        return [trial.with_seed(seed) for trial in list(best.values())[: self.budget.promoted] for seed in seeds]

    def selected(self, entrant: Entrant, search: int, scores: Scores) -> tuple[Settings, float] | None:
        """Return a search's winner and its mean dev score over the seeds; None if every trial failed."""
        tried: dict[Address, list[Trial]] = {}
        draws = self.draws(entrant, search, scores)
        promoted = self._promoted(entrant, search, scores, draws)
        several = {trial.alike for trial in promoted}
        for trial in (*draws, *promoted):
            if not several or trial.alike in several:
                tried.setdefault(trial.alike, []).append(trial)
        means = [
            (trials[0].settings, sum(values) / len(values))
            for trials in tried.values()
            if (values := [score for trial in trials if (score := scores.of(trial)) is not None])
            and len(values) == len(trials)
        ]
        return max(means, key=lambda each: each[1], default=None)

    def finals(self, entrant: Entrant, search: int, scores: Scores) -> list[Trial]:
        """Return the trials of a search's winner, or of the published settings, with fresh seeds."""
        first = max(FINAL_SEEDS, TRIAL_SEEDS + self.block * self.budget.searches) + self.budget.finals * (search + 1)
        seeds = range(first, first + self.budget.finals)
        if search == PUBLISHED:
            # They have the first two seeds of teachers and bases in turn, however many searches there are.
            return [self.trial(entrant, search, entrant.published, seed, turn=i % 2) for i, seed in enumerate(seeds)]
        winner = self.selected(entrant, search, scores)
        if winner is None:
            return []
        won = next(trial for trial in self.draws(entrant, search, scores) if trial.settings == winner[0])
        return [won.with_seed(seed) for seed in seeds]

    def stage(self, name: str, scores: Scores, entrants: Sequence[Entrant] = ()) -> list[Trial]:
        """Return a stage's trials of all or some entrants; the stages before it must have ended."""
        searches = range(PUBLISHED, self.budget.searches) if name == "finals" else range(self.budget.searches)
        trials_of = {"trials": self.draws, "promotions": self.promotions, "finals": self.finals}[name]
        return [t for each in entrants or self.entrants for search in searches for t in trials_of(each, search, scores)]

    def jobs(self, trials: Sequence[Trial], *, final: bool) -> dict[str, Job]:
        """Return the jobs of trials, and of their teachers and bases; only finals are scored on the tasks."""
        scored = [task for tasks in self.measures.values() for task in tasks] if final else []
        tasks = tuple(dict.fromkeys((*dev_sets(self.dev), *scored)))
        groups: list[dict[str, Job]] = []
        for trial in trials:
            nested = required_jobs(trial.run, self.scale.name, dev_sets(self.scale.dev), (self.name,))
            # Finals whose pairs are scored by ranks are also scored by the cosine, which shows what training gains.
            scorers = dict.fromkeys((trial.scorer, Cosine()) if final else (trial.scorer,))
            job = Job(
                trial.run,
                self.scale.name,
                f"{trial.entrant.name} {trial.of_search}",
                tuple(Scoring(self.dev, scorer, tasks) for scorer in scorers),
                (self.name,),
                trial.entrant.file,
                keeps_weights=final,
            )
            groups.append({each.key: replace(each, file=trial.entrant.file) for each in nested} | {job.key: job})
        return merge_jobs(groups)


STAGES = ("trials", "promotions", "finals")


def settings_text(settings: Settings) -> str:
    """Return settings as sorted JSON; a teacher is its backbone's name, its weight, and what else is special."""
    return json.dumps(dict(sorted(settings.items())), default=_text)


def value_text(value: Any) -> str:
    """Return a setting's value in words; teachers are named with their weights."""
    return " and ".join(_text(item).removesuffix(" 1") for item in (value if isinstance(value, tuple) else (value,)))


def _text(value: Any) -> str:
    encoder = getattr(value, "encoder", None)
    if encoder is None:
        return str(value)
    method = encoder.method.name if isinstance(encoder, Run) and encoder.method.name != "simcse" else ""
    special = [part for part in (method, str(value.scorer or "")) if part]
    words = f"{getattr(encoder, 'backbone', encoder).name} {value.weight:.3g}"
    return f"{words} ({', '.join(special)})" if special else words


def _named(name: str, entrants: Sequence[Entrant]) -> Entrant:
    return next(entrant for entrant in entrants if entrant.name == name)


def _at_same_places(settings: Settings, theirs: Mapping[str, Values], ours: Mapping[str, Values]) -> dict[str, Any]:
    """Return settings from one space at the same places of another; what the other does not search is left out.

    A choice becomes the choice at its place in the list, and a number is scaled as its range is.
    """
    moved: dict[str, Any] = {}
    for name, value in settings.items():
        before, after = theirs[name], ours.get(name)
        if isinstance(before, LogUniform) and isinstance(after, LogUniform):
            moved[name] = value * (after.low / before.low)
        elif isinstance(before, tuple) and isinstance(after, tuple):
            moved[name] = after[before.index(value)]
    return moved


def _distributions(space: Mapping[str, Values]) -> dict[str, Any]:
    """Return a space as Optuna's distributions; of a list of choices, the index is drawn."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution  # lazy: slow import

    return {
        name: FloatDistribution(values.low, values.high, log=True)
        if isinstance(values, LogUniform)
        else CategoricalDistribution(range(len(values)))
        for name, values in space.items()
    }


def _chosen(values: Values, drawn: Any) -> Any:
    return drawn if isinstance(values, LogUniform) else values[drawn]
