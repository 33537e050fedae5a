"""Read the record, the CSV files in mlruns/, and merge results into it: the earliest line wins.

runs.csv has a line per run, by its key: settings, teachers, cost, device. results.csv has a line per score by one
version of an evaluator: (key, select, scorer, task, metric, version). curves.csv has a line per point: (key, name,
step), with a dev score or the mean of a loss term over the steps since the last point. pairs.csv has differences of two
checkpoints over resampled pairs, or of two rows over resampled pairs and seeds, which are independent or paired
(analysis/pair_bootstrap.py). searches.csv has a line per trial, by its settings: its mean dev score over seeds, or its
score when it was stopped. Only remove.py deletes lines; evaluate.py replaces its own outdated scores. Quickstart has a
separate folder, so that trying the project does not change the committed record. Each folder has a manifest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.results.csv_table import DamagedFileError, Table, refuse_disagreements
from experiments.results.manifest import Manifest
from experiments.schema.scales import RELEASED, SCALES
from experiments.schema.study import ARRAY_VIEWS, Row, Study
from experiments.storage.record_folders import MLRUNS

if TYPE_CHECKING:
    import pandas as pd

CELL = ["key", "select", "scorer", "task", "metric", "version"]
POINT = ["key", "name", "step"]
INDEPENDENT, PAIRED = "independent", "paired"  # how seeds of two rows are resampled; paired: from those that both have
DRAWN = ["scale", "first", "second", "column"]  # a difference of two checkpoints over resampled pairs
TRIAL = ["scale", "search", "trial"]
RUNS_TABLE = Table(
    "runs.csv",
    dict.fromkeys(("key", "scale", "method", "backbone"), str)
    | {"seed": int, "settings": str, "device": str, "seconds": float, "teachers": str},
    ("key",),
    outcome=("method", "seed"),
)
RESULTS_TABLE = Table(
    "results.csv",
    # `commit` is of the code that scored: a retrained run may be scored by other code.
    dict.fromkeys(CELL[:-1], str) | {"score": float, "pairs": int, "step": int, "version": int, "commit": str},
    tuple(CELL),
    outcome=("score", "pairs", "step"),
    optional=("score", "pairs", "step"),
)
CURVES_TABLE = Table(
    "curves.csv",
    {"scale": str, "key": str, "name": str, "step": int, "value": float},
    tuple(POINT),
    outcome=("value",),
)
PAIRS_TABLE = Table(
    "pairs.csv",
    dict.fromkeys(DRAWN, str)
    | dict.fromkeys(("difference", "low", "high", "p"), float)
    | {"pairs": int, "resamples": int, "commit": str, "seeds": str},
    (*DRAWN, "seeds"),
    outcome=("difference", "pairs"),
)
SEARCHES_TABLE = Table(
    "searches.csv",
    dict.fromkeys((*TRIAL, "state"), str) | {"score": float, "evaluations": int, "keys": str, "commit": str},
    tuple(TRIAL),
    outcome=("score", "state", "keys"),
    optional=("score",),
)
TABLES = (RUNS_TABLE, RESULTS_TABLE, CURVES_TABLE, PAIRS_TABLE, SEARCHES_TABLE)
RUNS, SCORES, CURVES, PAIRS, SEARCHES = (list(table.columns) for table in TABLES)
RESULTS = [*RUNS, *SCORES[1:]]  # both tables, joined
MANUAL_RUNS = "own"  # folder, next to the sweeps' `store`, of runs made with run.py and evaluate.py
REMOVE = "find out which is right, and remove the runs from the other: python experiments/remove.py KEY --mlruns FOLDER"
UNRECORDED = ("pearson.mean", "pearson.wmean")  # in a run's result.json, not in the record


def folder_for(scale: str, mlruns: Path = MLRUNS) -> Path:
    """Return the folder of a scale's record."""
    return mlruns / "quickstart" if scale == "quickstart" else mlruns


def is_project_record(mlruns: Path) -> bool:
    """Whether this is the committed record, from which REPORT.md and the committed tables are made."""
    return mlruns.resolve() == MLRUNS.resolve()


def outputs(mlruns: Path) -> Path:
    """Return the folder of a record's tables/ and figures/: analysis/ for the committed record, otherwise its own."""
    return MLRUNS.parent / "analysis" if is_project_record(mlruns) else mlruns


def check_writable(mlruns: Path) -> None:
    """Create the folder if it is missing; refuse one that can't be written, before anything is computed."""
    try:
        mlruns.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=mlruns):
            pass
    except OSError as error:
        raise PermissionError(
            f"{mlruns}: can't be written ({error.strerror}); choose another folder with --mlruns"
        ) from error


def require(mlruns: Path, *, scores: bool) -> Path:
    """Return the folder of a record; refuse a missing folder and, with `scores`, one that has no results.csv."""
    if not mlruns.is_dir():
        raise FileNotFoundError(f"--mlruns {mlruns}: no such folder; expected the folder of a record")
    if scores and not any((folder_for(scale, mlruns) / RESULTS_TABLE.name).is_file() for scale in SCALES):
        raise FileNotFoundError(f"--mlruns {mlruns}: holds no {RESULTS_TABLE.name}; expected the folder of a record")
    return mlruns


def read_results(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return every score with its run."""
    folder = folder_for(scale, mlruns)
    scores = RESULTS_TABLE.read(folder)
    runs = RUNS_TABLE.read(folder)  # after the scores: a merge writes runs before their scores
    _refuse_unknown_runs(folder, runs, scores)
    _refuse_unknown_scale(folder, runs, {*SCALES, RELEASED.name, MANUAL_RUNS, scale})
    return scores.merge(runs, on="key", how="left", validate="m:1")[RESULTS]


def _refuse_unknown_runs(folder: Path, runs: pd.DataFrame, scores: pd.DataFrame) -> None:
    orphans = scores[~scores["key"].isin(runs["key"])]
    if len(orphans):
        raise ValueError(f"{folder}: results.csv has scores of run {orphans['key'].iloc[0]}, which runs.csv lacks")


def _refuse_unknown_scale(folder: Path, runs: pd.DataFrame, scales: Collection[str]) -> None:
    for key, name in zip(runs["key"], runs["scale"], strict=True):
        if name not in scales:
            expected = ", ".join(sorted(scales))
            raise DamagedFileError(f"{folder / RUNS_TABLE.name}: run {key} has the scale {name!r}; expected {expected}")


def read_runs(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return every run of a scale's record; it may have runs of other scales too."""
    return RUNS_TABLE.read(folder_for(scale, mlruns))


def read_curves(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return every point of the curves in a scale's record."""
    return CURVES_TABLE.read(folder_for(scale, mlruns))


def read_pairs(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return the differences over resampled pairs."""
    return PAIRS_TABLE.read(folder_for(scale, mlruns))


def read_searches(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return the trials of a scale's searches."""
    lines = SEARCHES_TABLE.read(folder_for(scale, mlruns))
    return lines[lines["scale"] == scale]


def result_lines(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a result.json for results.csv and runs.csv."""
    environment = result["environment"]
    shared = {name: result[name] for name in RUNS if name != "device"}
    shared["commit"], shared["device"] = commit_of(environment), environment["device"]
    yield from (shared | cell for cell in result["cells"] if cell["metric"] not in UNRECORDED)


def commit_of(environment: Mapping[str, str]) -> str:
    """Return the first ten digits of the commit, with a plus if the code differed from it."""
    return environment["commit"][:10] + ("+" if environment["dirty"] == "true" else "")


def score_source(row: Row, seeds: Sequence[int] = ()) -> str:
    """Return a row's key, selection rule and scorer: the key of its first seed, or those of the given seeds."""
    keys = row.keys()
    named = [keys[seed] for seed in seeds] or list(keys.values())[:1]
    return f"{'+'.join(named)} {row.select} {row.scorer}"


def curve_lines(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a result.json for curves.csv; to save space, average loss terms between evaluations."""
    every = result["eval_steps"]
    for name, points in result["curves"].items():
        bins: dict[int, list[float]] = {}
        for step, value in points:
            bins.setdefault(-(-step // every) * every, []).append(value)
        for step, values in bins.items():
            value = sum(values) / len(values)
            yield {"scale": result["scale"], "key": result["key"], "name": name, "step": step, "value": round(value, 6)}


def arrays_path(mlruns: Path, key: str, select: str, scorer: str, task: str) -> Path:
    """Return the path of a figure's arrays in the record."""
    return mlruns / "figure_data" / key / f"{arrays_name(task, select, scorer)}.npz"


def arrays_name(task: str, select: str, scorer: str) -> str:
    """Return the name of a file of arrays, without the slashes of a corpus path and the colons that Windows refuses."""
    return f"{task} {select} {scorer}".replace("/", "_").replace(":", " ")


def missing_arrays(studies: Iterable[Study], mlruns: Path) -> list[tuple[str, Path]]:
    """Return the arrays that figures need and the record does not have: each run's key and the path in the record."""
    targets = {
        arrays_path(folder_for(study.scale.name, mlruns), key, row.select, str(row.scorer), task): key
        for study in studies
        if study.view in ARRAY_VIEWS
        for row in study.rows
        for key in row.keys().values()
        for task in study.tasks
    }
    return [(key, target) for target, key in targets.items() if not target.is_file()]


def arrays_in_run_folder(store: Path, key: str, target: Path) -> Path:
    """Return the path, in a run's folder, of the arrays that belong at `target` in the record."""
    return store / key / "figure_data" / target.name


def copy_arrays(missing: Iterable[tuple[str, Path]], store: Path) -> None:
    """Copy arrays from the runs' folders into the record, if the folders have them."""
    by_folder: dict[Path, dict[Path, Path]] = {}
    for key, target in missing:
        by_folder.setdefault(target.parents[2], {})[target] = arrays_in_run_folder(store, key, target)
    for folder, sources in by_folder.items():
        _copy(sources, folder)


def _copy(sources: Mapping[Path, Path], folder: Path) -> int:
    """Copy the files that a record does not have; `sources` are by target. Return how many were copied."""
    missing = {target: source for target, source in sources.items() if source.is_file() and not target.is_file()}
    if missing:
        with Manifest(folder).lock():
            Manifest(folder).replace(
                {target.relative_to(folder).as_posix(): source.read_bytes() for target, source in missing.items()}
            )
    return len(missing)


def merge_folder(other: Path, mlruns: Path) -> dict[str, int]:
    """Add another record, such as a cluster's, to this one; return the number of new lines and arrays, by file."""
    if not (other / "runs.csv").is_file():
        raise FileNotFoundError(f"{other}: expected a record, runs.csv and the files beside it")
    lines = {table.name: table.read(other) for table in reversed(TABLES)}  # check all before any is written
    _refuse_unknown_runs(other, lines["runs.csv"], lines["results.csv"])
    arrays = sorted((other / "figure_data").rglob("*.npz"))
    for table in TABLES:
        table.read(mlruns)
    refuse_disagreements(mlruns, [(table, lines[table.name]) for table in TABLES], f"{mlruns} and {other}", REMOVE)
    new = {table.name: table.merge(mlruns, lines[table.name]) for table in TABLES}
    return new | {"figure_data": _copy({mlruns / path.relative_to(other): path for path in arrays}, mlruns)}


def merge_lines(scale: str, mlruns: Path, results: list[Mapping[str, Any]], unless: str = "") -> int:
    """Add results, earliest first, to a scale's record; return the number of new scores.

    With `unless`, refuse results that disagree with the recorded lines of their runs; the error gives it as advice.
    """
    import pandas as pd  # lazy: slow import

    folder = folder_for(scale, mlruns)
    points = pd.DataFrame([line for r in results for line in curve_lines(r)], columns=CURVES)
    cells = pd.DataFrame([line for r in results for line in result_lines(r)], columns=RESULTS)
    if unless:
        new = [(RUNS_TABLE, cells), (RESULTS_TABLE, cells), (CURVES_TABLE, points)]
        refuse_disagreements(folder, new, f"{folder} and a run of here", unless)
    CURVES_TABLE.merge(folder, points)
    return merge_results(folder, cells)


def merge_results(folder: Path, cells: pd.DataFrame) -> int:
    """Add scores and their runs, earliest first; return the number of new scores."""
    RUNS_TABLE.merge(folder, cells)
    return RESULTS_TABLE.merge(folder, cells)


def merge_pairs(scale: str, mlruns: Path, differences: pd.DataFrame) -> int:
    """Add differences over resampled pairs; return the number of new ones."""
    return PAIRS_TABLE.merge(folder_for(scale, mlruns), differences)


def merge_searches(mlruns: Path, trials: pd.DataFrame) -> int:
    """Add trials of one scale; return the number of new ones."""
    return SEARCHES_TABLE.merge(folder_for(trials["scale"].iloc[0], mlruns), trials)
