"""The benchmark blocks of REPORT.md, from analysis/measured/*.csv as tests/benchmarks/ wrote them."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.benchmark_ratios import FOLDER
from analysis.report.formats import DASH, Grid, markdown, number


def block(name: str, device: str, folder: Path = FOLDER) -> str:
    """`ratios`, `tried`, `scaling` or `profiles` of a device (cpu, cuda) as Markdown."""
    makers = {"ratios": _ratios, "tried": _tried, "scaling": _scaling, "profiles": _profiles}
    if name not in makers:
        raise ValueError(f"benchmark blocks are {', '.join(makers)}, got {name!r}")
    path = folder / f"{name}.csv"
    frame = pd.read_csv(path, keep_default_na=False) if path.is_file() else pd.DataFrame({"on": []})
    frame = frame[frame["on"] == device]
    if frame.empty:
        return f"Not measured yet on a {'GPU' if device == 'cuda' else device}."
    return "\n\n".join([markdown(makers[name](frame)), _where(frame)])


def met(ratio: float, wanted: str) -> str:
    """Whether a ratio keeps an aim, `at least 1.5` or `at most 1.10`; a dash where there is none."""
    if not wanted:
        return DASH
    words = wanted.split()
    if words[:2] not in (["at", "least"], ["at", "most"]) or len(words) != 3:
        raise ValueError(f"an aim reads `at least X` or `at most X`, got {wanted!r}")
    aim = float(words[2])
    return "yes" if (ratio >= aim if words[1] == "least" else ratio <= aim) else "**no**"


def exponent(x: pd.Series, y: pd.Series) -> float:
    """The slope of log y over log x, by least squares; a y of zero was too small to be measured and is left out."""
    seen = y > 0
    return float(np.polyfit(np.log(x[seen]), np.log(y[seen]), 1)[0])


def _spread(row: pd.Series) -> str:
    return f"{number(row['low'])} to {number(row['high'])} ({row['turns']})" if row["turns"] > 1 else f"{DASH} (1)"


def _ratios(frame: pd.DataFrame) -> Grid:
    header = ("what", "is", "quartiles (turns)", "wanted", "met", "of what", "raw", "bounded by")
    rows = (
        (
            row["what"],
            number(row["ratio"]),
            _spread(row),
            row["wanted"] or DASH,
            met(row["ratio"], row["wanted"]),
            row["against"],
            row["note"] or DASH,
            row["bound"] or DASH,
        )
        for _, row in frame.iterrows()
    )
    return Grid("", header, tuple(rows))


def _tried(frame: pd.DataFrame) -> Grid:
    lines = (
        (row["what"], number(row["ratio"]), _spread(row), row["against"], row["note"]) for _, row in frame.iterrows()
    )
    return Grid("", ("tried", "takes", "quartiles (turns)", "of what", "why it is not used"), tuple(lines))


def _scaling(frame: pd.DataFrame) -> Grid:
    lines = []
    for what in frame["what"].unique():
        points = frame[frame["what"] == what]
        at = ", ".join(f"{x:,}: {value:,.4g}" for x, value in zip(points["x"], points["value"], strict=True))
        of, unit = points[["of", "unit"]].iloc[0]
        lines.append((what, of, number(exponent(points["x"], points["value"])), f"{at} {unit}"))
    return Grid("", ("what", "grows with", "to the power", "measured"), tuple(lines))


def _profiles(frame: pd.DataFrame) -> Grid:
    table = frame.pivot_table(index="part", columns="step", values="ms", sort=False)
    header = ("ms a step", *(f"{step}" for step in table.columns))
    lines = [(str(part), *(f"{ms:.1f}" for ms in row)) for part, row in table.iterrows()]
    return Grid("", header, (*lines, ("**together**", *(f"{ms:.1f}" for ms in table.sum()))))


def _where(frame: pd.DataFrame) -> str:
    places = frame[["machine", "threads", "versions"]].drop_duplicates()
    lines = [f"{row['machine']}, {row['threads']} threads ({row['versions']})" for _, row in places.iterrows()]
    return f"Measured on: {'; '.join(lines)}."
