"""Make the block of searches: their trials, the expected best of k trials, and the importance of each setting."""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.report.blocks import block
from analysis.report.formats import number, table
from analysis.stats import significance
from experiments.schema.scales import SCALES
from experiments.searches.spaces import SEARCHES, Search, distributions, settings_text

FEWEST = 30  # finished trials needed to estimate importances; with fewer, a random forest fits noise


@dataclass(frozen=True)
class SearchTrials:
    """A declared search and its lines of searches.csv."""

    search: Search
    lines: pd.DataFrame

    @property
    def scored_trials(self) -> pd.DataFrame:
        """The trials with a score in points, the best first; a stopped trial has the score it had reached."""
        trials = self.lines.dropna(subset="score").sort_values(["score", "trial"], ascending=[False, True])
        return trials.assign(score=100 * trials["score"])

    @property
    def finished_trials(self) -> pd.DataFrame:
        """The trials that were not stopped."""
        return self.scored_trials[self.scored_trials["state"] == "finished"]

    def expected_best(self) -> np.ndarray:
        """Return the expected best score of k trials drawn from these, for k = 1 to all."""
        return significance.expected_maximum(self.scored_trials["score"].tolist())

    def start(self) -> float | None:
        """Return the score of the studies' settings, if they are among the trials."""
        score = self.finished_trials.loc[
            self.finished_trials["trial"] == settings_text(self.search.default_settings), "score"
        ]
        return None if score.empty else float(score.iloc[0])

    def importances(self) -> dict[str, float]:
        """Return each setting's share of the variance of scores; empty if there are too few finished trials.

        The method is functional ANOVA of a random forest on finished trials (Hutter, Hoos and Leyton-Brown, ICML 2014).
        """
        trials = self.finished_trials
        if len(trials) < FEWEST or trials["score"].nunique() < 2:
            return {}
        import optuna  # lazy: slow import

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        space, study = distributions(self.search.space), optuna.create_study(direction="maximize")
        for text, score in zip(trials["trial"], trials["score"], strict=True):
            trial = optuna.trial.create_trial(params=json.loads(text), distributions=space, value=score)
            study.add_trial(trial)
        judge = optuna.importance.FanovaImportanceEvaluator(seed=0)
        shares = optuna.importance.get_param_importances(study, evaluator=judge)
        return {name: shares[name] for name in self.search.space if name in shares}


def searches_with_trials(lines: pd.DataFrame, scale: str) -> list[SearchTrials]:
    """Return the declared searches that have trials at a scale."""
    searches = [SearchTrials(make(SCALES[scale]), lines[lines["search"] == name]) for name, make in SEARCHES.items()]
    return [search for search in searches if len(search.scored_trials)]


@block("searches", of=lambda ask: (ask.record.searches(ask.scale), ask.scale))
def searches_block(lines: pd.DataFrame, scale: str) -> str:
    """Return a table with a line for each search, as Markdown."""
    searches = searches_with_trials(lines, scale)
    if not searches:
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
    return table(header, map(_search_line, searches))


def _search_line(searched: SearchTrials) -> tuple[str, ...]:
    states = searched.lines["state"].value_counts()
    best, expected = searched.finished_trials.head(1), searched.expected_best()
    settings = json.loads(str(best["trial"].iloc[0])) if len(best) else {}
    return (
        searched.search.name,
        str(len(searched.lines)),
        *(str(states.get(state, 0)) for state in ("stopped", "failed")),
        number(searched.start()),
        number(best["score"].iloc[0] if len(best) else None),
        ", ".join(f"{name} {value:.3g}" for name, value in settings.items()) or "–",
        number(float(expected[5]) if len(expected) > 5 else None),
        ", ".join(f"{name} {100 * share:.0f} %" for name, share in searched.importances().items()) or "–",
    )
