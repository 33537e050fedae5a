"""Rehearse the published scale: train its methods and studies on stand-ins of the papers' encoders for a few steps.

    python -m tests.benchmarks.bench_published_scale --encoders FOLDER --data FOLDER
    python -m tests.benchmarks.bench_published_scale --encoders FOLDER --only simcse --compare simcse
    python -m tests.benchmarks.bench_published_scale --encoders FOLDER --studies --layers 1 --batch-size 4 --write

Each run is trained for some steps from random weights, killed after the first, resumed and scored on one task. Memory
and seconds per step are written next to the planner's forecast (docs/rehearsal.md). Rows already in the table are
skipped, except those that failed. Only `--write` changes the checkout.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import tyro

from cse_core.data.locate import data_folder
from cse_core.models.pretrained import ENCODERS
from cse_core.run import Corpus
from experiments.cli.command import run_command
from experiments.cli.console import console
from experiments.cli.options import Words, at_least, check_device
from experiments.execution.job import ExecutionSettings
from tests.benchmarks.rehearsal.rehearsal_row import rehearse_row, remove_unneeded
from tests.benchmarks.rehearsal.rehearsal_table import (
    TABLE,
    Line,
    add_declared,
    add_line,
    as_text,
    forecast_line,
    identity,
    read_lines,
    renew_forecasts,
)
from tests.benchmarks.rehearsal.rehearsed_runs import (
    Limits,
    Rehearsed,
    encoders_of,
    needed_jobs,
    rehearsed_methods,
    rehearsed_studies,
    stand_in_scale,
)
from tests.benchmarks.rehearsal.stand_ins import GENERATORS, make_stand_ins, shapes

LEARNT_FROM = 200_000  # sentences from which RoBERTa's byte-level pieces are learnt


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, kill, resume and score a few steps of each method, or of a row of each study, at scale `paper`."""

    encoders: Path
    """Folder of the stand-ins, which are made if missing, and of the run folders. Takes up to 25 GB."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    corpus: str = "wiki1m_for_simcse"
    """Sentences to train on, of which each run takes the first: a corpus of the data folder, or a file."""
    pieces: str = ""
    """Sentences from which RoBERTa's byte-level pieces are learnt, 200,000 of them. If not given: --corpus."""
    studies: bool = False
    """Rehearse a row of each study instead of the methods as published."""
    only: Words = ()
    """Only these methods, or with --studies only these studies."""
    backbones: Words = ()
    """Only rows of these backbones, by the hub's names."""
    compare: Words = ()
    """Methods that are also trained without being killed, to compare the weights in every bit."""
    steps: int = 3
    """Steps of each run, those that others need included."""
    batch_size: int = 0
    """Largest batch; larger ones are cut, and the table says so. 0 means as published."""
    layers: int = 0
    """Layers of the encoders; 0 means as published."""
    task: str = "sts16"
    """The task on which each run is scored."""
    missing: bool = False
    """Only rows that analysis/measured/rehearsal.csv does not have from this kind of device."""
    forecasts: bool = False
    """Measure nothing: put the planner's present forecasts into the table's lines of the chosen rows."""
    again: bool = False
    """Rehearse rows that the table has, too."""
    keep: bool = False
    """Keep the run folders, for later calls whose runs need them."""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    """cpu or cuda. On a CPU, runs train in fp32 instead of the scale's precision, and the table says so."""
    write: bool = False
    """Add to analysis/measured/rehearsal.csv. If not given: to rehearsal.csv in the folder of the stand-ins."""

    @property
    def table(self) -> Path:
        """The table to read and to add to."""
        return TABLE if self.write else self.encoders.resolve() / TABLE.name

    @property
    def limits(self) -> Limits:
        """How runs are cut."""
        precision = "fp32" if self.device == "cpu" else ""
        parser = find_spec("spacy") is not None
        return Limits(steps=self.steps, batch=self.batch_size, precision=precision, parser=parser)


def chosen_rows(options: Options) -> list[Rehearsed]:
    """Return the rows to rehearse; refuse unknown names."""
    scale = stand_in_scale(shapes(options.layers), options.corpus)
    choose = rehearsed_studies if options.studies else rehearsed_methods
    rows = list(choose(scale, options.limits, options.task))
    names = [row.study if options.studies else row.name for row in rows]
    for given, present in ((options.only, names), (options.compare, names), (options.backbones, scale.backbones)):
        if missing := set(given) - set(present):
            raise ValueError(f"{min(missing)}: expected one of {', '.join(dict.fromkeys(present))}")
    return [
        row
        for row, name in zip(rows, names, strict=True)
        if name in (options.only or names) and (not options.backbones or row.backbone in options.backbones)
    ]


def make_needed(options: Options, rows: Sequence[Rehearsed], data: Path | None) -> None:
    """Make the stand-ins that these rows need."""
    named = set().union(*(encoders_of(row.job.encoder) for row in rows))
    needed = [shape for shape in (*shapes(options.layers).values(), *GENERATORS) if shape.name in named]
    pieces = Corpus(options.pieces or options.corpus, LEARNT_FROM)
    make_stand_ins(options.encoders.resolve(), pieces, needed, data)


def main(options: Options) -> int:
    """Rehearse the chosen rows; return 1 if one failed."""
    at_least(2, steps=options.steps)
    at_least(0, batch_size=options.batch_size, layers=options.layers)
    check_device(options.device)
    rows, data = chosen_rows(options), data_folder(options.data)
    if options.forecasts:
        renew_forecasts((forecast_line(row, layers=options.layers, on=options.device) for row in rows), options.table)
        return 0
    data = data.resolve() if data else None
    store = options.encoders.resolve() / "store"
    os.environ[ENCODERS] = str(options.encoders.resolve())  # also for the processes that train
    execution = ExecutionSettings(store, data, device=options.device)
    ended = [] if options.again else [line for line in read_lines(options.table) if line["scored"]]
    if options.missing:
        ended += [line for line in read_lines() if line["scored"]]
    recorded, failed = set(map(identity, ended)), 0
    forecasts = [(row, forecast_line(row, layers=options.layers, on=options.device)) for row in rows]
    left = [(row, line) for row, line in forecasts if identity(as_text(line)) not in recorded]
    rows = [row for row, _ in left]
    make_needed(options, rows, data)
    for i, (row, line) in enumerate(left):
        line = rehearse_row(row, line, execution, kill=not options.studies, compare=row.name in options.compare)
        add_line(line, options.table)
        console.print(f"{i + 1} of {len(rows)}: {summary(line)}", highlight=False)
        failed += bool(line.failed)
        if not options.keep:
            later = {job.key for other in rows[i + 1 :] for job in (other.job, *needed_jobs(other))}
            remove_unneeded(row, store, later)
    add_declared(options.table, options.device, studies=options.studies)
    return int(failed > 0)


def summary(line: Line) -> str:
    """Return a line to print."""
    parts = [line.study, line.row, line.backbone]
    if line.failed:
        return ", ".join([*parts, f"failed: {line.failed}"])
    parts += [f"{line.memory_mib:,.0f} MiB"] if line.memory_mib else []
    parts += [f"{line.seconds:.2f} s a step"] if line.seconds else []
    return ", ".join([*parts, f"scored on {line.scored}"])


if __name__ == "__main__":
    run_command(lambda: main(tyro.cli(Options)))
