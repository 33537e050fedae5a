"""Print a run's scores as tables."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from cse_core.evaluation.suite import GROUPS, TASKS
from cse_core.evaluation.tasks import RankingTask, STSTask, TransferTask
from experiments.cli.console import console
from experiments.results import csv_record


def print_scores(result: Mapping[str, Any], only: set[str] | None = None, scorer: str = "cosine") -> None:
    """Print a table for each kind of evaluation and checkpoint, with means where all seven tasks are there.

    Shares and correlations are in points, the figures of a space as they are.
    """
    cells = [c for c in result["cells"] if c["scorer"] == scorer and (only is None or c["task"] in only)]
    kinds: dict[type, list[dict[str, Any]]] = {}
    for cell in cells:
        kinds.setdefault(type(TASKS[cell["task"]]), []).append(cell)
    for kind, found in kinds.items():
        points = kind in (STSTask, RankingTask, TransferTask)
        for select in dict.fromkeys(cell["select"] for cell in found):
            mine = [cell for cell in found if cell["select"] == select]
            console.print(_table(f"{result['name']}, {select}", mine, points=points))
    for warning in result["warnings"]:
        console.print(f"warning: {warning}", style="yellow")


def _table(title: str, cells: Sequence[Mapping[str, Any]], *, points: bool) -> Table:
    lines: dict[str, dict[str, float]] = {}
    for cell in cells:
        lines.setdefault(cell["task"], {"rows": cell["pairs"]})[cell["metric"]] = cell["score"]
    metrics = [m for m in dict.fromkeys(c["metric"] for c in cells) if m not in csv_record.UNRECORDED]
    table = Table(title=title)
    table.add_column("task", no_wrap=True)
    for heading in ("rows", *metrics):
        table.add_column(re.sub("[._]", "\n", heading), justify="right")
    for task, line in lines.items():
        table.add_row(task, str(line["rows"]), *(_shown(line.get(m), m, points) for m in metrics))
    for group in (name for name, tasks in GROUPS.items() if len(tasks) == 7 and set(tasks) <= set(lines)):
        means = [_mean([lines[task].get(m) for task in GROUPS[group]]) for m in metrics]
        shown = (_shown(v, m, points) for v, m in zip(means, metrics, strict=True))
        table.add_row(f"mean of {group}", "", *shown, end_section=True)
    return table


def _shown(value: float | None, metric: str, points: bool) -> str:
    if value is None:
        return "–"
    if metric.endswith("dropped"):
        return f"{value:.3g}"
    return f"{100 * value:.2f}" if points else f"{value:.4f}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
