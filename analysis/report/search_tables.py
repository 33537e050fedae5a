"""What searches found on dev: their trials, the best expected of so many, and how much each setting mattered."""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.report.formats import Grid, markdown
from analysis.stats import significance
from experiments.schema.scales import SCALES
from experiments.search.spaces import SEARCHES, Search, distributions, settings_text

FEWEST = 6  # finished trials from which importances are told


@dataclass(frozen=True)
class Searched:
    """A declared search and its lines of searches.csv."""

    search: Search
    lines: pd.DataFrame

    @property
    def scored(self) -> pd.DataFrame:
        """The trials with a score, the best first, in points; a stopped one's is what it had reached."""
        scored = self.lines.dropna(subset="score").sort_values(["score", "trial"], ascending=[False, True])
        return scored.assign(score=100 * scored["score"])

    @property
    def finished(self) -> pd.DataFrame:
        """The same without those that were stopped."""
        return self.scored[self.scored["state"] == "finished"]

    def expected_best(self) -> np.ndarray:
        """Of k trials drawn from these, for k = 1 to all."""
        return significance.expected_maximum(self.scored["score"].tolist())

    def start(self) -> float | None:
        """The score of the settings that the study has, where they are among the trials."""
        found = self.finished.loc[self.finished["trial"] == settings_text(self.search.own), "score"]
        return None if found.empty else float(found.iloc[0])

    def importances(self) -> dict[str, float]:
        """Each setting's share of the scores' variance, by functional ANOVA of a random forest over finished trials.

        (Hutter, Hoos and Leyton-Brown, ICML 2014.) Empty where there are too few trials to say.
        """
        trials = self.finished
        if len(trials) < FEWEST or trials["score"].nunique() < 2:
            return {}
        import optuna  # lazy: slow import

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        space, study = distributions(self.search.space), optuna.create_study(direction="maximize")
        for text, score in zip(trials["trial"], trials["score"], strict=True):
            trial = optuna.trial.create_trial(params=json.loads(text), distributions=space, value=score)
            study.add_trial(trial)
        judge = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found = optuna.importance.get_param_importances(study, evaluator=judge)
        return {name: found[name] for name in self.search.space if name in found}


def searched(lines: pd.DataFrame, scale: str) -> list[Searched]:
    """The declared searches that have trials at a scale."""
    found = [Searched(make(SCALES[scale]), lines[lines["search"] == name]) for name, make in SEARCHES.items()]
    return [one for one in found if len(one.scored)]


def searches_block(lines: pd.DataFrame, scale: str) -> str:
    """A line for each search, as Markdown."""
    found = searched(lines, scale)
    if not found:
        return f"Not searched yet at scale {scale}."
    header = (
        "search",
        "trials",
        "stopped",
        "failed",
        "the study's",
        "best on dev",
        "its settings",
        "expected of 6",
        "importance",
    )
    return markdown(Grid("", header, tuple(_line(one) for one in found)))


def _line(one: Searched) -> tuple[str, ...]:
    states = one.lines["state"].value_counts()
    best, expected = one.finished.head(1), one.expected_best()
    settings = json.loads(str(best["trial"].iloc[0])) if len(best) else {}
    return (
        one.search.name,
        str(len(one.lines)),
        *(str(states.get(state, 0)) for state in ("stopped", "failed")),
        "–" if (own := one.start()) is None else f"{own:.2f}",
        f"{best['score'].iloc[0]:.2f}" if len(best) else "–",
        ", ".join(f"{name} {value:.3g}" for name, value in settings.items()) or "–",
        f"{expected[5]:.2f}" if len(expected) > 5 else "–",
        ", ".join(f"{name} {100 * share:.0f} %" for name, share in one.importances().items()) or "–",
    )
