"""Show what an audit of the record found, from the file that `sweep.py --audit-report` wrote."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.report.formats import Grid, markdown
from experiments.execution.agreement import CURVE

FOLDER = Path(__file__).parents[1] / "measured"
HEADER = ("recorded on", "trained anew on", "runs", "scores", "largest difference", "points of curves")
Run = Mapping[str, Any]


def audit_block(scale: str, folder: Path = FOLDER) -> str:
    """Which runs were drawn, how many numbers agree, and every one that does not, as Markdown."""
    path = folder / f"audit-{scale}.json"
    if not path.is_file():
        return "Not audited yet."
    found = json.loads(path.read_text(encoding="utf-8"))
    compared = [run for run in found["runs"] if not run["failure"]]
    parts = [_drawn(found), markdown(_agreement(compared)), _tolerances(found["tolerances"]), *_wrong(found["runs"])]
    return "\n\n".join(parts)


def _drawn(found: Mapping[str, Any]) -> str:
    runs = found["runs"]
    drawn = sum(run["drawn"] for run in runs)
    commits = ", ".join(sorted({run["commit"] for run in runs if run["commit"]}))
    return (
        f"`python experiments/sweep.py --audit {found['asked']} --audit-seed {found['seed']} --scale {found['scale']}` "
        f"draws {found['asked']} of {found['candidates']} recorded runs; {found['undeclared']} more belong to no study "
        f"and can't be drawn. {drawn} of those drawn were trained anew, and {len(runs) - drawn} that they need "
        f"(compared by their curves and dev scores), at commit {commits}."
    )


def _agreement(runs: Sequence[Run]) -> Grid:
    """Runs by the processors that they were trained on, first and again."""
    by: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by[run["recorded_on"], run["trained_on"]].append(run)
    lines = [(*devices, *_counts(by[devices])) for devices in sorted(by)]
    if len(lines) > 1:
        lines.append(("together", "", *_counts(runs)))
    return Grid("", (*HEADER, "largest difference of curves", "differ"), tuple(lines))


def _counts(runs: Sequence[Run]) -> tuple[str, ...]:
    cells, points = (sum(run[name] for run in runs) for name in ("cells", "points"))
    largest = (f"{max(run[name] for run in runs):.1e}" for name in ("largest_cell", "largest_point"))
    differ = sum(len(run["differences"]) for run in runs)
    return (f"{len(runs)}", f"{cells:,}", next(largest), f"{points:,}", next(largest), f"{differ}")


def _tolerances(tolerances: Mapping[str, float]) -> str:
    """In words; the first is the one on the same kind of processor."""
    (_, exact), *others = tolerances.items()
    elsewhere = ", ".join(f"{name} {value:g}" for name, value in others)
    return f"Numbers differ if they are apart by more than {exact:g} on one kind of processor; on another: {elsewhere}."


def _wrong(runs: Sequence[Run]) -> list[str]:
    """A line for each run that failed or has numbers that are not the recorded ones."""
    lines = []
    for run in runs:
        head = f"- {run['key']}, {run['row']} ({', '.join(run['studies'])})"
        if run["failure"]:
            lines.append(f"{head}: failed, {run['failure']}")
        elif run["differences"]:
            lines.append(f"{head}: {_differences(run['differences'])}")
    return ["\n".join(lines)] if lines else []


def _differences(found: Sequence[Mapping[str, Any]]) -> str:
    """How many numbers differ and where they are furthest apart, among the scores if any of them differs."""
    scores = [one for one in found if one["scorer"] != CURVE] or found
    worst = max(scores, key=_amount)
    place = ", ".join(filter(None, (worst[name] for name in ("select", "scorer", "task", "metric"))))
    count = f"{len(found)} numbers differ, most: " if len(found) > 1 else ""
    return f"{count}{place}: recorded {worst['recorded']}, found {worst['found']}"


def _amount(one: Mapping[str, Any]) -> float:
    """How far apart two numbers are; a text or a missing value is further than any number."""
    values = (one["recorded"], one["found"])
    return abs(values[0] - values[1]) if all(isinstance(value, float) for value in values) else math.inf
