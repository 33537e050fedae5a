"""Turn a run's result into what MLflow gets, as plain values: parameters, metrics, curves, tags, data sets.

The same function serves a run in progress (a result without scores), one that ended, and one that only the record has.
So all three are one run in MLflow.
"""

import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from cse_core.evaluation.suite import GROUPS, TASKS
from cse_core.training.selection import SELECTION
from experiments.results import csv_record
from experiments.results.csv_record import MANUAL_RUNS
from experiments.schema.columns import PUBLISHED_NAMES

FORMAT = 1  # of what is logged: add one with any change, and runs are logged again
MOST_METRICS = 30  # that people compare; the table of scores has all
LONGEST_PARAMETER, LONGEST_TAG = 500, 4000
AVERAGES = {"STS average": GROUPS["sts"], "Transfer average": GROUPS["transfer"], "synthetic": ("synthetic",)}
SETS = {task: name for name in ("STS", "Transfer") for task in GROUPS[name.lower()]}
BY_FILE = ("STS/STSBenchmark", "SICK")  # folders that hold sets for selection and for tests
TABLE = ("task", "metric", "select", "scorer", "version", "score", "pairs", "step")
Point = tuple[str, int]  # a curve's name and a step


@dataclass(frozen=True)
class DataInput:
    """A data set that a run read: `context` is training or evaluation, `sha256` is of its content."""

    name: str
    sha256: str
    context: str
    source: str = ""

    @property
    def source_of_hash(self) -> str:
        """Its source and its whole hash, as MLflow's pages show them."""
        return json.dumps({"uri": self.source, "sha256": self.sha256})


@dataclass(frozen=True)
class RunContent:
    """A run as MLflow has it; `finished` is in milliseconds, and `teachers` are the keys of the runs that it needs.

    `experiment` is its scale, or `own` if it was made by hand. `hash` is of the scores and curves.
    """

    key: str
    experiment: str
    name: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[Point, float] = field(default_factory=dict)
    table: str = ""
    inputs: tuple[DataInput, ...] = ()
    teachers: tuple[str, ...] = ()
    seconds: float = 0.0
    finished: int = 0  # 0: not known
    hash: str = ""

    @property
    def studies(self) -> list[str]:
        return self.tags["studies"].split()

    def timed_points(self, started: int) -> dict[Point, tuple[float, int]]:
        """Return metrics at step 0 and points of curves, each with its time, as if all steps took equally long."""
        steps, span = max((step for _, step in self.points), default=1), 1000 * self.seconds
        scored = {(name, 0): (value, started + round(span)) for name, value in self.metrics.items()}
        return scored | {
            (name, step): (value, started + round(span * step / steps)) for (name, step), value in self.points.items()
        }


def run_content(result: Mapping[str, Any]) -> RunContent:
    """Return what MLflow gets of the run with this result."""
    curves, cells = points(result), sorted(result["cells"], key=lambda cell: [str(cell[name]) for name in TABLE[:5]])
    lines = [[cell[name] for name in TABLE] for cell in cells]
    hashed = json.dumps([FORMAT, [line[:6] for line in lines], sorted(curves.items())])
    finished = result.get("finished", "")
    return RunContent(
        key=result["key"],
        experiment=result["scale"] if result["studies"] else MANUAL_RUNS,
        name=run_name(result),
        parameters=_parameters(result),
        tags=_tags(result),
        metrics=metrics(result, MOST_METRICS - len({name for name, _ in curves})),
        points=curves,
        table=_csv([[name.replace("select", "checkpoint") for name in TABLE], *lines]) if lines else "",
        inputs=tuple(_inputs(result)),
        teachers=tuple(re.findall(r"\b([0-9a-f]{12})/", result["teachers"])),
        seconds=result["seconds"] or result["scoring_seconds"],
        finished=round(1000 * datetime.fromisoformat(finished).timestamp()) if finished else 0,
        hash=hashlib.sha256(hashed.encode()).hexdigest()[:16],
    )


def _csv(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def run_name(result: Mapping[str, Any]) -> str:
    """Return the run's name in MLflow: row, seed and study. What differs comes first, as narrow columns cut the end."""
    return " ".join([result["name"], *result["studies"][:1]])


def points(result: Mapping[str, Any]) -> dict[Point, float]:
    """Return the points of curves as the record has them: loss terms are means over the steps between evaluations."""
    lines = csv_record.curve_lines(result)
    return {(curve_name(line["name"]), line["step"]): line["value"] for line in lines}


def curve_name(name: str) -> str:
    """Return a curve's name in MLflow, which groups charts by the part before the first slash: `Curves`."""
    kind, _, of = name.partition("/")
    words = ("loss", of) if kind == "loss" else (PUBLISHED_NAMES.get(of, of), "" if kind == "dev" else kind)
    return _allowed("Curves/" + " ".join(filter(None, words)))


def metrics(result: Mapping[str, Any], most: int) -> dict[str, float]:
    """Return the scores that people compare, at most `most`: averages, the dev score, the scores of single sets.

    They are the cosine scores of the checkpoint that was kept by dev score. Averages by other scorers and of other
    checkpoints follow, with these in their names. `dev score` belongs to the kept checkpoint; the last point of the
    curve `Curves/STS-B dev` is another number. The average comes first: the compare page plots what was logged first.
    """
    by_place: dict[str, dict[str, float]] = {}
    for cell in result["cells"]:
        if cell["metric"] in ("spearman.all", "acc"):
            checkpoint = [] if SELECTION.get(cell["select"], True) else [cell["select"]]
            place = " ".join(checkpoint + ([] if cell["scorer"] == "cosine" else [cell["scorer"]]))
            by_place.setdefault(place, {})[cell["task"]] = cell["score"]
    sets = by_place.pop("", {})
    kept = [(rule, kept["score"]) for rule, kept in result["kept"].items() if kept["score"] is not None]
    dev = {"dev score" + (f": {rule}" if i else ""): score for i, (rule, score) in enumerate(kept)}
    by_hand = not result["studies"]
    tested = {f"{group}/{PUBLISHED_NAMES[task]}": sets[task] for task, group in SETS.items() if task in sets}
    tested |= {f"Other/{task}": score for task, score in sets.items() if task not in (SETS if by_hand else TASKS)}
    others = (_averages(scores, f": {place}") for place, scores in sorted(by_place.items()))
    named = chain(_averages(sets, "").items(), dev.items(), tested.items(), *(each.items() for each in others))
    return {_allowed(name): value for name, value in islice(named, max(0, most))}


def _averages(scores: Mapping[str, float], suffix: str) -> dict[str, float]:
    return {
        name + suffix: sum(scores[task] for task in group) / len(group)
        for name, group in AVERAGES.items()
        if set(group) <= scores.keys()
    }


def _allowed(name: str) -> str:
    """Return a metric's name without what MLflow does not allow."""
    return re.sub(r"[^\w. :/-]", "", name)


def _parameters(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the run's method and training, under flat names.

    `approach` is the run's label in its study's table; the compare page sorts it first.
    """
    given = {name: "none" if value in ("", None) else value for name, value in result["parameters"].items()}
    return {name: str(value)[:LONGEST_PARAMETER] for name, value in ({"approach": result["label"]} | given).items()}


def _tags(result: Mapping[str, Any]) -> dict[str, str]:
    tags = {
        "scale": result["scale"],
        "method": result["method"],
        "backbone": result["backbone"],
        "setting": result["setting"],  # equal for all seeds, to group runs by
        "studies": joined(result["studies"]),
        "changed": result["settings"],
        **{f"kept.{rule}": f"step {kept['step']}" for rule, kept in result["kept"].items()},
        "warnings": "; ".join(result["warnings"]),
        "mlflow.source.name": Path(sys.argv[0]).name,
        **{f"env.{name}": value for name, value in result["environment"].items()},
    }
    if "commit" in result["environment"]:
        tags["mlflow.source.git.commit"] = result["environment"]["commit"]
    return {name: value[:LONGEST_TAG] for name, value in tags.items()}


def joined(studies: Collection[str]) -> str:
    """Return names as a tag in which a search for ` NAME ` finds whole names only."""
    return " ".join(["", *studies, ""]) if studies else ""


def _inputs(result: Mapping[str, Any]) -> Iterator[DataInput]:
    files = dict(result["data"])
    corpus = str(result["parameters"].get("corpus", ""))
    if sha256 := files.pop("corpus", ""):
        yield DataInput(corpus, sha256, "training", corpus)
    files.pop("backbone", None)
    sets: dict[str, list[str]] = {}
    for path in sorted(files):
        folder = path.rpartition("/")[0]
        sets.setdefault(path if folder in BY_FILE else folder, []).append(path)
    for name, paths in sets.items():
        yield DataInput(f"SentEval {name}", _digest({path: files[path] for path in paths}), "evaluation", name)


def _digest(files: Mapping[str, str]) -> str:
    """Return a file's own hash; for several the hash of a list of their hashes, as sha256sum prints it."""
    if len(files) == 1:
        return next(iter(files.values()))
    listed = "".join(f"{digest}  {name}\n" for name, digest in files.items())
    return hashlib.sha256(listed.encode()).hexdigest()
