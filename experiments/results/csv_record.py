"""The record: CSVs in mlruns/. Merged, the earliest wins, no line is removed.

A line of runs.csv is a run by its key: what it was, what it learns from, what it cost, where it ran. A cell of
results.csv is one score by one version of its evaluator: (key, select, scorer, task, metric, version). A point of
curves.csv is (key, name, step): the mean of a loss term over the steps since the last point, or a dev score. A line of
pairs.csv is a difference of two checkpoints on pairs drawn anew (analysis/pair_bootstrap.py). A line of searches.csv is
a trial of a search by its settings: its mean dev score over seeds, or what it had when it was stopped.
Quickstart has a folder of its own, so that trying the project leaves the committed record as it is. Each folder has a
manifest (manifest.py).
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.results.csv_table import DamagedFileError, Table
from experiments.results.manifest import Manifest
from experiments.schema.scales import SCALES
from experiments.schema.study import ARRAY_VIEWS, Row, Study
from experiments.schema.teachers import old_teachers

MLRUNS = Path(__file__).parents[2] / "mlruns"
CELL = ["key", "select", "scorer", "task", "metric", "version"]
POINT = ["key", "name", "step"]
DRAWN = ["scale", "first", "second", "column"]  # a difference of two checkpoints over pairs that are drawn anew
TRIAL = ["scale", "search", "trial"]
RUNS_TABLE = Table(
    "runs.csv",
    dict.fromkeys(("key", "scale", "method", "backbone"), str)
    | {"seed": int, "settings": str, "device": str, "seconds": float, "teachers": str},
    ("key",),
    added={"teachers": old_teachers},
)
RESULTS_TABLE = Table(
    "results.csv",
    dict.fromkeys(CELL[:-1], str)
    | {"score": float, "pairs": int, "step": int, "version": int, "commit": str},  # trained again, scored by other code
    tuple(CELL),
    optional=("score", "pairs", "step"),
)
CURVES_TABLE = Table("curves.csv", {"scale": str, "key": str, "name": str, "step": int, "value": float}, tuple(POINT))
PAIRS_TABLE = Table(
    "pairs.csv",
    dict.fromkeys(DRAWN, str)
    | dict.fromkeys(("difference", "low", "high", "p"), float)
    | {"pairs": int, "resamples": int, "commit": str},
    tuple(DRAWN),
)
SEARCHES_TABLE = Table(
    "searches.csv",
    dict.fromkeys((*TRIAL, "state"), str) | {"score": float, "evaluations": int, "keys": str, "commit": str},
    tuple(TRIAL),
    optional=("score",),
)
TABLES = (RUNS_TABLE, RESULTS_TABLE, CURVES_TABLE, PAIRS_TABLE, SEARCHES_TABLE)
RUNS, SCORES, CURVES, PAIRS, SEARCHES = (list(table.columns) for table in TABLES)
RESULTS = [*RUNS, *SCORES[1:]]  # both, joined
OWN = "own"  # the folder, beside the sweeps' `store`, of runs that people make by hand
UNRECORDED = ("pearson.mean", "pearson.wmean")  # no table has them; a run's artifacts do


def folder_for(scale: str, mlruns: Path = MLRUNS) -> Path:
    """Where a scale's record lies."""
    return mlruns / "quickstart" if scale == "quickstart" else mlruns


def is_own(mlruns: Path) -> bool:
    """Whether this is the project's own record, which REPORT.md and the committed tables belong to."""
    return mlruns.resolve() == MLRUNS.resolve()


def outputs(mlruns: Path) -> Path:
    """The folder of a record's tables/ and figures/: analysis for the project's own, else beside the record."""
    return MLRUNS.parent / "analysis" if is_own(mlruns) else mlruns


def check_writable(mlruns: Path) -> None:
    """Make the folder if need be; refuse one that can't be written before anything is computed."""
    try:
        mlruns.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=mlruns):
            pass
    except OSError as error:
        raise PermissionError(
            f"{mlruns}: can't be written ({error.strerror}); name another folder with --mlruns"
        ) from error


def read_results(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return every score with its run."""
    folder = folder_for(scale, mlruns)
    scores, runs = RESULTS_TABLE.read(folder), RUNS_TABLE.read(folder)  # runs last: those of new scores come first
    _refuse_strange(folder, runs, scores)
    _refuse_unknown_scale(folder, runs, {*SCALES, OWN, scale})
    return scores.merge(runs, on="key", how="left", validate="m:1")[RESULTS]


def _refuse_strange(folder: Path, runs: pd.DataFrame, scores: pd.DataFrame) -> None:
    strange = scores[~scores["key"].isin(runs["key"])]
    if len(strange):
        raise ValueError(f"{folder}: results.csv has scores of run {strange['key'].iloc[0]}, which runs.csv lacks")


def _refuse_unknown_scale(folder: Path, runs: pd.DataFrame, known: Collection[str]) -> None:
    for key, name in zip(runs["key"], runs["scale"], strict=True):
        if name not in known:
            expected = ", ".join(sorted(known))
            raise DamagedFileError(f"{folder / RUNS_TABLE.name}: run {key} has the scale {name!r}; expected {expected}")


def read_runs(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return every run of the record that a scale's lies in."""
    return RUNS_TABLE.read(folder_for(scale, mlruns))


def read_curves(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return every point of the curves."""
    return CURVES_TABLE.read(folder_for(scale, mlruns))


def read_pairs(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return the differences over pairs that are drawn anew."""
    return PAIRS_TABLE.read(folder_for(scale, mlruns))


def read_searches(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Return a scale's trials."""
    lines = SEARCHES_TABLE.read(folder_for(scale, mlruns))
    return lines[lines["scale"] == scale]


def result_lines(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A result.json as lines of results.csv and runs.csv."""
    environment = result["environment"]
    shared = {name: result[name] for name in ("scale", "key", "method", "backbone", "seed", "settings", "seconds")}
    shared["teachers"] = result["teachers"] if "teachers" in result else old_teachers(result)
    shared["commit"], shared["device"] = commit_of(environment), environment["device"]
    yield from (shared | cell for cell in result["cells"] if cell["metric"] not in UNRECORDED)


def commit_of(environment: Mapping[str, str]) -> str:
    """Ten digits tell commits apart; a plus says that the code differed from it."""
    return environment["commit"][:10] + ("+" if environment["dirty"] == "true" else "")


def scored_by(row: Row) -> str:
    """What gave a row's scores under its first seed: key, selection, scorer."""
    return f"{next(iter(row.keys().values()))} {row.select} {row.scorer}"


def curve_lines(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A result.json as lines of curves.csv: loss terms averaged between evaluations, so that the file stays small."""
    every = result["eval_steps"]
    for name, points in result["curves"].items():
        bins: dict[int, list[float]] = {}
        for step, value in points:
            bins.setdefault(-(-step // every) * every, []).append(value)
        for step, values in bins.items():
            value = sum(values) / len(values)
            yield {"scale": result["scale"], "key": result["key"], "name": name, "step": step, "value": round(value, 6)}


def arrays_path(mlruns: Path, key: str, select: str, scorer: str, task: str) -> Path:
    """Where the arrays of a figure lie in the record."""
    return mlruns / "figure_data" / key / f"{arrays_name(task, select, scorer)}.npz"


def arrays_name(task: str, select: str, scorer: str) -> str:
    """Of a file with a task's arrays; a corpus may be named by its path, and no system's files may hold a colon."""
    return f"{task} {select} {scorer}".replace("/", "_").replace(":", " ")


def lacking_arrays(studies: Iterable[Study], mlruns: Path) -> list[tuple[str, Path]]:
    """Keys of runs of which figures draw arrays that the record lacks, and where those belong."""
    targets = {
        arrays_path(folder_for(study.scale.name, mlruns), key, row.select, str(row.scorer), task): key
        for study in studies
        if study.view in ARRAY_VIEWS
        for row in study.rows
        for key in row.keys().values()
        for task in study.tasks
    }
    return [(key, target) for target, key in targets.items() if not target.is_file()]


def arrays_in(store: Path, key: str, target: Path) -> Path:
    """Where a run's own folder has the arrays that belong at `target` in the record."""
    return store / key / "figure_data" / target.name


def keep_arrays(lacking: Iterable[tuple[str, Path]], store: Path) -> None:
    """Copy arrays from the runs' folders into the record, where they are there."""
    by_folder: dict[Path, dict[Path, Path]] = {}
    for key, target in lacking:
        by_folder.setdefault(target.parents[2], {})[target] = arrays_in(store, key, target)
    for folder, sources in by_folder.items():
        _copy(sources, folder)


def _copy(sources: Mapping[Path, Path], folder: Path) -> int:
    """Copy files that a record lacks, by target; return how many. One that the manifest has must be as it was."""
    manifest = Manifest(folder)
    wanted = {target: source for target, source in sources.items() if source.is_file() and not target.is_file()}
    if wanted:
        with manifest.locked():
            contents = {target.relative_to(folder).as_posix(): source.read_bytes() for target, source in wanted.items()}
            manifest.replace(
                {
                    name: content
                    for name, content in contents.items()
                    if manifest.lists(name, content) or manifest.read(name) is None
                }
            )
    return len(wanted)


def merge_folder(other: Path, mlruns: Path) -> dict[str, int]:
    """Add another record, such as a cluster's: what this one lacks; how many lines and arrays, by file and folder."""
    if not (other / "runs.csv").is_file():
        raise FileNotFoundError(f"{other}: holds no record; expected runs.csv and the files beside it")
    found = {table.name: table.read(other) for table in reversed(TABLES)}  # all of them, before any is written
    _refuse_strange(other, found["runs.csv"], found["results.csv"])
    arrays = sorted((other / "figure_data").rglob("*.npz"))
    for path in arrays:
        Manifest(other).read(path.relative_to(other).as_posix())
    for table in TABLES:
        table.read(mlruns)
    new = {table.name: table.merge(mlruns, found[table.name]) for table in TABLES}
    return new | {"figure_data": _copy({mlruns / path.relative_to(other): path for path in arrays}, mlruns)}


def merge_lines(scale: str, mlruns: Path, results: list[Mapping[str, Any]]) -> int:
    """Add result.json contents, earliest first, to a scale's record; returns the number of new cells."""
    folder = folder_for(scale, mlruns)
    points = pd.DataFrame([line for r in results for line in curve_lines(r)], columns=CURVES)
    cells = pd.DataFrame([line for r in results for line in result_lines(r)], columns=RESULTS)
    CURVES_TABLE.merge(folder, points)
    return merge_results(folder, cells)


def merge_results(folder: Path, cells: pd.DataFrame) -> int:
    """Add scores and their runs, earliest first; returns the number of new scores."""
    RUNS_TABLE.merge(folder, cells)
    return RESULTS_TABLE.merge(folder, cells)


def merge_pairs(scale: str, mlruns: Path, differences: pd.DataFrame) -> int:
    """Add differences over pairs that were drawn anew; returns the number of new ones."""
    return PAIRS_TABLE.merge(folder_for(scale, mlruns), differences)


def merge_searches(mlruns: Path, trials: pd.DataFrame) -> int:
    """Add trials of one scale; returns the number of new ones."""
    return SEARCHES_TABLE.merge(folder_for(trials["scale"].iloc[0], mlruns), trials)
