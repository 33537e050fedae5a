"""Print a run's scores as tables."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from cse_core.evaluation.suite import GROUPS, find_task
from cse_core.evaluation.tasks import RankingTask, STSTask, TransferTask
from experiments.cli.console import console, counted
from experiments.results import csv_record

IN_POINTS = (STSTask, RankingTask, TransferTask)  # shown times 100


def print_scores(
    result: Mapping[str, Any],
    only: set[str] | None = None,
    scorer: str = "cosine",
    selects: Sequence[str] | None = None,
) -> None:
    """Print a table for each kind of task and checkpoint, with means over complete groups of seven tasks.

    `only` names tasks and `selects` checkpoints, by default all that the result has. Accuracies and correlations are in
    points (times 100); numbers about the embedding space are not scaled.
    """
    cells = [c for c in result["cells"] if c["scorer"] == scorer and (only is None or c["task"] in only)]
    cells = [c for c in cells if selects is None or c["select"] in selects]
    kinds: dict[type, list[dict[str, Any]]] = {}
    for cell in cells:
        kinds.setdefault(type(find_task(cell["task"])), []).append(cell)
    for kind, kind_cells in kinds.items():
        points = kind in IN_POINTS
        for select in dict.fromkeys(cell["select"] for cell in kind_cells):
            selected = [cell for cell in kind_cells if cell["select"] == select]
            console.print(_score_table(f"{result['name']}, {select}", selected, points=points))
    print_warnings([result])


def print_warnings(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the warnings of results, each once."""
    for warning in dict.fromkeys(warning for result in results for warning in result["warnings"]):
        console.print(f"warning: {warning}", style="yellow")


def print_over_seeds(
    results: Mapping[int, Mapping[str, Any]], select: str, tasks: Sequence[str], untrained: Mapping[str, float]
) -> None:
    """Print each task's main metric before training and for each seed; for several seeds also mean and SD (n - 1).

    What a seed lacks is shown as missing, and so are the mean and the SD.
    """
    by_seed, several = [main_scores(result, select, tasks) for result in results.values()], len(results) > 1
    table = Table(title=f"{counted(len(results), 'seed')}, {select}")
    table.add_column("task", no_wrap=True)
    seeds = [f"seed {seed}" for seed in results]
    for heading in (*(["untrained"] if untrained else []), *seeds, *(["mean", "SD"] if several else [])):
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(name for of_seed in by_seed for name in of_seed):
        scores = [of_seed.get(name) for of_seed in by_seed]
        known = [score for score in scores if score is not None]
        shown = [untrained.get(name)] if untrained else []
        whole = [statistics.mean(known), statistics.stdev(known)] if len(known) == len(scores) > 1 else [None, None]
        shown += [*scores, *(whole if several else [])]
        table.add_row(name, *("–" if score is None else f"{score:.2f}" for score in shown))
    console.print(table)


def main_scores(
    result: Mapping[str, Any], select: str, tasks: Sequence[str], scorer: str = "cosine"
) -> dict[str, float]:
    """Return each task's main metric, in points for kinds in IN_POINTS, and the means of complete groups of seven."""
    scores: dict[str, float] = {}
    for cell in result["cells"]:
        task = find_task(cell["task"]) if cell["task"] in tasks else None
        if task and (cell["metric"], cell["select"], cell["scorer"]) == (task.metrics[0], select, scorer):
            scores[cell["task"]] = cell["score"] * (100 if type(task) in IN_POINTS else 1)
    for group, members in GROUPS.items():
        if len(members) == 7 and set(members) <= set(scores):
            scores[f"mean of {group}"] = statistics.mean(scores[member] for member in members)
    return scores


def _score_table(title: str, cells: Sequence[Mapping[str, Any]], *, points: bool) -> Table:
    lines: dict[str, dict[str, float]] = {}
    for cell in cells:
        lines.setdefault(cell["task"], {"rows": cell["pairs"]})[cell["metric"]] = cell["score"]
    metrics = [m for m in dict.fromkeys(c["metric"] for c in cells) if m not in csv_record.UNRECORDED]
    table = Table(title=title)
    table.add_column("task", no_wrap=True)
    for heading in ("rows", *metrics):
        table.add_column(re.sub("[._]", "\n", heading), justify="right")
    for task, line in lines.items():
        table.add_row(task, str(line["rows"]), *(_score_text(line.get(m), m, points) for m in metrics))
    for group in (name for name, tasks in GROUPS.items() if len(tasks) == 7 and set(tasks) <= set(lines)):
        means = [_mean_if_complete([lines[task].get(m) for task in GROUPS[group]]) for m in metrics]
        shown = (_score_text(v, m, points) for v, m in zip(means, metrics, strict=True))
        table.add_row(f"mean of {group}", "", *shown, end_section=True)
    return table


def _score_text(value: float | None, metric: str, points: bool) -> str:
    if value is None:
        return "–"
    if metric.endswith("dropped"):
        return f"{value:.3g}"
    return f"{100 * value:.2f}" if points else f"{value:.4f}"


def _mean_if_complete(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else None
