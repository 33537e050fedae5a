"""The rehearsed runs: every method on every shape, and a row of every study, cut to a few steps.

All settings are those of scale `paper`, except for the length of the run and what a machine without a GPU can't do.
Each row names its changes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.method import Method, with_fields
from cse_core.run import Corpus, Pretrained, Run
from experiments.execution.job import Job, Scoring
from experiments.execution.plan import required_jobs
from experiments.schema.recipes import RUNS, first_lines, rankcse_with
from experiments.schema.rows import AS_IS
from experiments.schema.scales import SCALES
from experiments.schema.study import Row, Scale, Study, replace_runs
from experiments.schema.study_parts import shorten
from experiments.studies.catalogue import PAPERS, PLANNED
from tests.benchmarks.rehearsal.stand_ins import StandIn

PAPER = SCALES["paper"]
STAND_IN = "stand-in"  # instead of a scale's name, so that no result looks like one of the scale
METHODS = "as published"  # instead of a study's name, for methods
MAKERS: Mapping[str, Callable[..., Run | None]] = {**RUNS, "rankcse, ListMLE": rankcse_with("list_mle")}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How runs are cut: steps, the largest batch and the precision (0 and "" mean as published), the parser.

    Scorers are fitted on `fitted` sentences. With `parser`, SNCSE's negations are made by spaCy, as published;
    otherwise by word lists.
    """

    steps: int = 3
    batch: int = 0
    precision: str = ""
    fitted: int = 1000
    parser: bool = True


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """One row: a run of scale `paper` on a stand-in, cut short, and the settings that this changes."""

    study: str
    name: str
    backbone: str  # by the papers' name
    job: Job
    changes: str = ""

    @property
    def run(self) -> Run | None:
        """The run; None for an encoder that is scored as it is."""
        return self.job.encoder if isinstance(self.job.encoder, Run) else None


def stand_in_scale(shapes: Mapping[str, StandIn], corpus: str = "", **changes: Any) -> Scale:
    """Return scale `paper` with stand-ins for its encoders and, if named, another corpus."""
    used = Corpus(corpus, PAPER.corpus.lines) if corpus else PAPER.corpus
    backbones = {name: Pretrained(shape.name) for name, shape in shapes.items()}
    return replace(PAPER, backbones=backbones, corpus=used, **changes)


def rehearsed_methods(scale: Scale, limits: Limits, task: str) -> Iterator[Rehearsed]:
    """Yield each method on each backbone for which it has published settings."""
    for name, make in MAKERS.items():
        for backbone in scale.backbones:
            try:
                run = make(scale, backbone)
            except ValueError:  # no source states settings for this backbone
                continue
            if run:
                yield _make_row(METHODS, name, backbone, run, limits, task, Cosine())


def rehearsed_studies(scale: Scale, limits: Limits, task: str) -> Iterator[Rehearsed]:
    """Yield one row of each study that scores something: if possible a trained one that no earlier study has."""
    started: set[str] = set()
    for study in _studies(scale):
        if rows := _scored_rows(study):
            row = min(rows, key=lambda row: (not isinstance(row.encoder, Run), _content(row) in started))
            started.add(_content(row))
            encoder = row.runs()[0] if isinstance(row.encoder, Run) else row.encoder
            assert encoder is not None
            yield _make_row(study.name, row.label, row.backbone, encoder, limits, task, row.scorer)


def studies_without_runs(scale: Scale = PAPER) -> list[str]:
    """Return the names of the studies that start nothing: they show settings, costs or other studies' runs."""
    return [study.name for study in _studies(scale) if not _scored_rows(study)]


def _studies(scale: Scale) -> Iterator[Study]:
    return (make(scale) for studies in (PAPERS | PLANNED).values() for make in studies.values())


def _scored_rows(study: Study) -> list[Row]:
    return [row for row in study.rows if row.encoder is not None] if study.tasks else []


def needed_jobs(rehearsed: Rehearsed) -> list[Job]:
    """Return the jobs of the runs that must be trained first (teachers, bases), each after those that it needs."""
    return required_jobs(rehearsed.run, rehearsed.job.scale, ()) if rehearsed.run else []


def encoders_of(value: Any) -> set[str]:
    """Return the names of all pre-trained encoders that a run and its nested runs use."""
    if isinstance(value, Pretrained):
        return {value.name}
    if isinstance(value, tuple):
        return set().union(*map(encoders_of, value))
    if not is_dataclass(value) or isinstance(value, type):
        return set()
    return set().union(*(encoders_of(getattr(value, f.name)) for f in fields(value)))


def _content(row: Row) -> str:
    return f"{next(iter(row.keys().values()))} {row.scorer}"


def _make_row(
    study: str, name: str, backbone: str, encoder: Run | Pretrained, limits: Limits, task: str, scorer: Scorer
) -> Rehearsed:
    trained = isinstance(encoder, Run)
    cut = cut_run(encoder, limits) if trained else encoder
    scoring = Scoring("last" if trained else AS_IS, _cut_scorer(scorer, limits.fitted), (task,))
    job = Job(cut, STAND_IN, f"{name} {backbone}", (scoring,), (study,))
    changes = _changes(encoder, cut) if trained and isinstance(cut, Run) else ""
    return Rehearsed(study=study, name=name, backbone=backbone, job=job, changes=changes)


def cut_run(run: Run, limits: Limits) -> Run:
    """Cut a run, and the runs that it needs, to a few steps, on as many sentences as the largest batch requires."""
    lighter = _lighten(run, limits)
    largest = max(each.batch_size for each in (lighter, *lighter.required_checkpoints()))
    return shorten(_selected_last(lighter), limits.steps, limits.steps * largest)


def _lighten(run: Run, limits: Limits) -> Run:
    """Apply the limits to a run and its nested runs."""
    method: Method = replace_runs(run.method, {nested: _lighten(nested, limits) for nested in run.nested()})
    if not limits.parser and getattr(method, "negation", "") == "spacy":
        method = with_fields(method, negation="words")
    batch = min(run.batch_size, limits.batch or run.batch_size)
    return replace(run, method=method, batch_size=batch, precision=limits.precision or run.precision)


def _selected_last(run: Run) -> Run:
    """Return the run with its nested runs' last checkpoints, instead of those that a dev set would choose."""
    return replace(run, method=_select_last(run.method))


def _select_last(value: Any) -> Any:
    if isinstance(value, Run):
        return _selected_last(value)
    if isinstance(value, tuple):
        return tuple(map(_select_last, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {f.name: _select_last(getattr(value, f.name)) for f in fields(value)}
    return replace(value, **changed | ({"select": "last"} if "select" in changed else {}))


def _cut_scorer(scorer: Scorer, lines: int) -> Scorer:
    """Return the scorer with at most this many sentences to fit on or rank."""
    corpus: Corpus | None = getattr(scorer, "corpus", None)
    if corpus is None:
        return scorer
    shorter: dict[str, Any] = {"corpus": first_lines(corpus, min(lines, corpus.lines))}
    if size := getattr(scorer, "size", 0):
        shorter["size"] = min(lines, size)
    return replace(cast(Any, scorer), **shorter)


def _changes(published: Run, cut: Run) -> str:
    """Name the settings that differ from the published ones, besides the numbers of steps and sentences."""
    pairs: list[tuple[Any, Any, str]] = [(published, cut, name) for name in ("batch_size", "precision")]
    pairs += [(published.method, cut.method, name) for name in ("negation", "corpus_size")]
    values = [(name, getattr(before, name, None), getattr(after, name, None)) for before, after, name in pairs]
    return "; ".join(f"{name} {new}, published {old}" for name, old, new in values if old != new)
