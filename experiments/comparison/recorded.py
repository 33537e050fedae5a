"""Read a comparison's dev scores, failures and measures of the finals from the record, and add its trials."""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from cse_core.data import own_pairs
from cse_core.data.atomic_write import atomic_write
from cse_core.evaluation.suite import find_task
from cse_core.training.selection import dev_sets
from experiments.comparison.comparison import Address, Comparison, Scores, Trial, settings_text
from experiments.results import csv_record
from experiments.results.provenance import commit

DIVERGED, FINISHED = "failed", "finished"  # states of a line of searches.csv


def read_scores(comparison: Comparison, mlruns: Path, failed: Collection[str] = ()) -> tuple[pd.DataFrame, Scores]:
    """Return the recorded results, and their dev scores and failures, together with the failures in `failed`."""
    scale = comparison.scale.name
    results = csv_record.read_results(scale, mlruns)
    scores = dev_scores(comparison, results, csv_record.read_searches(scale, mlruns))
    return results, Scores(scores.by_address, scores.failed | frozenset(failed))


def dev_scores(comparison: Comparison, results: pd.DataFrame, searches: pd.DataFrame) -> Scores:
    """Return the dev scores of the runs selected by the comparison's rule, and the runs that failed.

    Both are also those of the comparison whose settings this one tries.
    """
    names = tuple(f"{each.name} " for each in (comparison, comparison.transfers) if each)
    own = searches[searches["search"].str.startswith(names)]
    failed = frozenset(own.loc[own["state"] == DIVERGED, "keys"])
    return Scores(means_of(comparison, results, dev_sets(comparison.dev)), failed)


def means_of(comparison: Comparison, results: pd.DataFrame, tasks: tuple[str, ...]) -> dict[Address, float]:
    """Return the mean over tasks of their main metric in points, for each run and scorer that has all of them."""
    metrics = {(name, task.metrics[0]) for name in tasks if (task := find_task(name))}
    lines = results[(results["select"] == comparison.dev) & results["task"].isin(tasks) & results["score"].notna()]
    wanted = [pair in metrics for pair in zip(lines["task"], lines["metric"], strict=True)]
    # Of several versions of an evaluator, the last one.
    lines = (
        lines[np.array(wanted, dtype=bool)]
        .sort_values("version")
        .drop_duplicates(["key", "scorer", "task"], keep="last")
    )
    grouped = lines.groupby(["key", "scorer"])["score"].agg(["mean", "count"])
    complete = grouped[grouped["count"] == len(tasks)]["mean"]
    return {(str(key), str(scorer)): 100 * float(mean) for (key, scorer), mean in complete.items()}


def check_inputs(comparison: Comparison, mlruns: Path) -> None:
    """Refuse to mix a comparison's record, and its report, with those of other inputs; remember the inputs."""
    backbone, corpus = comparison.entrants[0].start.backbone, comparison.scale.corpus
    now = {  # what identifies each, and its name
        "scale": [comparison.scale.name] * 2,
        "encoder": [backbone.identity, backbone.name],
        "corpus": [corpus.identity, str(corpus)],
        "dev set": [own_pairs.pairs_of(comparison.dev), comparison.dev],
    }
    file = mlruns / "inputs.json"
    known = json.loads(file.read_text()) if file.is_file() else {}
    before = known.get(comparison.name, now)
    for what, (identity, name) in now.items():
        if before[what][0] != identity:
            raise ValueError(
                f"comparison {comparison.name}: {mlruns} has one of this name with another {what}, {before[what][1]}, "
                f"got {name}; expected another --name"
            )
    if comparison.name not in known:
        atomic_write(file, json.dumps({**known, comparison.name: now}, indent=1) + "\n")


def record_trials(
    comparison: Comparison, trials: Iterable[Trial], scores: Scores, failed: Collection[str], mlruns: Path
) -> None:
    """Add trials to searches.csv: those with a dev score, and those that failed for good, by their keys in `failed`."""
    ended = [trial for trial in trials if scores.of(trial) is not None or trial.run.key in failed]
    lines = [_line(comparison, trial, scores) for trial in ended]
    if lines:
        csv_record.merge_searches(mlruns, pd.DataFrame(lines))


def _code(trial: Trial) -> Mapping[str, str]:
    """Return what names the code of a user's own method, whose key changes with it."""
    return {"key": trial.run.key} if trial.entrant.file else {}


def _line(comparison: Comparison, trial: Trial, scores: Scores) -> Mapping[str, object]:
    score = scores.of(trial)
    return {
        "scale": comparison.scale.name,
        "search": f"{comparison.name} {trial.entrant.name} {trial.of_search}",
        "trial": settings_text({**trial.settings, "seed": trial.run.seed, **_code(trial)}),
        "state": DIVERGED if score is None else FINISHED,
        "score": None if score is None else score / 100,
        "evaluations": trial.run.evaluations,
        "keys": trial.run.key,
        "commit": csv_record.commit_of(commit()),
    }
