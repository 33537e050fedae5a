"""A study is one table or figure as a value; a scale is the size at which studies run."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from cse_core.data.senteval import TRANSFER
from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.method import Method, Recipe, innermost, with_fields
from cse_core.run import Corpus, Pretrained, Run, key_of
from experiments.schema.columns import PUBLISHED_NAMES, column
from experiments.schema.hypotheses import Comparison, Finding

BY_TRANSFER = "transfer_dev"  # of a run's snapshots, the one that is best on the transfer tasks' dev sets
SNAPSHOTS = ("quarter_1", "quarter_2", "quarter_3", "last")
ARRAY_VIEWS = ("ridges", "spaces", "heat", "neighbours", "densities")  # of figures that show more than scores
OF_RUNS = {f.name for f in fields(Run)}
PUBLISHED_FOLDER = Path(__file__).parents[1] / "published"


def is_transfer(task: str) -> bool:
    """Whether a task is a transfer task, in either of SentEval's settings."""
    return task.removesuffix("_fast") in TRANSFER


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A size at which studies run: which backbone stands for which, how much data, which settings replace a recipe's.

    `backbones` maps the papers' names to what stands for them here; a paper's backbone without an entry is not run.
    `training` overrides a recipe's training fields but its fixed ones, `rescaled` fields of a method, or of its
    training, by its name and backbone; `seeds` may be fewer for some backbones.
    """

    name: str
    title: str
    backbones: Mapping[str, Pretrained]
    corpus: Corpus
    seeds: tuple[int, ...]
    dev: str = "stsb_dev"
    training: Mapping[str, Any] = field(default_factory=dict)
    rescaled: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    backbone_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    width: int | None = None  # of vectors, where the stand-ins' is not the papers'
    notes: str = ""

    def run(self, recipe: Recipe, backbone: str, **fields: Any) -> Run | None:
        """The recipe's run at this scale with the first seed; None where the scale has nothing for this backbone.

        `fields` of the method come last: over what is published, and over what this scale makes of it.
        """
        if backbone not in self.backbones:
            return None
        method = with_fields(self._rescaled(recipe.method, backbone), **fields)
        replaced = {name: value for name, value in self.training.items() if name not in recipe.fixed}
        own = {k: v for k, v in self._changes(recipe.method, backbone).items() if k in OF_RUNS}
        settings: dict[str, Any] = recipe.training | replaced | own | {"seed": self.seeds[0]}
        return Run(method=method, backbone=self.backbones[backbone], corpus=self.corpus, **settings)

    def _rescaled(self, method: Method, backbone: str) -> Method:
        changes = {name: v for name, v in self._changes(method, backbone).items() if name not in OF_RUNS}
        inner: Method | None = getattr(method, "inner", None)
        return with_fields(method, **changes, **({"inner": self._rescaled(inner, backbone)} if inner else {}))

    def _changes(self, method: Method, backbone: str) -> Mapping[str, Any]:
        return self.rescaled.get(method.name, {}).get(backbone, {})

    def seeds_for(self, backbone: str) -> tuple[int, ...]:
        return self.backbone_seeds.get(backbone, self.seeds)


@dataclass(frozen=True)
class Published:
    """A row of one of the papers' tables: `columns` where the paper's headings are not PUBLISHED_NAMES."""

    table: str
    backbone: str
    method: str
    variant: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """The number printed under a column; None where the table has no such column."""
        line = self.line(name)
        return float(line["value"]) if line and line["value"] else None

    def std(self, name: str) -> float | None:
        """The printed standard deviation, where the table has one."""
        line = self.line(name)
        return float(line["std"]) if line and line["std"] else None

    def line(self, name: str) -> Mapping[str, str] | None:
        """The line of the CSV under a column."""
        heading = self.columns.get(name, PUBLISHED_NAMES.get(name, name))
        lines = [line for line in published_rows(self.table) if self._is(line) and line["task"] == heading]
        if len(lines) > 1:
            raise ValueError(
                f"{self.table}: {len(lines)} values for {self.method}, {self.backbone}, {heading}; wanted one"
            )
        return lines[0] if lines else None

    def _is(self, row: Mapping[str, str]) -> bool:
        same = row["backbone"] == self.backbone and row["method"] == self.method
        return same and self.variant in (None, row["variant"])


@cache
def published_rows(table: str) -> tuple[dict[str, str], ...]:
    """All lines of a published table."""
    path = PUBLISHED_FOLDER / f"{table}.csv"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such published table")
    with path.open(newline="") as file:
        return tuple(csv.DictReader(file))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: what is scored and how, and the published line beside it.

    `encoder` is a Run (each of `seeds` replaces its seed), a Pretrained encoder that needs no training, or None: then
    the published numbers stand alone and `why` says why ("imported", or the reason why it is not run).
    `vary="student"` keeps nested runs as declared; `vary="all"` gives them the same seed. `metric` is what this row
    shows where its study's is another.
    """

    label: str
    encoder: Run | Pretrained | None
    short: str = ""  # what MLflow calls it: its pages cut names after ten to twenty characters
    backbone: str = ""
    seeds: tuple[int, ...] = ()
    scorer: Scorer = field(default_factory=Cosine)
    select: str = "stsb_dev"
    vary: str = "student"
    metric: str = ""
    published: Published | None = None
    published_runs: int = 1  # of how many runs the published number is the mean
    why: str = ""

    def __post_init__(self) -> None:
        if self.vary not in ("student", "all"):
            raise ValueError(f"vary must be student or all, got {self.vary!r}")
        if self.encoder is None and not self.why:
            raise ValueError(f"row {self.label}: without an encoder it must say why")

    @property
    def selects(self) -> tuple[str, ...]:
        """The kept checkpoints that the row's choice is made of."""
        return SNAPSHOTS if self.select == BY_TRANSFER else (self.select,)

    @property
    def substitute(self) -> str:
        """What stands in for a piece of the paper in a row that is run, by its own word or its method's."""
        if self.encoder is None or self.why:
            return self.why if self.encoder else ""
        method = innermost(self.encoder.method) if isinstance(self.encoder, Run) else None
        return getattr(method, "substituted", "")

    def runs(self) -> tuple[Run, ...]:
        """The row's run under each seed."""
        if not isinstance(self.encoder, Run):
            return ()
        return tuple(reseeded(self.encoder, seed, nested=self.vary == "all") for seed in self.seeds)

    def keys(self) -> dict[int, str]:
        """Seed -> key of what is scored; a pre-trained encoder has one key under seed 0."""
        if isinstance(self.encoder, Pretrained):
            return {0: pretrained_key(self.encoder)}
        return {run.seed: run.key for run in self.runs()}


def pretrained_key(encoder: Pretrained) -> str:
    """The key under which an untrained encoder's scores are recorded."""
    return key_of({"pretrained": encoder.identity})


def reseeded(run: Run, seed: int, *, nested: bool) -> Run:
    """The run with another seed; with `nested`, its teachers and bases as well."""
    method: Method = run.method
    if nested:
        method = _swap(method, {old: reseeded(old, seed, nested=True) for old in run.nested()})
    return replace(run, seed=seed, method=method)


def _swap(value: Any, new: Mapping[Run, Run]) -> Any:
    if isinstance(value, Run):
        return new.get(value, value)
    if isinstance(value, tuple):
        return tuple(_swap(item, new) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _swap(getattr(value, f.name), new) for f in fields(value)})
    return value


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table or figure at one scale. `columns` are names of columns.py; `view` is how it is drawn.

    Columns of pairs show `metric`, transfer columns `transfer_metric`: `acc` or `devacc`, never both in one table. A
    study without tasks (settings, costs) trains nothing. A figure of a table's numbers names that table as its `twin`.
    """

    name: str
    source: str
    question: str
    scale: Scale
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    metric: str = "spearman.all"
    transfer_metric: str = "acc"
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = ()
    view: str = "table"
    twin: str = ""
    caption: str = ""  # of a figure: what the paper's has and this one lacks, or the other way round

    def __post_init__(self) -> None:
        labels = [row.label for row in self.rows]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        unknown = {c.better for c in self.comparisons} | {c.worse for c in self.comparisons}
        if twice or unknown - set(labels):
            raise ValueError(
                f"{self.name}: rows declared twice {twice}, rows compared but unknown {unknown - set(labels)}"
            )

    def metric_of(self, row: Row, name: str, task: str) -> str:
        """The metric of a task that a row shows in a column."""
        return column(name).metric or row.metric or (self.transfer_metric if is_transfer(task) else self.metric)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are shown, compared or looked at."""
        compared = (comparison.column for comparison in self.comparisons)
        return tuple(dict.fromkeys((*self.columns, *compared, *(c for f in self.findings for c in f.columns))))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that must be scored for the columns."""
        return tuple(dict.fromkeys(task for name in self.read for task in column(name).tasks))


StudyAt = Callable[[Scale], Study]
