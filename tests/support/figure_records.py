"""A random but seeded record of declared studies, as wide as the real one: scores, curves and arrays."""

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from analysis.cells import join
from analysis.plots.figure_data import FigureData, curves_of
from analysis.report.blocks import Record
from cse_core.evaluation.suite import PHRASES
from cse_core.metrics.sphere import EDGES
from experiments.results import csv_record
from experiments.schema.columns import column
from experiments.schema.study import Row, Study
from experiments.studies import catalogue

SENTENCES, PAIRS = 300, 400
TERMS = ("dev/stsb_dev", "alignment/stsb_dev", "uniformity/stsb_dev", "loss/contrastive", "loss/rank", "loss")


def study_of(name: str, scale: str = "small") -> Study:
    (found,) = catalogue.choose_studies([name], scale)
    return found


class EmptyRecord(Record):
    """A record without a score."""

    def __init__(self) -> None:
        super().__init__(csv_record.MLRUNS)
        self.results = lambda scale: csv_record.read_results(scale).iloc[:0]


def rng_of(*names: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(" ".join(map(str, names)).encode()))


def lines_of(study: Study) -> pd.DataFrame:
    """results.csv with every cell of the study."""
    found: dict[tuple, dict[str, Any]] = {}
    for row in study.rows:
        for seed, key in row.keys().items():
            for name in study.columns:
                for task in column(name).tasks:
                    metric = study.metric_of(row, name, task)
                    place = (key, row.select, str(row.scorer), task, metric)
                    found[place] = _line(study, place, seed, row.label)
    return pd.DataFrame(list(found.values()), columns=csv_record.RESULTS)


def _line(study: Study, place: tuple, seed: int, label: str) -> dict[str, Any]:
    key, select, scorer, task, metric = place
    score = 0.5 + 0.1 * rng_of(label, task, metric).random() + 0.01 * rng_of(key, task, metric).random()
    shared = {"scale": study.scale.name, "key": key, "method": "m", "backbone": "b", "seed": seed, "settings": ""}
    cell = {"select": select, "scorer": scorer, "task": task, "metric": metric, "score": score, "pairs": 9}
    return shared | cell | {"step": 1, "version": 1, "commit": "0123456789", "device": "a CPU", "seconds": 1.0}


def points_of(study: Study, steps: tuple[int, ...] = tuple(range(32, 257, 32))) -> pd.DataFrame:
    """curves.csv with every quantity of every run of the study."""
    points = []
    for row in study.rows:
        for run in row.runs():
            for name in TERMS:
                rng, level = rng_of(run.key, name), rng_of(row.label, name).random()
                for step in steps:
                    value = 0.4 + 0.2 * level + 0.3 * np.exp(-step / 90) + 0.02 * rng.random()
                    points.append((study.scale.name, run.key, name, step, -value if "uniformity" in name else value))
    return pd.DataFrame(points, columns=csv_record.CURVES).drop_duplicates(csv_record.POINT)


def arrays_of(row: Row, seed: int, task: str) -> dict[str, np.ndarray]:
    """The arrays that a task keeps, by name."""
    rng = rng_of(row.label, seed, task)
    gold = rng_of("gold", task).uniform(0, 5, PAIRS).astype(np.float32)
    cosines = np.clip(0.1 * gold + 0.3 + 0.15 * rng.normal(size=PAIRS), -1, 1).astype(np.float32)
    if task.endswith("_geometry"):
        return {"cosines": cosines, "gold": gold}
    if task.endswith("_projection"):
        first, second = rng_of("pairs").permutation(SENTENCES).reshape(2, -1)
        words = rng_of("words").integers(4, 30, SENTENCES)
        found = {"coordinates": 3 * rng.normal(size=(SENTENCES, 2)) + words[:, None] / 6, "words": words}
        return found | {"first": first, "second": second, "gold": gold[: len(first)]}
    if task.endswith("_density"):
        densities = rng.normal(-1.5, 0.3, SENTENCES).astype(np.float32)
        pairs = np.histogram(rng.normal(0.5, 0.1, 5000).clip(-1, 1), EDGES)[0]
        return {"log_density": densities, "pairs": pairs, "dimensions": np.array(128)}
    if task.endswith("_positives"):
        return {kind: rng.normal(size=(64, 8, 2)).astype(np.float32) for kind in ("dropout", "whitened", "both")}
    if task == "phrases":
        vectors = rng.normal(size=(len(PHRASES), 4)) + 1
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return {"cosines": (units @ units.T).astype(np.float32)}
    if task.endswith("_neighbours"):
        scores = cosines + 0.05 * rng.normal(size=PAIRS)
        shared = np.clip(60 * cosines + 10 * rng.normal(size=PAIRS), 0, 100).astype(np.int64)
        return {"shared": shared, "cosines": cosines.astype(np.float64), "pair_scores": scores, "gold": gold}
    return {"gold": gold / 5}


def figure_data_of(
    study: Study, *, lines: pd.DataFrame | None = None, points: pd.DataFrame | None = None, arrays: Any = arrays_of
) -> FigureData:
    """The study with generated numbers, or with those given."""
    lines = lines_of(study) if lines is None else lines
    points = points_of(study) if points is None else points
    curves = curves_of(study, points)
    return FigureData(study=study, results=join(study, lines), curves=curves, arrays=arrays, record=lines)


def empty(study: Study) -> FigureData:
    """The study with an empty record."""
    none = pd.DataFrame(columns=csv_record.RESULTS), pd.DataFrame(columns=csv_record.CURVES)
    return figure_data_of(study, lines=none[0], points=none[1], arrays=lambda row, seed, task: None)


def lacking(*labels: str) -> Any:
    """The arrays of all rows except some."""
    return partial(_without, labels)


def _without(labels: tuple[str, ...], row: Row, seed: int, task: str) -> Mapping[str, np.ndarray] | None:
    return None if row.label in labels else arrays_of(row, seed, task)


def less(frame: pd.DataFrame, *rows: Row, seeds: tuple[int, ...] = ()) -> pd.DataFrame:
    """The frame without the lines of some rows, or of some of their seeds."""
    keys = {key for row in rows for seed, key in row.keys().items() if not seeds or seed in seeds}
    return frame[~frame["key"].isin(keys)]


def row_of(study: Study, label: str) -> Row:
    return next(row for row in study.rows if row.label == label)


def figure_of(view: Callable[[FigureData], Figure | None], drawn: FigureData) -> Any:
    """The figure, typed as Any so that tests can read its artists."""
    figure = view(drawn)
    assert figure is not None
    return figure


def seed_of(row: Row) -> int:
    """The seed whose arrays are drawn."""
    return 0 if row.label.startswith("untrained") else 42


def clouds(axes: Any) -> list[Any]:
    """The scatters of a panel."""
    return [found for found in axes.collections if isinstance(found, PathCollection)]


def dots_of(axes: Any) -> dict[tuple[float, float], str]:
    """The colours of a panel's dots, by position."""
    found = [each for each in axes.collections if not isinstance(each, LineCollection) and len(each.get_offsets()) > 0]
    return {
        (float(x), float(y)): to_hex(colour)
        for each in found
        for (x, y), colour in zip(each.get_offsets(), each.get_facecolors(), strict=True)
    }


def ranges_of(axes: Any) -> dict[float, tuple[float, float]]:
    """The intervals of a panel, by height."""
    lines = [each for each in axes.collections if isinstance(each, LineCollection)]
    ends = [segment for each in lines for segment in each.get_segments()]
    return {float(low[1]): (float(low[0]), float(high[0])) for low, high in ends}
