"""Make the benchmark blocks of the pages from analysis/measured/*.csv, which tests/benchmarks/ wrote.

Those of docs/rehearsal.md are from rehearsal.csv, which experiments/rehearse.py wrote.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.benchmark_ratios import FOLDER
from analysis.report import rehearsal_tables
from analysis.report.formats import DASH, Grid, markdown, number


def block(name: str, device: str, folder: Path = FOLDER) -> str:
    """Return a block of a device (cpu, cuda) as Markdown: `ratios`, `tried`, `scaling`, `profiles`, or a rehearsal."""
    if name not in (*GRIDS, *REHEARSALS):
        raise ValueError(f"benchmark blocks are {', '.join((*GRIDS, *REHEARSALS))}, got {name!r}")
    path = folder / ("rehearsal.csv" if name in REHEARSALS else f"{name}.csv")
    frame = pd.read_csv(path, keep_default_na=False) if path.is_file() else pd.DataFrame({"on": []})
    frame = frame[frame["on"] == device]
    if frame.empty:
        return f"Not measured yet on a {'GPU' if device == 'cuda' else device}."
    text = REHEARSALS[name](frame) if name in REHEARSALS else markdown(GRIDS[name](frame))
    return "\n\n".join([text, _machines(frame)])


def meets_aim(ratio: float, aim: str) -> str:
    """Say whether a ratio meets an aim, `at least 1.5` or `at most 1.10`; a dash if there is none."""
    if not aim:
        return DASH
    words = aim.split()
    if words[:2] not in (["at", "least"], ["at", "most"]) or len(words) != 3:
        raise ValueError(f"an aim reads `at least X` or `at most X`, got {aim!r}")
    limit = float(words[2])
    return "yes" if (ratio >= limit if words[1] == "least" else ratio <= limit) else "**no**"


def exponent(x: pd.Series, y: pd.Series) -> float:
    """Return the slope of log y over log x, by least squares, without y of zero, which were too small to measure."""
    seen = y > 0
    return float(np.polyfit(np.log(x[seen]), np.log(y[seen]), 1)[0])


def _quartiles(row: pd.Series) -> str:
    return f"{number(row['low'])} to {number(row['high'])} ({row['turns']})" if row["turns"] > 1 else f"{DASH} (1)"


def _ratio_grid(frame: pd.DataFrame) -> Grid:
    header = ("what", "is", "quartiles (turns)", "aim", "met", "of what", "raw", "bounded by")
    rows = (
        (
            row["what"],
            number(row["ratio"]),
            _quartiles(row),
            row["wanted"] or DASH,
            meets_aim(row["ratio"], row["wanted"]),
            row["against"],
            row["note"] or DASH,
            row["bound"] or DASH,
        )
        for _, row in frame.iterrows()
    )
    return Grid("", header, tuple(rows))


def _tried_grid(frame: pd.DataFrame) -> Grid:
    lines = (
        (row["what"], number(row["ratio"]), _quartiles(row), row["against"], row["note"]) for _, row in frame.iterrows()
    )
    return Grid("", ("tried", "takes", "quartiles (turns)", "of what", "why it is not used"), tuple(lines))


def _scaling_grid(frame: pd.DataFrame) -> Grid:
    lines = []
    for what in frame["what"].unique():
        points = frame[frame["what"] == what]
        at = ", ".join(f"{x:,}: {value:,.4g}" for x, value in zip(points["x"], points["value"], strict=True))
        of, unit = points[["of", "unit"]].iloc[0]
        lines.append((what, of, number(exponent(points["x"], points["value"])), f"{at} {unit}"))
    return Grid("", ("what", "grows with", "to the power", "measured"), tuple(lines))


def _profile_grid(frame: pd.DataFrame) -> Grid:
    table = frame.pivot_table(index="part", columns="step", values="ms", sort=False)
    header = ("ms a step", *(f"{step}" for step in table.columns))
    lines = [(str(part), *(f"{ms:.1f}" for ms in row)) for part, row in table.iterrows()]
    return Grid("", header, (*lines, ("**together**", *(f"{ms:.1f}" for ms in table.sum()))))


def _machines(frame: pd.DataFrame) -> str:
    places = frame[frame["machine"] != ""][["machine", "threads", "versions"]].drop_duplicates()
    lines = [f"{row['machine']}, {row['threads']} threads ({row['versions']})" for _, row in places.iterrows()]
    return f"Measured on: {'; '.join(lines)}."


GRIDS = {"ratios": _ratio_grid, "tried": _tried_grid, "scaling": _scaling_grid, "profiles": _profile_grid}
REHEARSALS = {
    "rehearsed-methods": rehearsal_tables.methods_block,
    "rehearsed-studies": rehearsal_tables.studies_block,
}
