"""The record: CSVs in mlruns/. Merged, the earliest wins, no line is removed.

A line of runs.csv is a run by its key: what it was, what it cost, where it ran. A cell of results.csv is one score by
one version of its evaluator: (key, select, scorer, task, metric, version). A point of curves.csv is (key, name, step):
the mean of a loss term over the steps since the last point, or a dev score. A line of pairs.csv is a difference of two
checkpoints on pairs drawn anew (analysis/pair_bootstrap.py). A line of searches.csv is a trial of a search by its
settings: its mean dev score over seeds, or what it had when it was stopped.
Quickstart has a folder of its own, so that trying the project leaves the committed record as it is.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from experiments.study import ARRAY_VIEWS, Row, Study

MLRUNS = Path(__file__).parents[1] / "mlruns"
CELL = ["key", "select", "scorer", "task", "metric", "version"]
RUNS = ["key", "scale", "method", "backbone", "seed", "settings", "device", "seconds"]
SCORES = [*CELL[:-1], "score", "pairs", "step", "version", "commit"]  # a run trained again may be scored by other code
RESULTS = [*RUNS, *SCORES[1:]]  # both, joined
OWN = "own"  # the folder, beside the sweeps' `store`, of runs that people make by hand
UNRECORDED = ("pearson.mean", "pearson.wmean")  # no table has them; a run's artifacts do
POINT = ["key", "name", "step"]
CURVES = ["scale", "key", "name", "step", "value"]
DRAWN = ["scale", "first", "second", "column"]  # a difference of two checkpoints over pairs that are drawn anew
PAIRS = [*DRAWN, "difference", "low", "high", "p", "pairs", "resamples", "commit"]
TRIAL = ["scale", "search", "trial"]
SEARCHES = [*TRIAL, "state", "score", "evaluations", "keys", "commit"]
FILES = {
    "runs.csv": (RUNS, ["key"]),
    "results.csv": (SCORES, CELL),
    "curves.csv": (CURVES, POINT),
    "pairs.csv": (PAIRS, DRAWN),
    "searches.csv": (SEARCHES, TRIAL),
}
TEXT: Any = dict.fromkeys(
    ("scale", "key", "method", "backbone", "settings", "select", "scorer", "first", "second", "column"), "string"
) | dict.fromkeys(("task", "metric", "commit", "device", "name", "search", "trial", "state", "keys"), "string")


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


def read(path: Path, columns: list[str]) -> pd.DataFrame:
    """A record file, empty where there is none; other columns than expected are an error."""
    if not path.is_file():
        return pd.DataFrame(columns=columns).astype({c: t for c, t in TEXT.items() if c in columns})
    frame = pd.read_csv(
        path,
        dtype=TEXT,
        keep_default_na=False,
        na_values={"score": "", "pairs": "", "step": ""},
    )
    if list(frame.columns) != columns:
        raise ValueError(f"{path}: columns {', '.join(frame.columns)}; expected {', '.join(columns)}")
    return frame


def read_results(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    """Every score with its run."""
    folder = folder_for(scale, mlruns)
    runs, scores = read(folder / "runs.csv", RUNS), read(folder / "results.csv", SCORES)
    _refuse_strange(folder, runs, scores)
    return scores.merge(runs, on="key", how="left", validate="m:1")[RESULTS]


def _refuse_strange(folder: Path, runs: pd.DataFrame, scores: pd.DataFrame) -> None:
    strange = scores[~scores["key"].isin(runs["key"])]
    if len(strange):
        raise ValueError(f"{folder}: results.csv has scores of run {strange['key'].iloc[0]}, which runs.csv lacks")


def read_curves(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    return read(folder_for(scale, mlruns) / "curves.csv", CURVES)


def read_pairs(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    return read(folder_for(scale, mlruns) / "pairs.csv", PAIRS)


def read_searches(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    lines = read(folder_for(scale, mlruns) / "searches.csv", SEARCHES)
    return lines[lines["scale"] == scale]


def merge(path: Path, new: pd.DataFrame, *, columns: list[str], identity: list[str]) -> int:
    """Add lines that the file does not have yet and return how many; what it has stays as it is, to the letter.

    `new` comes earliest first; of two new lines for one cell the first counts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        return _merge(path, new, columns, identity)


def _merge(path: Path, new: pd.DataFrame, columns: list[str], identity: list[str]) -> int:
    old = read(path, columns)
    fresh = new[columns].drop_duplicates(identity)
    known = pd.MultiIndex.from_frame(old[identity].astype(str))
    fresh = fresh[~pd.MultiIndex.from_frame(fresh[identity].astype(str)).isin(known)]
    if fresh.empty:
        return 0
    kept = path.read_text().splitlines()[1:] if path.is_file() else []
    lines = kept + fresh.to_csv(index=False, header=False, lineterminator="\n").splitlines()
    part = path.with_suffix(".part")
    part.write_text("\n".join([",".join(columns), *sorted(lines)]) + "\n")
    part.replace(path)
    return len(fresh)


def result_lines(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A result.json as lines of results.csv."""
    environment = result["environment"]
    shared = {name: result[name] for name in ("scale", "key", "method", "backbone", "seed", "settings", "seconds")}
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
    for key, target in lacking:
        source = arrays_in(store, key, target)
        if source.is_file():
            _copy(source, target)


def _copy(source: Path, target: Path) -> bool:
    """Whether the target was not there yet."""
    if target.is_file():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    shutil.copyfile(source, part)
    part.replace(target)
    return True


def merge_folder(other: Path, mlruns: Path) -> dict[str, int]:
    """Add another record, such as a cluster's: what this one lacks; how many lines and arrays, by file and folder."""
    if not (other / "runs.csv").is_file():
        raise FileNotFoundError(f"{other}: holds no record; expected runs.csv and the files beside it")
    found = {name: read(other / name, columns) for name, (columns, _) in FILES.items()}  # all of them, before any
    _refuse_strange(other, found["runs.csv"], found["results.csv"])
    new = {
        name: merge(mlruns / name, found[name], columns=columns, identity=identity)
        for name, (columns, identity) in FILES.items()
    }
    arrays = sorted((other / "figure_data").rglob("*.npz"))
    return new | {"figure_data": sum(_copy(path, mlruns / path.relative_to(other)) for path in arrays)}


def merge_lines(scale: str, mlruns: Path, results: list[Mapping[str, Any]]) -> int:
    """Add result.json contents, earliest first, to a scale's record; returns the number of new cells."""
    folder = folder_for(scale, mlruns)
    points = pd.DataFrame([line for r in results for line in curve_lines(r)], columns=CURVES)
    cells = pd.DataFrame([line for r in results for line in result_lines(r)], columns=RESULTS)
    merge(folder / "curves.csv", points, columns=CURVES, identity=POINT)
    return merge_results(folder, cells)


def merge_results(folder: Path, cells: pd.DataFrame) -> int:
    """Add scores and their runs, earliest first; returns the number of new scores."""
    merge(folder / "runs.csv", cells, columns=RUNS, identity=["key"])
    return merge(folder / "results.csv", cells, columns=SCORES, identity=CELL)


def merge_searches(mlruns: Path, trials: pd.DataFrame) -> int:
    """Add trials of one scale; returns the number of new ones."""
    path = folder_for(trials["scale"].iloc[0], mlruns) / "searches.csv"
    return merge(path, trials, columns=SEARCHES, identity=TRIAL)
