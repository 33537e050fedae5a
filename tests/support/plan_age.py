"""Check that the plan is older than the runs that it judges: its contrasts existed when their rows were scored."""

import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from analysis.cells import join
from analysis.report.plan_tables import plan_grid
from experiments.results.csv_record import RESULTS
from experiments.schema.study import Study

PAGE = "experiments/PLAN.md"


def younger_contrasts(
    studies: Sequence[Study], results: pd.DataFrame, page_at: Callable[[str], str | None]
) -> list[str]:
    """Return a sentence for each contrast that was not on the page, as it is today, when one of its rows was scored.

    `page_at` returns the text of PLAN.md at a commit, None if the commit does not have it.
    """
    lines_at = cache(lambda commit: _table_lines(page_at(commit) or ""))
    messages = []
    for study in studies:
        rows = {row.label: row for row in study.rows}
        contrasts = [contrast for contrast in study.contrasts if contrast.margin]
        for contrast, line in zip(contrasts, planned_lines(study), strict=True):
            keys = {run.key for label in contrast.rows for run in rows[label].runs()}
            scored = results[results["key"].isin(keys)]
            commits = scored["commit"].str.removesuffix("+").unique()
            younger = [commit for commit in commits if line not in lines_at(commit)]
            if younger:
                messages.append(f"{contrast.claim}: scored at {', '.join(younger)}, whose plan has no line {line}")
    return messages


def planned_lines(study: Study) -> tuple[tuple[str, ...], ...]:
    """Return the lines of a study's contrasts in the plan's table."""
    return plan_grid([join(study, pd.DataFrame(columns=RESULTS))]).rows


def page_in_history(root: Path, page: str = PAGE) -> Callable[[str], str | None]:
    """Return a function that returns a page's text at a commit of this repository."""

    def page_at(commit: str) -> str | None:
        command = ["git", "-C", str(root), "show", f"{commit}:{page}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    return page_at


def _table_lines(page: str) -> set[tuple[str, ...]]:
    lines = (line.strip() for line in page.splitlines())
    return {tuple(cell.strip() for cell in line[1:-1].split(" | ")) for line in lines if line.startswith("| ")}
