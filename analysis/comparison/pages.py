"""The declared comparisons that the record has runs of: a page of tables each, beside those of the studies."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from analysis.comparison.report import gains_grid, said_of, settings_grid, spaces_grid
from analysis.comparison.summary import summarise
from analysis.report.formats import markdown
from experiments.comparison.comparison import STAGES, Comparison
from experiments.comparison.recorded import dev_scores
from experiments.comparison.tuned import COMPARISONS
from experiments.results import csv_record


def recorded_comparisons(scale: str, searches: pd.DataFrame) -> Iterator[Comparison]:
    """Yield the declared comparisons at a scale that have a line in searches.csv."""
    for name, declare in COMPARISONS.items():
        if searches["search"].str.startswith(f"{name} ").any() and (made := declare()).scale.name == scale:
            yield made


def comparison_page(comparison: Comparison, mlruns: Path) -> str:
    """Return a comparison's tables as Markdown, with links to its figures."""
    summary = summarise(comparison, mlruns)
    ended, every = sum(t.ended for t in summary.tuned), comparison.budget.runs * len(summary.tuned)
    parts = [
        f"# Comparison {comparison.name}, scale {comparison.scale.name}",
        said_of(comparison),
        f"{ended} of {every} runs are recorded. `python experiments/compare.py {comparison.name}` runs the others.",
        markdown(gains_grid(summary)),
        f"![Gains](../../figures/{comparison.scale.name}/{comparison.name}-forest.png)",
        "## What the searches found",
        f"![Expected best dev score](../../figures/{comparison.scale.name}/{comparison.name}-curves.png)",
        markdown(settings_grid(summary)),
        "## In what was searched",
        markdown(spaces_grid(summary)),
    ]
    return "\n\n".join(parts) + "\n"


def keys_of(comparison: Comparison, mlruns: Path) -> set[str]:
    """Return the keys of a comparison's runs, with those of teachers and bases."""
    scale = comparison.scale.name
    results, searches = csv_record.read_results(scale, mlruns), csv_record.read_searches(scale, mlruns)
    scores = dev_scores(comparison, results, searches)
    return {
        key for stage in STAGES for key in comparison.jobs(comparison.stage(stage, scores), final=stage == "finals")
    }
