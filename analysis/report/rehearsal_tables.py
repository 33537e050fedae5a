"""Make the blocks of docs/rehearsal.md from analysis/measured/rehearsal.csv, which experiments/rehearse.py wrote."""

from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.report.formats import DASH, Grid, markdown, number
from experiments.rehearsal.rehearsed_runs import METHODS, Limits, rehearsed_methods, stand_in_scale
from experiments.rehearsal.stand_ins import shapes
from experiments.schema.recipes import BACKBONES

GIB_OF_MIB = 1 / 1024
OFF = 1.5  # times a forecast from which it counts as wrong
METHOD_HEADER = (
    "method",
    "backbone",
    "batch",
    "tokens",
    "GiB",
    "forecast",
    "ratio",
    "s a step",
    "forecast",
    "ratio",
    "resumed",
    "same bits",
    "scored on",
)


def methods_block(frame: pd.DataFrame) -> str:
    """Return every method on every backbone with its measured and its forecast memory and time, as Markdown."""
    lines = frame[(frame["study"] == METHODS) & (frame["layers"] == 0)].to_dict("records")
    by_row = {(line["row"], line["backbone"]): line for line in lines}
    rows = []
    for name, backbone, batch in _declared():
        line = by_row.get((name, backbone))
        rows.append(_method_row(name, backbone, batch, line, by_row.get(("simcse", backbone))))
    measured = sum(bool(line["memory_mib"]) for line in lines)
    count = f"{measured} of {len(rows)} rehearsed; the others have dashes."
    return "\n\n".join([count, markdown(Grid("", METHOD_HEADER, tuple(rows))), *_notes(lines)])


def studies_block(frame: pd.DataFrame) -> str:
    """Return the row of each study that was started, what it was scored on and why one failed, as Markdown."""
    lines = frame[frame["study"] != METHODS].to_dict("records")
    ended = sum(not line["failed"] for line in lines)
    grid = Grid("", ("study", "row", "encoder", "outcome", "scored on"), tuple(map(_study_row, lines)))
    return "\n\n".join([f"{ended} of {len(lines)} started and were scored.", markdown(grid)])


def _study_row(line: Mapping[str, object]) -> tuple[str, ...]:
    title = BACKBONES.get(str(line["backbone"]), DASH)
    encoder = f"{title}, {line['layers']} layers" if line["layers"] and line["backbone"] else title
    outcome = "trained" if line["memory_mib"] else "as it is"
    if line["failed"]:
        outcome = f"failed: {line['failed']}"
    return (str(line["study"]), str(line["row"]), encoder, outcome, str(line["scored"]) or DASH)


def _declared() -> list[tuple[str, str, int]]:
    """Return each method and backbone with its published batch."""
    rows = rehearsed_methods(stand_in_scale(shapes()), Limits(), "sts16")
    return [(row.name, row.backbone, row.run.batch_size) for row in rows if row.run]


def _method_row(
    name: str, backbone: str, batch: int, line: Mapping[str, object] | None, simcse: Mapping[str, object] | None
) -> tuple[str, ...]:
    title = BACKBONES[backbone]
    if line is None:
        return (name, title, *[DASH] * (len(METHOD_HEADER) - 2))
    if line["failed"]:
        return (name, title, *[DASH] * (len(METHOD_HEADER) - 3), f"failed: {line['failed']}")
    memory, planned = (_number(line[column]) for column in ("memory_mib", "forecast_mib"))
    seconds = _number(line["seconds"])
    return (
        name,
        title,
        str(batch) if str(line["batch"]) == str(batch) else f"{line['batch']} of {batch}",
        str(line["tokens"]),
        *_beside(memory and memory * GIB_OF_MIB, planned and planned * GIB_OF_MIB),
        *_beside(seconds, _expected_seconds(line, simcse)),
        f"after {line['resumed_after']}" if line["resumed_after"] else DASH,
        str(line["identical"]) or DASH,
        str(line["scored"]),
    )


def _expected_seconds(line: Mapping[str, object], simcse: Mapping[str, object] | None) -> float | None:
    """Return the seconds that the planner expects from SimCSE's on the same backbone: as its work, in rows."""
    if simcse is None or simcse is line:
        return None
    took, rows, work = _number(simcse["seconds"]), _number(simcse["rows"]), _number(line["rows"])
    return took * work / rows if took and rows and work else None


def _beside(measured: float | None, expected: float | None) -> tuple[str, str, str]:
    ratio = measured / expected if measured and expected else None
    text = number(ratio)
    return number(measured), number(expected), f"**{text}**" if ratio and not 1 / OFF <= ratio <= OFF else text


def _number(text: object) -> float | None:
    return float(str(text)) if str(text) else None


def _notes(lines: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the settings that differ from the published ones, each with its methods; batches are in the table."""
    changes: dict[str, list[str]] = {}
    for line in lines:
        for change in str(line["changes"]).split("; "):
            if change and not change.startswith("batch_size "):
                changes.setdefault(change, []).append(f"{line['row']} {BACKBONES[str(line['backbone'])]}")
    named = {change: "all" if len(rows) == len(lines) else ", ".join(rows) for change, rows in changes.items()}
    return ["\n".join(f"- {change}: {rows}." for change, rows in named.items())] if named else []
