"""Make the grids of a study's table, and the notes below them."""

from collections.abc import Callable, Iterable, Sequence

from analysis.cells import IMPORTED, NOT_RUN, Cell, Results
from analysis.report.formats import DASH, Grid, interval, mean_and_deviation, number
from analysis.report.released_tables import released_grid
from analysis.stats import significance
from cse_core.run import Pretrained, Run
from experiments.schema.columns import COLUMNS, column
from experiments.schema.scales import RELEASED
from experiments.schema.study import Row

SPLIT_FROM_COLUMNS = 4  # with this many columns, our scores and the published numbers are two tables
SETTINGS = {name for name, shown in COLUMNS.items() if shown.digits is None}  # a method may have no such setting
LEGEND = (
    "Cells: mean \N{PLUS-MINUS SIGN} sample deviation over seeds (number of seeds); scores in points. "
    "measured: our runs; imported: published numbers that we did not run; not run: no score here; "
    f"substituted: a part that the paper has is replaced by another; {DASH}: no number. The scale above names "
    "the encoder used for each backbone."
)


def is_average(name: str) -> bool:
    """Whether a column is a mean over tasks."""
    return len(column(name).tasks) > 1


def grids(results: Results) -> tuple[Grid, ...]:
    """Return grids of our scores and published numbers; at scale paper and for checkpoints also of their agreement."""
    shown = _score_grids(results)
    if results.study.scale is RELEASED:
        return (released_grid(results), *shown)
    return (*shown, reproduction_grid(results)) if results.study.scale.name == "paper" else shown


def _score_grids(results: Results) -> tuple[Grid, ...]:
    """Return our scores and the published numbers side by side in one grid, or in two if that is too wide."""
    if results.study.view == "examples":
        return _example_grids(results)
    cells = [cell for row in results.study.rows for cell in results.of(row)]
    if all(cell.published is None for cell in cells):
        return (_our_grid(results, results.study.rows),)
    if len(results.study.columns) < SPLIT_FROM_COLUMNS:
        return (_side_by_side(results),)
    shown = [row for row in results.study.rows if row.encoder is not None or row.published is None]
    return (_our_grid(results, shown), _published_grid(results))


def _example_grids(results: Results) -> tuple[Grid, ...]:
    """Return a grid for each query, a line for each target: each encoder's score and the target's rank in brackets."""
    queries: dict[str, list[str]] = {}
    for name in results.study.columns:
        queries.setdefault(column(name).tasks[0], []).append(name)
    rows = results.study.rows
    shown = [(f"{row.label}, ours", row, False) for row in rows if row.encoder is not None]
    shown += [(f"{row.label}, published", row, True) for row in rows if row.published]
    grids = []
    for names in queries.values():
        lines = [[results.published_line(name).get("task", name) for name in names]]
        lines += [
            _with_places([results.value(row, name, published=printed) for name in names]) for _, row, printed in shown
        ]
        header = ("target", *(title for title, _, _ in shown))
        grids.append(Grid(results.published_line(names[0]).get("variant", ""), header, tuple(zip(*lines, strict=True))))
    return tuple(grids)


def _with_places(values: list[float | None]) -> list[str]:
    """Return scores with their ranks, the largest first; equal scores share the better rank."""
    present = [value for value in values if value is not None]
    return [DASH if v is None else f"{number(v)} ({1 + sum(k > v for k in present)})" for v in values]


def reproduction_grid(results: Results) -> Grid:
    """Compare published numbers with the prediction interval of our runs; only averages, if the study has any."""
    averages = [name for name in results.study.columns if is_average(name)]
    rows = []
    for row in results.study.rows:
        for cell in results.of(row):
            if cell.scores and cell.published is not None and (not averages or cell.column in averages):
                rows.append(_reproduction_line(cell))
    header = ("row", "column", "published", "of runs", "ours", "seed 42", "95 % prediction interval", "published is")
    return Grid("Published numbers against the prediction interval of our runs", header, tuple(rows))


def notes(results: Results) -> list[str]:
    """Return what a reader must know: source, scale, data, seeds, selection rule, metric, settings, machine."""
    study = results.study
    rows = [row for row in study.rows if row.encoder is not None]
    substitutes = dict.fromkeys(row.substitute for row in rows if row.substitute)
    versions = sorted({int(version) for version in results.lines["version"]})
    shown_metrics = (
        study.metric_of(row, name, task) for row in rows for name in study.columns for task in column(name).tasks
    )
    metrics = ", ".join(dict.fromkeys(shown_metrics))
    evaluator = (
        f"by {_by_row(rows, lambda row: str(row.scorer))}; evaluator version {', '.join(map(str, versions)) or DASH}"
    )
    return [
        f"Source: {study.source}. {study.question}",
        f"Scale {study.scale.name}: {study.scale.title}. {study.scale.notes}".rstrip(),
        f"Corpus: {study.scale.corpus}.",
        f"Seeds: {_by_row(rows, _seeds_text)}.",
        f"Checkpoint kept by: {_by_row(rows, lambda row: row.select)}.{_selection_steps(results)}",
        *([f"Metric: {metrics}, {evaluator}."] if metrics else []),
        f"Settings of all trained rows: {_common_settings(rows)}.",
        *([] if results.lines.empty else [f"Measured on: {_devices(results)}."]),
        *(f"Substituted in {_labels_with_reason(rows, reason)}: {reason}." for reason in substitutes),
        *_remarks(study.rows),
        LEGEND,
    ]


def _remarks(rows: Sequence[Row]) -> list[str]:
    """Return what the rows' notes say, and why each imported row was not run here."""
    said: dict[str, list[str]] = {}
    for row in rows:
        words = row.why if row.encoder is None and row.why.startswith(f"{IMPORTED}: ") else row.note
        if words:
            said.setdefault(words, []).append(f'"{row.label}"')
    return [f"{', '.join(labels)}: {words}." for words, labels in said.items()]


def _selection_steps(results: Results) -> str:
    """Say at which steps checkpoints were selected, if by dev score."""
    lines = results.lines[["key", "step"]]
    selected = lines[results.lines["select"] == results.study.scale.dev].drop_duplicates("key")
    steps = selected["step"].dropna()
    steps = steps[steps > 0]
    if steps.empty:
        return ""
    return f" By dev score at step {steps.median():.0f} in the median ({steps.min():.0f} to {steps.max():.0f})."


def _our_grid(results: Results, rows: Iterable[Row]) -> Grid:
    columns = results.study.columns
    wide = len(columns) >= SPLIT_FROM_COLUMNS and any(map(is_average, columns))
    brief = {name for name in columns if wide and not is_average(name)}
    lines = []
    for row in rows:
        cells = results.of(row)
        texts = (_measured_text(cell, brief=cell.column in brief) for cell in cells)
        lines.append((row.label, *texts, _provenance(results, row)))
    header = (column(name).heading + _not_run_mark(results, name) for name in columns)
    return Grid("Ours", ("", *header, "provenance"), tuple(lines))


def _published_grid(results: Results) -> Grid:
    columns = results.study.columns
    lines = []
    for row in results.study.rows:
        cells = results.of(row)
        if any(cell.published is not None for cell in cells):
            lines.append((row.label, *map(_published_text, cells), _provenance(results, row)))
    return Grid("Published", ("", *(column(name).heading for name in columns), "our row"), tuple(lines))


def _side_by_side(results: Results) -> Grid:
    header = []
    for name in results.study.columns:
        header += [f"{column(name).heading}, ours{_not_run_mark(results, name)}", f"{column(name).heading}, published"]
    lines = []
    for row in results.study.rows:
        cells = results.of(row)
        texts = [text for cell in cells for text in (_measured_text(cell), _published_text(cell))]
        lines.append((row.label, *texts, _provenance(results, row)))
    return Grid("", ("", *header, "our row"), tuple(lines))


def _measured_text(cell: Cell, *, brief: bool = False) -> str:
    shown = column(cell.column)
    return mean_and_deviation(cell.summary, cell.declared_seeds, brief=brief or not shown.digits, digits=shown.digits)


def _published_text(cell: Cell) -> str:
    if cell.published is None:
        return DASH
    digits = column(cell.column).digits
    deviation = "" if cell.published_std is None else f" \N{PLUS-MINUS SIGN} {number(cell.published_std)}"
    return number(cell.published, digits=digits) + deviation


def _has_scores(results: Results, name: str) -> bool:
    return any(results.cells[row.label, name].scores for row in results.study.rows)


def _not_run_mark(results: Results, name: str) -> str:
    return "" if _has_scores(results, name) else f" ({NOT_RUN})"


def _provenance(results: Results, row: Row) -> str:
    """Return the provenance that all scored columns share, or each kind and the columns that were not run."""
    cells = [c for c in results.of(row) if _has_scores(results, c.column) and c.column not in SETTINGS] or results.of(
        row
    )
    words = dict.fromkeys(cell.provenance for cell in cells)
    if row.why and words.keys() <= {NOT_RUN}:
        return f"{NOT_RUN}: {row.why.removeprefix('not run: ')}"
    if len(words) == 1:
        return next(iter(words))
    missing = ", ".join(column(cell.column).heading for cell in cells if cell.provenance == NOT_RUN)
    scored_words = ", ".join(word for word in words if word != NOT_RUN)
    return f"{scored_words}; {NOT_RUN}: {missing}"


def _reproduction_line(cell: Cell) -> tuple[str, ...]:
    band = significance.prediction_interval(list(cell.scores.values()), runs=cell.published_runs)
    assert cell.published is not None
    return (
        cell.row,
        column(cell.column).heading,
        _published_text(cell),
        str(cell.published_runs),
        _measured_text(cell),
        number(cell.scores.get(42)),
        interval(band),
        significance.published_verdict(cell.published, band),
    )


def _seeds_text(row: Row) -> str:
    if isinstance(row.encoder, Pretrained):
        return "none (not trained)"
    return ", ".join(map(str, row.seeds)) + (", nested runs too" if row.vary == "all" else "")


def _labels_with_reason(rows: Sequence[Row], reason: str) -> str:
    return ", ".join(f'"{row.label}"' for row in rows if row.substitute == reason)


def _by_row(rows: Sequence[Row], value: Callable[[Row], str]) -> str:
    """Return the value that all rows share, or the most frequent one and the others with their rows."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(value(row), []).append(row.label)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    # Labels may contain commas, so they are quoted.
    named = [(text, ", ".join(f'"{label}"' for label in labels)) for text, labels in ordered]
    texts = [f"{text} for {labels}" if i else text for i, (text, labels) in enumerate(named)]
    return "; ".join(texts) or DASH


def _common_settings(rows: Sequence[Row]) -> str:
    runs = [row.encoder for row in rows if isinstance(row.encoder, Run)]
    if not runs:
        return DASH
    hidden = {"method", "corpus", "seed"}
    settings = [{name: str(value) for name, value in run.settings().items() if name not in hidden} for run in runs]
    common = {name: text for name, text in settings[0].items() if all(each.get(name) == text for each in settings)}
    return ", ".join(f"{name} {text}" for name, text in common.items() if text) or DASH


def _devices(results: Results) -> str:
    pairs = sorted(set(zip(*(results.lines[name].tolist() for name in ("device", "commit")), strict=True)))
    return "; ".join(f"{device or DASH} at commit {commit or DASH}" for device, commit in pairs) or DASH
