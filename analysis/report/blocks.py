"""Fill the generated parts of pages from the record: blocks between sentences, values inside them.

`<!-- KIND NAME SCALE -->` begins a block and `<!-- end -->` ends it; a function that has `@block("KIND")` or
`@block("KIND NAME")` makes it. `<!-- value NAME -->8<!-- -->` is a value of `analysis/report/values.py`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from analysis.cells import Results, join
from analysis.report.formats import Grid, markdown
from analysis.verdicts.plan import PlanVerdicts
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.studies import catalogue

FORMS = "`<!-- KIND NAME SCALE -->` to `<!-- end -->`, or `<!-- value NAME -->` to `<!-- -->`"
BLOCK = re.compile(r"(<!-- (?!value )(\S+) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
VALUE = re.compile(r"(<!-- value ([^>]+?) -->)[^<]*(<!-- -->)")
OPENING = re.compile(r"<!-- (?!end -->|-->)")


class Record:
    """The record: its lines by scale and its joined studies, each read once."""

    def __init__(self, mlruns: Path) -> None:
        self.mlruns = mlruns
        self._results: dict[Path, pd.DataFrame] = {}
        self.runs = cache(partial(csv_record.read_runs, mlruns=mlruns))
        self._curves = cache(partial(csv_record.read_curves, mlruns=mlruns))
        self.pairs = cache(partial(csv_record.read_pairs, mlruns=mlruns))
        self.searches = cache(partial(csv_record.read_searches, mlruns=mlruns))
        self._studies: dict[tuple[str, str], Study] = {}
        self._chosen: dict[tuple[str, ...], list[Study]] = {}
        self._joined: dict[tuple[str, str], Results] = {}
        self.plan = cache(lambda scale: PlanVerdicts(tuple(map(self.of, self.studies(["plan"], scale)))))

    def results(self, scale: str) -> pd.DataFrame:
        """Return every score and its run in the record that holds the scale."""
        folder = csv_record.folder_for(scale, self.mlruns)
        if folder not in self._results:
            self._results[folder] = csv_record.read_results(scale, self.mlruns)
        return self._results[folder]

    def studies(self, names: Sequence[str], scale: str) -> list[Study]:
        """Return the named studies; each is made once, so that the keys of its runs are hashed once."""
        if (*names, scale) not in self._chosen:
            chosen = catalogue.choose_studies(list(names), scale)
            made = [self._studies.setdefault((study.scale.name, study.name), study) for study in chosen]
            self._chosen[*names, scale] = made
        return self._chosen[*names, scale]

    def of(self, study: Study) -> Results:
        """Return a study's cells."""
        scale, key = study.scale.name, (study.scale.name, study.name)
        if key not in self._joined:
            self._joined[key] = join(study, self.results(scale), self._curves(scale))
        return self._joined[key]

    def in_column(self, name: str, column: str, scale: str) -> Results:
        """Return a study's cells in a column that its table may not show."""
        study = catalogue.single(name, scale)
        if column not in study.needed_columns:
            study = replace(study, name=f"{name}-{column}", columns=(column,), contrasts=(), findings=())
        return self.of(study)


@dataclass(frozen=True)
class Request:
    """What a block shows: its name and scale, and the record."""

    name: str
    scale: str
    record: Record

    def choose(self, names: str) -> list[Results]:
        """Return the results of the studies that a name selects."""
        return list(map(self.record.of, self.record.studies([names], self.scale)))

    @property
    def results(self) -> Results:
        """The results of the one study that the block names."""
        return self.record.of(catalogue.single(self.name, self.scale))

    @property
    def plan(self) -> PlanVerdicts:
        """The plan's verdicts at the scale."""
        return self.record.plan(self.scale)


Maker = TypeVar("Maker", bound=Callable[..., str | Grid])
BLOCKS: dict[str, Callable[[Request], str | Grid]] = {}


def block(*kinds: str, of: Callable[[Request], tuple[Any, ...]] = lambda ask: ()) -> Callable[[Maker], Maker]:
    """Register a function that makes the blocks of a kind, or of a kind and a name; `of` makes its arguments."""

    def register(function: Maker) -> Maker:
        BLOCKS.update(dict.fromkeys(kinds, lambda ask: function(*of(ask))))
        return function

    return register


def block_text(kind: str, request: Request) -> str:
    """Return a block as Markdown."""
    make = BLOCKS.get(f"{kind} {request.name}") or BLOCKS.get(kind)
    if make is None:
        raise ValueError(f"no block `{kind} {request.name}`; there are {', '.join(sorted(BLOCKS))}")
    made = make(request)
    return made if isinstance(made, str) else markdown(made)


def fill_page(page: str, record: Record) -> str:
    """Return a page with every block and value made from the record."""
    if len(OPENING.findall(page)) != len(BLOCK.findall(page)) + len(VALUE.findall(page)):
        raise ValueError(f"a block or value is not closed or has another form; expected {FORMS}")

    def fill_value(match: re.Match[str]) -> str:
        return f"{match[1]}{block_text('value', Request(' '.join(match[2].split()), 'small', record))}{match[3]}"

    def fill_block(match: re.Match[str]) -> str:
        head, kind, name, scale, end = match.groups()
        return f"{head}{block_text(kind, Request(name, scale, record))}\n{end}"

    return BLOCK.sub(fill_block, VALUE.sub(fill_value, page))
