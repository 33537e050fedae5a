"""Choose parts of studies: some rows, backbones or seeds of them, or runs cut short to try something.

A run in a part has the same settings, and so the same key, as in the whole study. A run that is cut short has another
key. The runs that it needs are cut short with it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Any

from cse_core.lookup import unknown
from cse_core.method import Method, with_fields
from cse_core.run import Run
from experiments.schema.recipes import first_lines
from experiments.schema.scales import RESERVED_SEEDS, seed_stream
from experiments.schema.study import Row, Study, replace_runs


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What to choose from each study: everything where a field is empty or 0.

    `rows` are labels or parts of labels, `backbones` the papers' names. A single number in `seeds` is how many to take
    from a row's stream (scales.seed_stream); several are the seeds themselves.
    """

    rows: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    max_steps: int = 0
    corpus_lines: int = 0


def choose_parts(studies: Sequence[Study], parts: Parts) -> list[Study]:
    """Return the studies with the chosen rows, seeds and lengths; a study without such a row is left out."""
    if parts.backbones:
        studies = _with_rows(studies, _rows_on(studies, parts.backbones))
    if parts.rows:
        studies = _with_rows(studies, _rows_named(studies, parts.rows))
    if parts.seeds:
        studies = [_map_rows(study, lambda row: _with_seeds(row, parts.seeds)) for study in studies]
    if parts.max_steps or parts.corpus_lines:
        _check_lines(studies, parts.corpus_lines)
        studies = [_map_rows(study, lambda row: _shortened_row(row, parts)) for study in studies]
    return list(studies)


def _rows_on(studies: Sequence[Study], backbones: Sequence[str]) -> Callable[[Row], bool]:
    present = dict.fromkeys(row.backbone for study in studies for row in study.rows if row.backbone)
    for name in backbones:
        if name not in present:
            raise unknown("backbone", name, present)
    return lambda row: row.backbone in backbones


def _rows_named(studies: Sequence[Study], names: Sequence[str]) -> Callable[[Row], bool]:
    """Return a test of rows: a label chooses the row that has it; any other name, the rows whose labels contain it."""
    labels = dict.fromkeys(row.label for study in studies for row in study.rows)
    chosen: set[str] = set()
    for name in names:
        matching = {name} & labels.keys() or {label for label in labels if name.casefold() in label.casefold()}
        if not matching:
            raise _unknown_row(name, labels)
        chosen |= matching
    return lambda row: row.label in chosen


def _unknown_row(name: str, labels: Collection[str]) -> ValueError:
    """Return the error for an unknown row: it lists the rows with a similar word, and all rows."""
    words = {word.casefold(): label for label in labels for word in re.split(r"[ ,:-]+", label)}
    words |= {label.casefold(): label for label in labels}  # a whole label, rather than a longer one with this word
    similar = dict.fromkeys(words[word] for word in get_close_matches(name.casefold(), words))
    hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
    return ValueError(f"unknown row {name!r}{hint}; known: {'; '.join(labels)}")


def _with_rows(studies: Sequence[Study], chosen: Callable[[Row], bool]) -> list[Study]:
    """Return the studies with the chosen rows, all columns, and the tests that need no other row."""
    left = []
    for study in studies:
        rows = tuple(filter(chosen, study.rows))
        labels = {row.label for row in rows}
        if rows:
            kept = {
                name: tuple(tested for tested in getattr(study, name) if {row for row, _ in tested.cells} <= labels)
                for name in ("contrasts", "findings")
            }
            left.append(replace(study, rows=rows, columns=study.needed_columns, **kept))
    return left


def _map_rows(study: Study, change: Callable[[Row], Row]) -> Study:
    return replace(study, rows=tuple(change(row) if isinstance(row.encoder, Run) else row for row in study.rows))


def _with_seeds(row: Row, seeds: Sequence[int]) -> Row:
    if len(seeds) == 1:
        return replace(row, seeds=tuple(islice(seed_stream(row.seeds), seeds[0])))
    reserved = sorted(RESERVED_SEEDS.intersection(seeds) - set(row.seeds))
    if reserved:
        raise ValueError(
            f"--seeds: {reserved[0]} is kept for searches, pilots or the plan; row {row.label} has "
            f"{', '.join(map(str, row.seeds))}; expected these or any that is not kept"
        )
    return replace(row, seeds=tuple(dict.fromkeys(seeds)))


def _check_lines(studies: Sequence[Study], lines: int) -> None:
    """Refuse more lines than any run's corpus has: nothing would be cut."""
    runs = [row.encoder for study in studies for row in study.rows if isinstance(row.encoder, Run)]
    most = max((run.corpus.lines for run in runs), default=lines)
    if lines > most:
        raise ValueError(f"--corpus-lines {lines}: expected at most {most}, the lines of the largest corpus")


def _shortened_row(row: Row, parts: Parts) -> Row:
    assert isinstance(row.encoder, Run)
    if row.encoder.batch_size > (parts.corpus_lines or row.encoder.batch_size):
        raise ValueError(
            f"--corpus-lines {parts.corpus_lines}: expected at least {row.encoder.batch_size}, "
            f"a batch of row {row.label}"
        )
    return replace(row, encoder=shorten(row.encoder, parts.max_steps, parts.corpus_lines))


def _ranking_at_most(method: Method, lines: int) -> Method:
    """Return the method with at most `lines` sentences to rank (RankEncoder), also in its inner method."""
    inner = getattr(method, "inner", None)
    changes: dict[str, Any] = {} if inner is None else {"inner": _ranking_at_most(inner, lines)}
    if getattr(method, "corpus_size", 0) > lines:
        changes["corpus_size"] = lines
    return with_fields(method, **changes)


def shorten(run: Run, max_steps: int, lines: int) -> Run:
    """Cut a run, and the runs that it needs, to `max_steps` steps on `lines` lines; 0 means all."""
    method: Method = replace_runs(run.method, {old: shorten(old, max_steps, lines) for old in run.nested()})
    lines = min(lines or run.corpus.lines, run.corpus.lines)
    return replace(
        run, method=_ranking_at_most(method, lines), max_steps=max_steps, corpus=first_lines(run.corpus, lines)
    )
