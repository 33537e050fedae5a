"""Define studies, each one table or figure, and scales, the sizes at which studies run."""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import Any

from cse_core.data.senteval import TRANSFER
from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.method import Method, Recipe, innermost, with_fields
from cse_core.run import Corpus, Pretrained, Run, key_of
from experiments.schema.columns import PUBLISHED_NAMES, column
from experiments.schema.contrasts import EXPLORATORY, Contrast
from experiments.schema.hypotheses import Finding

BY_TRANSFER = "transfer_dev"  # selects the snapshot of a run that is best on the transfer tasks' dev sets
BY_TEST = "sts_test"  # selects the snapshot that is best on the test sets: what MoCoSE's code does, as a control
SNAPSHOTS = ("quarter_1", "quarter_2", "quarter_3", "last")
ARRAY_VIEWS = ("ridges", "spaces", "heat", "neighbours", "densities")  # figures that draw arrays, not only scores
SOURCES = {"rankcse": "RankCSE", "rankencoder": "RankEncoder", "whitenedcse": "WhitenedCSE", "compcse": "CompCSE"}
UNNAMED = "unnamed"  # a study, and its scale, before `named` gives it both
NAME = re.compile(r"\w[\w.-]{0,99}")
RUN_FIELDS = {f.name for f in fields(Run)}
PUBLISHED_FOLDER = Path(__file__).parents[1] / "published"


def is_transfer(task: str) -> bool:
    """Whether a task is a transfer task, in either of SentEval's settings."""
    return task.removesuffix("_fast") in TRANSFER


def check_name(kind: str, name: str) -> None:
    """Refuse the name of a study or scale that can't name a file or folder."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{kind} {name!r}: expected a name of at most 100 letters, digits, '-', '_' and '.', without '-' or '.' "
            "first; files and folders get this name"
        )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A size at which studies run: its backbones, its corpus, its seeds and the settings that it overrides.

    `backbones` maps the papers' names to the encoders used here; rows of any other backbone are not run. `training`
    overrides training fields of every recipe except its fixed ones. `rescaled` overrides fields of a method or of its
    training, by method and backbone. `backbone_seeds` has the seeds of backbones that run with fewer.
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
    width: int | None = None  # of embeddings, where it differs from the papers'
    notes: str = ""

    def __post_init__(self) -> None:
        check_name("scale", self.name)

    def run(self, recipe: Recipe, backbone: str, **fields: Any) -> Run | None:
        """Return the recipe's run at this scale with the first seed; None if the scale has no such backbone.

        `fields` of the method override both the published settings and this scale's.
        """
        if backbone not in self.backbones:
            return None
        method = with_fields(self.rescale(recipe.method, backbone), **fields)
        replaced = {name: value for name, value in self.training.items() if name not in recipe.fixed}
        changed = {k: v for k, v in self._changes(recipe.method, backbone).items() if k in RUN_FIELDS}
        settings: dict[str, Any] = recipe.training | replaced | changed | {"seed": self.seeds[0]}
        return Run(method=method, backbone=self.backbones[backbone], corpus=self.corpus, **settings)

    def rescale(self, method: Method, backbone: str) -> Method:
        """Return the method and its inner ones, with the fields that this scale replaces for the papers' backbone."""
        changes = {name: v for name, v in self._changes(method, backbone).items() if name not in RUN_FIELDS}
        inner: Method | None = getattr(method, "inner", None)
        return with_fields(method, **changes, **({"inner": self.rescale(inner, backbone)} if inner else {}))

    def _changes(self, method: Method, backbone: str) -> Mapping[str, Any]:
        return self.rescaled.get(method.name, {}).get(backbone, {})

    def seeds_for(self, backbone: str) -> tuple[int, ...]:
        return self.backbone_seeds.get(backbone, self.seeds)


UNSCALED = Scale(name=UNNAMED, title="", backbones={}, corpus=Corpus(UNNAMED, 1), seeds=())


@dataclass(frozen=True)
class Published:
    """A row of a published table; `columns` maps our columns to headings that differ from PUBLISHED_NAMES."""

    table: str
    backbone: str
    method: str
    variant: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """Return the published number of a column; None if the table has none."""
        line = self.line(name)
        return float(line["value"]) if line and line["value"] else None

    def std(self, name: str) -> float | None:
        """Return the published standard deviation of a column; None if the table has none."""
        line = self.line(name)
        return float(line["std"]) if line and line["std"] else None

    def line(self, name: str) -> Mapping[str, str] | None:
        """Return the line of the CSV that has a column's number; None if there is no such line."""
        heading = self.columns.get(name, PUBLISHED_NAMES.get(name, name))
        lines = [line for line in published_lines(self.table) if line["task"] == heading and self._is(line)]
        if len(lines) > 1:
            raise ValueError(
                f"{self.table}: {len(lines)} values for {self.method}, {self.backbone}, {heading}; expected one"
            )
        return lines[0] if lines else None

    def _is(self, row: Mapping[str, str]) -> bool:
        same = row["backbone"] == self.backbone and row["method"] == self.method
        return same and self.variant in (None, row["variant"])


@cache
def published_lines(table: str) -> tuple[dict[str, str], ...]:
    """Return all lines of a published table."""
    path = PUBLISHED_FOLDER / f"{table}.csv"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such published table")
    with path.open(newline="") as file:
        return tuple(csv.DictReader(file))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table: what is scored and how, and the published row to compare it with.

    `encoder` is a Run (trained once for each of `seeds`), a Pretrained encoder that needs no training, or None for a
    row of published numbers only; `why` then gives the reason ("imported", or why it is not run). `vary="student"`
    keeps nested runs as declared; `vary="all"` gives them the row's seed; `teacher_seeds` gives them these in turn.
    `metric` overrides the study's metric.
    """

    label: str
    encoder: Run | Pretrained | None
    short: str = ""  # the name in MLflow, whose pages cut names after ten to twenty characters
    backbone: str = ""
    seeds: tuple[int, ...] = ()
    scorer: Scorer = field(default_factory=Cosine)
    select: str = "stsb_dev"
    vary: str = "student"
    teacher_seeds: tuple[int, ...] = ()
    metric: str = ""
    published: Published | None = None
    published_runs: int = 1  # how many runs the published number is the mean of
    why: str = ""
    note: str = ""  # what a reader must know about the published number or the run, besides its label

    def __post_init__(self) -> None:
        if not self.label.isprintable():
            raise ValueError(f"row {self.label!r}: expected a label of one line, for tables")
        if self.vary not in ("student", "all"):
            raise ValueError(f"vary must be student or all, got {self.vary!r}")
        if self.vary == "all" and self.teacher_seeds:
            raise ValueError(f"row {self.label}: expected vary='all' or teacher_seeds, got both")
        if self.encoder is None and not self.why:
            raise ValueError(f"row {self.label}: a row without an encoder needs a reason (why)")

    @property
    def selects(self) -> tuple[str, ...]:
        """The selection rules of the checkpoints that must be scored for the row."""
        return SNAPSHOTS if self.select in (BY_TRANSFER, BY_TEST) else (self.select,)

    @property
    def substitute(self) -> str:
        """What replaces a part of the paper's set-up in this row, as the row or its method says; empty if nothing."""
        if self.encoder is None or self.why:
            return self.why if self.encoder else ""
        method = innermost(self.encoder.method) if isinstance(self.encoder, Run) else None
        return getattr(method, "substituted", "")

    def runs(self) -> tuple[Run, ...]:
        """Return the row's run for each seed."""
        return self._runs

    @cached_property
    def _runs(self) -> tuple[Run, ...]:  # the same objects at each call, so each key is hashed once
        if not isinstance(self.encoder, Run):
            return ()
        if self.teacher_seeds:
            pairs = zip(self.seeds, cycle(self.teacher_seeds), strict=False)
            return tuple(replace(with_seed(self.encoder, nested, nested=True), seed=seed) for seed, nested in pairs)
        return tuple(with_seed(self.encoder, seed, nested=self.vary == "all") for seed in self.seeds)

    def keys(self) -> dict[int, str]:
        """Return the key of what is scored, by seed; a pre-trained encoder has one key, under seed 0."""
        if isinstance(self.encoder, Pretrained):
            return {0: pretrained_key(self.encoder)}
        return {run.seed: run.key for run in self.runs()}


def pretrained_key(encoder: Pretrained) -> str:
    """Return the key of an untrained encoder's scores in the record."""
    return key_of({"pretrained": encoder.identity})


def with_seed(run: Run, seed: int, *, nested: bool) -> Run:
    """Return the run with another seed; with `nested`, its teachers and bases get it too."""
    method: Method = run.method
    if nested:
        method = replace_runs(method, {old: with_seed(old, seed, nested=True) for old in run.nested()})
    return replace(run, seed=seed, method=method)


def setting_of(encoder: Run | Pretrained) -> str:
    """Return a name for the settings that a run shares with other seeds, nested ones too: method, hash, fields."""
    if isinstance(encoder, Pretrained):
        return encoder.name
    changed = {name: value for name, value in encoder.non_defaults().items() if name not in RUN_FIELDS}
    shown = [f"{name}={value}" for name, value in changed.items() if " seed " not in str(value)]
    return " ".join([encoder.method.name, with_seed(encoder, 0, nested=True).key[:6], *shown])


def replace_runs(value: Any, new: Mapping[Run, Run]) -> Any:
    """Return a value with the runs in it replaced, also those inside tuples and dataclasses."""
    if isinstance(value, Run):
        return new.get(value, value)
    if isinstance(value, tuple):
        return tuple(replace_runs(item, new) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: replace_runs(getattr(value, f.name), new) for f in fields(value)})
    return value


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table or figure at one scale. `columns` are names in columns.py; `view` is how it is drawn.

    Transfer columns show `transfer_metric` (`acc` or `devacc`, never both in one table), all others `metric`. A study
    whose columns need no task (settings, costs) trains nothing. `twin` is the table whose numbers a figure draws.
    """

    name: str = UNNAMED  # `named` gives it, the scale, and the source of a paper's table or figure
    source: str = ""
    question: str
    scale: Scale = UNSCALED
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ("sts_avg",)
    metric: str = "spearman.all"
    transfer_metric: str = "acc"
    contrasts: tuple[Contrast, ...] = ()
    findings: tuple[Finding, ...] = ()  # tests that are not contrasts
    view: str = "table"
    twin: str = ""
    caption: str = ""  # for a figure: how it differs from the paper's
    file: str = ""  # of a user's own study, whose runs enter no other record

    def __post_init__(self) -> None:
        check_name("study", self.name)
        labels = [row.label for row in self.rows]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        unknown = {label for tested in self.tested for label, _ in tested.cells}
        if twice or unknown - set(labels):
            raise ValueError(
                f"{self.name}: rows declared twice {twice}, rows compared but not declared {unknown - set(labels)}"
            )

    @property
    def tested(self) -> tuple[Contrast | Finding, ...]:
        """All that is compared."""
        return (*self.contrasts, *self.findings)

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims that it is about; a plan's exploratory contrasts have subjects, not claims."""
        contrasts = (each for each in self.contrasts if each.role != EXPLORATORY or not each.family)
        return tuple(dict.fromkeys(each.claim for each in (*contrasts, *self.findings) if each.claim))

    def metric_of(self, row: Row, name: str, task: str) -> str:
        """Return the metric of a task that a row shows in a column."""
        return column(name).metric or row.metric or (self.transfer_metric if is_transfer(task) else self.metric)

    @cached_property
    def needed_columns(self) -> tuple[str, ...]:
        """The columns that are shown or tested."""
        return tuple(dict.fromkeys((*self.columns, *(name for tested in self.tested for _, name in tested.cells))))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that must be scored for these columns; the scale's dev if only curves of training are shown."""
        tasks = tuple(dict.fromkeys(task for name in self.needed_columns for task in column(name).tasks))
        has_curves = any(column(name).is_of_curve for name in self.needed_columns)
        return tasks or ((self.scale.dev,) if has_curves else ())


StudyAt = Callable[[Scale], Study]


def named(studies: Mapping[str, StudyAt]) -> dict[str, StudyAt]:
    """Wrap the functions so that each study gets its key as name, its scale and, if from a paper, its source."""
    return {name: partial(_named, name, study) for name, study in studies.items()}


def _named(name: str, make: StudyAt, scale: Scale) -> Study:
    study = make(scale)
    return replace(study, name=name, scale=scale, source=study.source or source_of(name))


def source_of(name: str) -> str:
    """Return the paper's table or figure that a study is named after; empty if there is none."""
    paper, _, about = name.partition("-")
    match = re.fullmatch(r"(table|figure)(\d+\w*)", about)
    return f"{SOURCES[paper]}, {match[1].capitalize()} {match[2]}" if match and paper in SOURCES else ""
