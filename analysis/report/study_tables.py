"""Which grids show a study, and the notes that stand under them."""

from collections.abc import Callable, Iterable, Sequence

from analysis.cells import NOT_RUN, Cell, Results
from analysis.report.formats import DASH, Grid, interval, measured, number
from analysis.stats import significance
from cse_core.run import Pretrained, Run
from experiments.schema.columns import COLUMNS, column
from experiments.schema.study import Row

WIDE = 4  # from so many columns on, ours and the published numbers are two tables
SETTINGS = {name for name, shown in COLUMNS.items() if shown.digits is None}  # a method may not have one
LEGEND = (
    "Cells: mean \N{PLUS-MINUS SIGN} sample deviation over seeds (number of seeds); scores in points. "
    "measured: our runs; imported: published numbers that we did not run; not run: no score here; "
    f"substituted: a part that the paper has is replaced by another; {DASH}: no number. What stands for which backbone "
    "is said above."
)


def name_of(name: str) -> str:
    """How a column is headed."""
    return column(name).heading


def is_average(name: str) -> bool:
    """Whether a column is a mean over tasks."""
    return len(column(name).tasks) > 1


def grids(results: Results) -> tuple[Grid, ...]:
    """Ours and the published numbers; at paper scale also how the two agree."""
    shown = _scores(results)
    return (*shown, reproduction_grid(results)) if results.study.scale.name == "paper" else shown


def _scores(results: Results) -> tuple[Grid, ...]:
    """Side by side or, where that is too wide, one below the other."""
    if results.study.view == "examples":
        return _examples(results)
    cells = [cell for row in results.study.rows for cell in results.of(row)]
    if all(cell.published is None for cell in cells):
        return (_ours(results, results.study.rows),)
    if len(results.study.columns) < WIDE:
        return (_side_by_side(results),)
    shown = [row for row in results.study.rows if row.encoder is not None or row.published is None]
    return (_ours(results, shown), _published(results))


def _examples(results: Results) -> tuple[Grid, ...]:
    """A grid a query: a line a target, with each encoder's score and, in brackets, the target's place by it."""
    queries: dict[str, list[str]] = {}
    for name in results.study.columns:
        queries.setdefault(column(name).tasks[0], []).append(name)
    rows = results.study.rows
    shown = [(f"{row.label}, ours", row, False) for row in rows if row.encoder is not None]
    shown += [(f"{row.label}, published", row, True) for row in rows if row.published]
    grids = []
    for names in queries.values():
        lines = [[results.printed(name).get("task", name) for name in names]]
        lines += [_placed([results.value(row, name, published=printed) for name in names]) for _, row, printed in shown]
        header = ("target", *(title for title, _, _ in shown))
        grids.append(Grid(results.printed(names[0]).get("variant", ""), header, tuple(zip(*lines, strict=True))))
    return tuple(grids)


def _placed(values: list[float | None]) -> list[str]:
    """Scores with their places, the largest first; equal ones share the better place."""
    known = [value for value in values if value is not None]
    return [DASH if v is None else f"{number(v)} ({1 + sum(k > v for k in known)})" for v in values]


def reproduction_grid(results: Results) -> Grid:
    """Each published number against the prediction interval of our runs; averages only, where the study has them."""
    averages = [name for name in results.study.columns if is_average(name)]
    rows = []
    for row in results.study.rows:
        for cell in results.of(row):
            if cell.scores and cell.published is not None and (not averages or cell.column in averages):
                rows.append(_reproduction_line(cell))
    header = ("row", "column", "published", "of runs", "ours", "seed 42", "95 % prediction interval", "published is")
    return Grid("Published numbers against the prediction interval of our runs", header, tuple(rows))


def notes(results: Results, *, brief: bool = False) -> list[str]:
    """What a reader must know to read the numbers: source, scale, data, seeds, rule, metric, settings, machine.

    Brief: without what all tables of a scale have in common, which the report says once.
    """
    study = results.study
    rows = [row for row in study.rows if row.encoder is not None]
    substitutes = dict.fromkeys(row.substitute for row in rows if row.substitute)
    versions = sorted({int(version) for version in results.lines["version"]})
    found = (study.metric_of(row, name, task) for row in rows for name in study.columns for task in column(name).tasks)
    metrics = ", ".join(dict.fromkeys(found))
    common = [
        f"Scale {study.scale.name}: {study.scale.title}. {study.scale.notes}".rstrip(),
        f"Corpus: {study.scale.corpus}.",
    ]
    return [
        f"Source: {study.source}. {study.question}",
        *([] if brief else common),
        f"Seeds: {_by_row(rows, _seeds)}.",
        f"Checkpoint kept by: {_by_row(rows, lambda row: row.select)}.{_kept_at(results)}",
        f"Metric: {metrics}, by {_by_row(rows, lambda row: str(row.scorer))}; "
        f"evaluator version {', '.join(map(str, versions)) or DASH}.",
        f"Settings of all trained rows: {_shared(rows)}.",
        *([] if brief else [f"Measured on: {_machines(results)}."]),
        *(f"Substituted in {_quoted(rows, reason)}: {reason}." for reason in substitutes),
        *([] if brief else [LEGEND]),
    ]


def _kept_at(results: Results) -> str:
    """At which steps, where a dev score chose them."""
    chosen = results.lines[results.lines["select"] == results.study.scale.dev].drop_duplicates("key")
    steps = chosen["step"].dropna()
    steps = steps[steps > 0]
    if steps.empty:
        return ""
    return f" By dev score at step {steps.median():.0f} in the median ({steps.min():.0f} to {steps.max():.0f})."


def _ours(results: Results, rows: Iterable[Row]) -> Grid:
    columns = results.study.columns
    wide = len(columns) >= WIDE and any(map(is_average, columns))
    brief = {name for name in columns if wide and not is_average(name)}
    lines = []
    for row in rows:
        cells = results.of(row)
        texts = (_measured(cell, brief=cell.column in brief) for cell in cells)
        lines.append((row.label, *texts, _provenance(results, row)))
    header = (name_of(name) + _unscored(results, name) for name in columns)
    return Grid("Ours", ("", *header, "provenance"), tuple(lines))


def _published(results: Results) -> Grid:
    columns = results.study.columns
    lines = []
    for row in results.study.rows:
        cells = results.of(row)
        if any(cell.published is not None for cell in cells):
            lines.append((row.label, *map(_printed, cells), _provenance(results, row)))
    return Grid("Published", ("", *map(name_of, columns), "our row"), tuple(lines))


def _side_by_side(results: Results) -> Grid:
    header = []
    for name in results.study.columns:
        header += [f"{name_of(name)}, ours{_unscored(results, name)}", f"{name_of(name)}, published"]
    lines = []
    for row in results.study.rows:
        cells = results.of(row)
        texts = [text for cell in cells for text in (_measured(cell), _printed(cell))]
        lines.append((row.label, *texts, _provenance(results, row)))
    return Grid("", ("", *header, "our row"), tuple(lines))


def _measured(cell: Cell, *, brief: bool = False) -> str:
    shown = column(cell.column)
    return measured(cell.summary, cell.declared, brief=brief or not shown.digits, digits=shown.digits)


def _printed(cell: Cell) -> str:
    if cell.published is None:
        return DASH
    digits = column(cell.column).digits
    deviation = "" if cell.published_std is None else f" \N{PLUS-MINUS SIGN} {number(cell.published_std)}"
    return number(cell.published, digits=digits) + deviation


def _scored(results: Results, name: str) -> bool:
    return any(results.cells[row.label, name].scores for row in results.study.rows)


def _unscored(results: Results, name: str) -> str:
    return "" if _scored(results, name) else f" ({NOT_RUN})"


def _provenance(results: Results, row: Row) -> str:
    """One word if all cells share it, columns without any score apart; what is not run is named."""
    cells = [c for c in results.of(row) if _scored(results, c.column) and c.column not in SETTINGS] or results.of(row)
    found = dict.fromkeys(cell.provenance for cell in cells)
    if row.why and found.keys() <= {NOT_RUN}:
        return f"{NOT_RUN}: {row.why.removeprefix('not run: ')}"
    if len(found) == 1:
        return next(iter(found))
    missing = ", ".join(name_of(cell.column) for cell in cells if cell.provenance == NOT_RUN)
    scored = ", ".join(word for word in found if word != NOT_RUN)
    return f"{scored}; {NOT_RUN}: {missing}"


def _reproduction_line(cell: Cell) -> tuple[str, ...]:
    band = significance.prediction_interval(list(cell.scores.values()), runs=cell.published_runs)
    assert cell.published is not None
    return (
        cell.row,
        name_of(cell.column),
        _printed(cell),
        str(cell.published_runs),
        _measured(cell),
        number(cell.scores.get(42)),
        interval(band),
        significance.published_verdict(cell.published, band),
    )


def _seeds(row: Row) -> str:
    if isinstance(row.encoder, Pretrained):
        return "none (not trained)"
    return ", ".join(map(str, row.seeds)) + (", nested runs too" if row.vary == "all" else "")


def _quoted(rows: Sequence[Row], reason: str) -> str:
    return ", ".join(f'"{row.label}"' for row in rows if row.substitute == reason)


def _by_row(rows: Sequence[Row], value: Callable[[Row], str]) -> str:
    """The value that all rows share; else the most frequent one and the others with their rows."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(value(row), []).append(row.label)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    # Labels have commas of their own, so they are quoted.
    named = [(text, ", ".join(f'"{label}"' for label in labels)) for text, labels in ordered]
    texts = [f"{text} for {labels}" if i else text for i, (text, labels) in enumerate(named)]
    return "; ".join(texts) or DASH


def _shared(rows: Sequence[Row]) -> str:
    runs = [row.encoder for row in rows if isinstance(row.encoder, Run)]
    if not runs:
        return DASH
    hidden = {"method", "corpus", "seed"}
    settings = [{name: str(value) for name, value in run.settings().items() if name not in hidden} for run in runs]
    common = {name: text for name, text in settings[0].items() if all(one.get(name) == text for one in settings)}
    return ", ".join(f"{name} {text}" for name, text in common.items() if text) or DASH


def _machines(results: Results) -> str:
    pairs = sorted({(str(device), str(commit)) for device, commit in results.lines[["device", "commit"]].to_numpy()})
    return "; ".join(f"{device or DASH} at commit {commit or DASH}" for device, commit in pairs) or DASH
