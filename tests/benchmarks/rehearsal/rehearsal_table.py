"""The table of rehearsed runs, analysis/measured/rehearsal.csv: measurements next to the planner's forecasts."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cse_core.data.atomic_write import atomic_write
from cse_core.run import Pretrained, Run
from experiments.execution.step_cost import padded_rows, size_of, step_cost
from tests.benchmarks.rehearsal.measured_run import KILLED_AFTER, Measured
from tests.benchmarks.rehearsal.rehearsed_runs import (
    Limits,
    Rehearsed,
    rehearsed_methods,
    rehearsed_studies,
    stand_in_scale,
    studies_without_runs,
)
from tests.benchmarks.rehearsal.stand_ins import shapes

TABLE = Path(__file__).parents[3] / "analysis/measured/rehearsal.csv"
IDENTITY = ("study", "row", "backbone", "layers", "on")
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table. Numbers that were not measured are None, and empty in the file.

    `gigaflops` are the planner's forecast of a step's work; seconds must be proportional to it.
    """

    study: str
    row: str
    backbone: str
    layers: int  # 0: as published
    on: str
    changes: str
    batch: int | None
    tokens: int | None
    gigaflops: float | None
    memory_mib: float | None = None
    seconds: float | None = None
    resumed_after: int | None = None
    identical: str = ""  # whether the weights are those of a run that was not killed (_compare)
    scored: str = ""
    failed: str = ""
    machine: str = ""
    threads: int | None = None
    versions: str = ""


NOTHING: dict[str, Any] = {
    **dict.fromkeys(("row", "backbone", "changes"), ""),
    **dict.fromkeys(("batch", "tokens", "gigaflops")),
    "layers": 0,
}
COLUMNS = [each.name for each in fields(Line)]


def forecast_line(row: Rehearsed, *, layers: int, on: str) -> Line:
    """Return the line of a row before it is rehearsed: its description and the planner's forecast."""
    run = row.run
    return Line(
        study=row.study,
        row=row.name,
        backbone=row.backbone,
        layers=layers,
        on=on,
        changes=row.changes,
        batch=run.batch_size if run else None,
        tokens=run.max_length if run else None,
        gigaflops=gigaflops(run, row.backbone, on) if run and not layers else None,
    )


def with_measured(line: Line, measured: Measured, *, killed: bool) -> Line:
    """Return the line with what was measured, without the memory of an encoder that was not trained."""
    return replace(
        line,
        resumed_after=KILLED_AFTER if killed else None,
        scored=" ".join(sorted({name.partition(" ")[0] for name in measured.scores})),
        memory_mib=measured.peak / MIB if measured.steps else None,
        seconds=measured.seconds,
        machine=measured.device,
        threads=measured.threads,
        versions=measured.versions,
    )


def gigaflops(run: Run, backbone: str, on: str) -> float:
    """Return the planner's forecast of a step's work for a run on a papers' backbone."""
    cost = step_cost(replace(run, backbone=Pretrained(backbone))).at(size_of(backbone))
    padded = padded_rows(run.max_length) if on == "cuda" else 1  # a CPU's passes have no padding
    return cost * padded * run.batch_size / 1e9


def read_lines(path: Path = TABLE) -> list[dict[str, str]]:
    """Return the lines of the table, as text by column; none if nothing was rehearsed."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != COLUMNS:
            raise ValueError(f"{path}: expected the columns {', '.join(COLUMNS)}, found {reader.fieldnames}")
        return list(reader)


def add_line(line: Line, path: Path = TABLE) -> None:
    """Add a line to the table, or replace an earlier line of the same row."""
    new = as_text(line)
    lines = {identity(old): old for old in read_lines(path)}
    write_lines(list((lines | {identity(new): new}).values()), path)


def add_declared(path: Path, on: str, *, studies: bool) -> None:
    """Give each declared method (or study) a line, methods in order; an empty `row` means that nothing is to be run."""
    scale, old = stand_in_scale(shapes()), {identity(line): line for line in read_lines(path)}
    if studies:
        kept = {line["study"] for line in old.values() if line["on"] == on}
        idle = [as_text(Line(**NOTHING, study=study, on=on)) for study in studies_without_runs()]
        declared = [_empty(row, on) for row in rehearsed_studies(scale, Limits(), "")]
        write_lines([*old.values(), *(line for line in (*declared, *idle) if line["study"] not in kept)], path)
        return
    lines = {identity(line): line for line in (_empty(row, on) for row in rehearsed_methods(scale, Limits(), ""))}
    write_lines((lines | old).values(), path)


def _empty(row: Rehearsed, on: str) -> dict[str, str]:
    return as_text(replace(forecast_line(row, layers=0, on=on), changes="", gigaflops=None))


def renew_forecasts(lines: Iterable[Line], path: Path = TABLE) -> None:
    """Copy these lines' forecasts into the table's lines of the same rows with the same settings."""
    new = {(*identity(text), text["changes"]): text for text in map(as_text, lines)}
    old = [(line, new.get((*identity(line), line["changes"]), line)) for line in read_lines(path)]
    write_lines([line | {"gigaflops": text["gigaflops"]} for line, text in old], path)


def write_lines(lines: Iterable[Mapping[str, str]], path: Path = TABLE) -> None:
    """Write the table."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.getvalue())


def identity(line: Mapping[str, str]) -> tuple[str, ...]:
    """Return what identifies a line: study, row, backbone, depth and device."""
    return tuple(line[name] for name in IDENTITY)


def as_text(line: Line) -> dict[str, str]:
    """Return a line as it is in the file."""
    return {name: _text(value) for name, value in asdict(line).items()}


def _text(value: object) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
