"""Show the results of an audit of the record, from the file that `audit.py --report` wrote."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.report.blocks import block
from analysis.report.formats import Grid, markdown
from experiments.audits.agreement import CURVE

FOLDER = Path(__file__).parents[1] / "measured"
HEADER = ("recorded on", "retrained on", "runs", "scores", "largest difference", "points of curves")
Run = Mapping[str, Any]


@block("audit", of=lambda ask: (ask.scale,))
def audit_block(scale: str, folder: Path = FOLDER) -> str:
    """Return, as Markdown, which runs were drawn, how many numbers agree, and each number that differs."""
    path = folder / f"audit-{scale}.json"
    if not path.is_file():
        return "Not audited yet."
    audit = json.loads(path.read_text(encoding="utf-8"))
    compared = [run for run in audit["runs"] if not run["failure"]]
    parts = [
        _draw_sentence(audit),
        markdown(_agreement_table(compared)),
        _tolerances(audit["tolerances"]),
        *_failures_and_differences(audit["runs"]),
    ]
    return "\n\n".join(parts)


def _draw_sentence(audit: Mapping[str, Any]) -> str:
    runs = audit["runs"]
    drawn = sum(run["drawn"] for run in runs)
    commits = ", ".join(sorted({run["commit"] for run in runs if run["commit"]}))
    return (
        f"`python experiments/audit.py --count {audit['asked']} --seed {audit['seed']} --scale {audit['scale']}` "
        f"drew {audit['asked']} of the {audit['candidates']} runs that were recorded then; today's record gives "
        f"others. {audit['undeclared']} more belonged to no study and could not be drawn. {drawn} of those drawn were "
        f"retrained, and {len(runs) - drawn} that they need "
        f"(compared by their curves and dev scores), at commit {commits}."
    )


def _agreement_table(runs: Sequence[Run]) -> Grid:
    """Return a table of runs by the processors on which they were recorded and retrained."""
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
    """Say when numbers count as different; the first tolerance is the one for the same kind of processor."""
    (_, exact), *others = tolerances.items()
    elsewhere = ", ".join(f"{name} {value:g}" for name, value in others)
    return f"Numbers differ if they are apart by more than {exact:g} on one kind of processor; on another: {elsewhere}."


def _failures_and_differences(runs: Sequence[Run]) -> list[str]:
    """Return a list item for each run that failed or differs from the record."""
    lines = []
    for run in runs:
        head = f"- {run['key']}, {run['row']} ({', '.join(run['studies'])})"
        if run["failure"]:
            lines.append(f"{head}: failed, {run['failure']}")
        elif run["differences"]:
            lines.append(f"{head}: {_differences(run['differences'])}")
    return ["\n".join(lines)] if lines else []


def _differences(differences: Sequence[Mapping[str, Any]]) -> str:
    """Say how many numbers differ and name the largest difference, of a score if any score differs."""
    scores = [each for each in differences if each["scorer"] != CURVE] or differences
    worst = max(scores, key=_amount)
    cell = ", ".join(filter(None, (worst[name] for name in ("select", "scorer", "task", "metric"))))
    count = f"{len(differences)} numbers differ, most: " if len(differences) > 1 else ""
    return f"{count}{cell}: recorded {worst['recorded']}, retrained {worst['retrained']}"


def _amount(difference: Mapping[str, Any]) -> float:
    """Return the distance of two numbers; infinite for a text or a missing value."""
    values = (difference["recorded"], difference["retrained"])
    return abs(values[0] - values[1]) if all(isinstance(value, float) for value in values) else math.inf
