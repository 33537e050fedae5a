"""Make the benchmark blocks of the pages from analysis/measured/*.csv, which tests/benchmarks/ wrote.

The blocks of docs/rehearsal.md come from rehearsal.csv, with a line for each method and study that can be rehearsed.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.benchmark_ratios import FOLDER
from analysis.report.blocks import block
from analysis.report.formats import DASH, number, table
from experiments.schema.recipes import BACKBONES

METHODS = "as published"  # replaces the study's name in a method's line
GIB_OF_MIB = 1 / 1024
OFF = 1.5  # a forecast wrong by this factor is marked
METHOD_HEADER = (
    "method",
    "backbone",
    "batch",
    "tokens",
    "GiB",
    "s a step",
    "forecast",
    "ratio",
    "resumed",
    "same bits",
    "scored on",
)


@block("benchmarks", of=lambda ask: (ask.name, ask.scale))
def benchmarks_block(name: str, device: str, folder: Path = FOLDER) -> str:
    """Return a block of a device (cpu, cuda) as Markdown: `ratios`, `tried`, `scaling`, `profiles`, or a rehearsal."""
    if name not in (*TABLES, *REHEARSALS):
        raise ValueError(f"benchmark blocks are {', '.join((*TABLES, *REHEARSALS))}, got {name!r}")
    path = folder / ("rehearsal.csv" if name in REHEARSALS else f"{name}.csv")
    frame = pd.read_csv(path, keep_default_na=False) if path.is_file() else pd.DataFrame({"on": []})
    frame = frame[frame["on"] == device]
    if frame.empty:
        return f"Not measured yet on a {'GPU' if device == 'cuda' else device}."
    text = (REHEARSALS | TABLES)[name](frame)
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
    """Return the slope of log y over log x, by least squares; y of zero, too small to measure, are left out."""
    seen = y > 0
    return float(np.polyfit(np.log(x[seen]), np.log(y[seen]), 1)[0])


def _quartiles(row: pd.Series) -> str:
    return f"{number(row['low'])} to {number(row['high'])} ({row['turns']})" if row["turns"] > 1 else f"{DASH} (1)"


def _ratios(frame: pd.DataFrame) -> str:
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
    return table(header, rows)


def _tried(frame: pd.DataFrame) -> str:
    lines = (
        (row["what"], number(row["ratio"]), _quartiles(row), row["against"], row["note"]) for _, row in frame.iterrows()
    )
    return table(("tried", "takes", "quartiles (turns)", "of what", "why it is not used"), lines)


def _scaling(frame: pd.DataFrame) -> str:
    lines = []
    for what in frame["what"].unique():
        points = frame[frame["what"] == what]
        at = ", ".join(f"{x:,}: {value:,.4g}" for x, value in zip(points["x"], points["value"], strict=True))
        of, unit = points[["of", "unit"]].iloc[0]
        lines.append((what, of, number(exponent(points["x"], points["value"])), f"{at} {unit}"))
    return table(("what", "grows with", "to the power", "measured"), lines)


def _profiles(frame: pd.DataFrame) -> str:
    parts = frame.pivot_table(index="part", columns="step", values="ms", sort=False)
    header = ("ms a step", *(f"{step}" for step in parts.columns))
    lines = [(str(part), *(f"{ms:.1f}" for ms in row)) for part, row in parts.iterrows()]
    return table(header, [*lines, ("**together**", *(f"{ms:.1f}" for ms in parts.sum()))])


def _machines(frame: pd.DataFrame) -> str:
    places = frame[frame["machine"] != ""][["machine", "threads", "versions"]].drop_duplicates()
    lines = [f"{row['machine']}, {row['threads']} threads ({row['versions']})" for _, row in places.iterrows()]
    return f"Measured on: {'; '.join(lines)}."


def rehearsed_methods_block(frame: pd.DataFrame) -> str:
    """Return every method on every backbone with its memory and its time, measured and forecast, as Markdown."""
    lines = frame[(frame["study"] == METHODS) & (frame["layers"] == 0)].to_dict("records")
    by_row = {(line["row"], line["backbone"]): line for line in lines}
    rows = [_method_row(line, by_row.get(_reference(line["row"], line["backbone"]))) for line in lines]
    measured = sum(bool(line["memory_mib"]) for line in lines)
    count = f"{measured} of {len(rows)} rehearsed" + ("; the others have dashes." if measured < len(rows) else ".")
    notes = _change_notes([line for line in lines if line["memory_mib"] or line["failed"]])
    return "\n\n".join([count, table(METHOD_HEADER, rows), *notes])


def rehearsed_studies_block(frame: pd.DataFrame) -> str:
    """Return, as Markdown, the row that was started in each study, what it was scored on, and why it failed if so."""
    lines = frame[frame["study"] != METHODS].to_dict("records")
    idle = [line["study"] for line in lines if not line["row"]]
    started = [line for line in lines if line["scored"] or line["failed"]]
    absent = [line["study"] for line in lines if line["row"] and line not in started]
    ended = sum(not line["failed"] for line in started)
    missing = f"Not rehearsed: {', '.join(absent)}. " if absent else ""
    counts = f"{ended} of {len(lines) - len(idle)} started and were scored. "
    shown = table(("study", "row", "encoder", "outcome", "scored on"), map(_study_row, started))
    return "\n\n".join([f"{counts}{missing}Nothing to start in {', '.join(idle)}.", shown])


def _study_row(line: Mapping[str, object]) -> tuple[str, ...]:
    title = BACKBONES.get(str(line["backbone"]), DASH)
    depth = f"{line['layers']} layer{'s' if line['layers'] != 1 else ''}"
    encoder = f"{title}, {depth}" if line["layers"] and line["backbone"] else title
    outcome = "trained" if line["memory_mib"] else "as it is"
    if line["failed"]:
        outcome = f"failed: {line['failed']}"
    return (str(line["study"]), str(line["row"]), encoder, outcome, str(line["scored"]) or DASH)


def _method_row(line: Mapping[str, Any], reference: Mapping[str, Any] | None) -> tuple[str, ...]:
    name, backbone, batch = line["row"], line["backbone"], str(line["batch"])
    title = BACKBONES[backbone]
    if not line["memory_mib"] and not line["failed"]:
        return (name, title, *[DASH] * (len(METHOD_HEADER) - 2))
    if line["failed"]:
        return (name, title, *[DASH] * (len(METHOD_HEADER) - 3), f"failed: {line['failed']}")
    memory, seconds = _number(line["memory_mib"]), _number(line["seconds"])
    return (
        name,
        title,
        f"{batch} of {cut[1]}" if (cut := re.search(r"batch_size \d+, published (\d+)", line["changes"])) else batch,
        str(line["tokens"]),
        number(memory and memory * GIB_OF_MIB),
        *_time_texts(seconds, _expected_seconds(line, reference)),
        f"after {line['resumed_after']}" if line["resumed_after"] else DASH,
        str(line["identical"]) or DASH,
        str(line["scored"]),
    )


def _reference(name: str, backbone: str) -> tuple[str, str]:
    """Return the row that forecasts a row's time: SimCSE on the same backbone, or on BERT-base for SimCSE itself."""
    return ("simcse", "bert-base-uncased" if name == "simcse" else backbone)


def _expected_seconds(line: Mapping[str, object], reference: Mapping[str, object] | None) -> float | None:
    """Return the seconds that the planner expects, in proportion to a step's operations."""
    if reference is None or reference is line:
        return None
    took, work, of = _number(reference["seconds"]), _number(line["gigaflops"]), _number(reference["gigaflops"])
    return took * work / of if took and work and of else None


def _time_texts(measured: float | None, expected: float | None) -> tuple[str, str, str]:
    ratio = measured / expected if measured and expected else None
    text = number(ratio)
    return number(measured), number(expected), f"**{text}**" if ratio and not 1 / OFF <= ratio <= OFF else text


def _number(text: object) -> float | None:
    return float(str(text)) if str(text) else None


def _change_notes(lines: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the settings that differ from the published ones, each with its methods; batches are in the table."""
    changes: dict[str, list[str]] = {}
    for line in lines:
        for change in str(line["changes"]).split("; "):
            if change and not change.startswith("batch_size "):
                changes.setdefault(change, []).append(f"{line['row']} {BACKBONES[str(line['backbone'])]}")
    named = {change: "all" if len(rows) == len(lines) else ", ".join(rows) for change, rows in changes.items()}
    return ["\n".join(f"- {change}: {rows}." for change, rows in named.items())] if named else []


TABLES = {"ratios": _ratios, "tried": _tried, "scaling": _scaling, "profiles": _profiles}
REHEARSALS = {"rehearsed-methods": rehearsed_methods_block, "rehearsed-studies": rehearsed_studies_block}
