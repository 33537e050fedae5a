"""A job that takes a second, scored on two checkpoints, and its curves in MLflow."""

from cse_core.evaluation.scorers import Cosine
from experiments.execution.job import Job, Scoring
from experiments.tracking.mlflow_log import Tracker
from tests.support import tiny_study

SCORINGS = tuple(Scoring(rule, Cosine(), ("synthetic",)) for rule in ("synthetic_dev", "last"))
JOB = Job(tiny_study.run(), "tiny", "Net -cons", SCORINGS, ("one",))


def points_of(tracker: Tracker, run_id: str, name: str) -> dict[int, float]:
    """A curve's points by step; asserts that there is one per step."""
    history = tracker.client.get_metric_history(run_id, name)
    found = {point.step: point.value for point in history}
    assert len(found) == len(history)
    return dict(sorted(found.items()))
