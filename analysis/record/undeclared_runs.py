"""Make the page of recorded runs that no study declares any more; only remove.py removes lines from the record."""

from collections.abc import Collection

import pandas as pd

from analysis.report.formats import Grid, markdown

HEADER = ("key", "method", "backbone", "seed", "settings", "learns from", "checkpoint, scorer: tasks scored")
NOTES = """A study declared each of these runs once; the training code or a setting has changed since, so that the
study's runs have other keys now, and no study's table reads these. "Learns from" is the column `teachers` of
`runs.csv`: key, checkpoint and weight of every run that was a teacher or a base. Runs that share all columns but the
key with another one were trained by another version of the training code."""


def undeclared_page(scale: str, declared: Collection[str], runs: pd.DataFrame, results: pd.DataFrame) -> str:
    """Return the page of a scale as Markdown; "" if `declared` has the key of every recorded run."""
    others = runs[(runs["scale"] == scale) & ~runs["key"].isin(declared)]
    if others.empty:
        return ""
    scored = results[results["key"].isin(others["key"])].groupby("key")
    tasks = {str(key): _scored_tasks(lines) for key, lines in scored}
    rows = tuple(
        (
            *(str(run[name]) for name in ("key", "method", "backbone", "seed", "settings", "teachers")),
            tasks[str(run["key"])],
        )
        for run in others.sort_values(["method", "settings", "teachers", "seed", "key"]).to_dict("records")
    )
    title = f"# Runs of no study any more, scale {scale}"
    count = f"{len(rows)} of the {(runs['scale'] == scale).sum()} runs that are recorded at this scale."
    return "\n\n".join([title, f"{count} {NOTES}".replace("\n", " "), markdown(Grid("", HEADER, rows))]) + "\n"


def _scored_tasks(lines: pd.DataFrame) -> str:
    texts = []
    for checkpoint, tasks in lines.groupby(lines["select"] + ", " + lines["scorer"])["task"]:
        texts.append(f"{checkpoint}: {' '.join(sorted(tasks.unique()))}")
    return "; ".join(texts)
