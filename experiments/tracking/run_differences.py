"""What MLflow's run lacks of the content that it should have."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.tracking.run_content import Point, RunContent

if TYPE_CHECKING:
    from mlflow.entities import Run as Tracked

FINISHED = "FINISHED"
SAME_SCORE = 5e-5  # a run that was trained again, on another kind of processor, has the same scores to this


def holds(run: "Tracked | None", content: RunContent) -> bool:
    """Whether a finished run has all scores, curves and studies of the content."""
    if run is None or run.info.status != FINISHED:
        return False
    studies = set(run.data.tags.get("studies", "").split())
    return content.curves <= run.data.metrics.keys() and content.studies <= studies and not _new_scores(run, content)


def _new_scores(run: "Tracked | None", content: RunContent) -> dict[str, float]:
    """Return the scores that a run lacks; an earlier score counts unless it differs, as by another evaluator."""
    has = run.data.metrics if run else {}
    return {
        name: value
        for name, value in content.scores.items()
        if name not in has or not (name.startswith("seconds/") or math.isclose(has[name], value, abs_tol=SAME_SCORE))
    }


def lacking(
    run: "Tracked | None", begun: Mapping[Point, float], content: RunContent, started: int, now: int
) -> dict[Point, tuple[float, int]]:
    """Return what a run lacks, with times: scores at step 0, now; points as if all steps took equally long."""
    finished = set(run.data.metrics) if run and run.info.status == FINISHED else set()
    steps = max((step for _, step in content.points), default=1)
    points = {
        (name, step): (value, started + round(1000 * content.seconds * step / steps))
        for (name, step), value in content.points.items()
        if name not in finished and (name, step) not in begun
    }
    return {(name, 0): (value, now) for name, value in _new_scores(run, content).items()} | points
