"""What MLflow gets of a run, as plain values made from its result: parameters, scores, curves, tags, data sets.

The same function serves a run that is in progress (a result without scores), one that ended, and one that only the
record has, so that all three are one run in MLflow.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cse_core.evaluation.suite import GROUPS
from cse_core.training.selection import SELECTION
from experiments.results import csv_record

MANUAL_SUFFIX = " (own)"  # of a run made by hand, so that it is never mistaken for a study's run
LONGEST_PARAMETER, LONGEST_TAG = 500, 4000
AVERAGED = (("synthetic",), GROUPS["sts"])
SECONDS = {"train": "seconds", "all": "scoring_seconds"}
BY_FILE = ("STS/STSBenchmark", "SICK")  # folders that hold sets for selection and for tests
CURVES = ("loss/", "dev/", "alignment/", "uniformity/")
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
        """Where it is from and its whole hash, as MLflow's pages show it."""
        return json.dumps({"uri": self.source, "sha256": self.sha256})


@dataclass(frozen=True)
class RunContent:
    """A run as MLflow has it; `teachers` are the keys of the runs that it needs."""

    key: str
    scale: str
    name: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    scores: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[Point, float] = field(default_factory=dict)
    inputs: tuple[DataInput, ...] = ()
    teachers: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def studies(self) -> frozenset[str]:
        return frozenset(self.tags["studies"].split())

    @property
    def curves(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.points)


def run_content(result: Mapping[str, Any]) -> RunContent:
    """Return what MLflow gets of the run with this result."""
    suffix = "" if result["studies"] else MANUAL_SUFFIX
    return RunContent(
        key=result["key"] + suffix,
        scale=result["scale"],
        name=run_name(result),
        parameters=_parameters(result),
        tags=_tags(result),
        scores=scores(result),
        points=points(result),
        inputs=tuple(_inputs(result)),
        teachers=tuple(key + suffix for key in re.findall(r"\b([0-9a-f]{12})/", result.get("teachers", ""))),
        seconds=result["seconds"] or result["scoring_seconds"],
    )


def run_name(result: Mapping[str, Any]) -> str:
    """Return the run's name in MLflow: row, seed and study, what differs first, as narrow columns cut its end."""
    return " ".join([result["name"], *result["studies"][:1]])


def points(result: Mapping[str, Any]) -> dict[Point, float]:
    """Return the points of curves as the record has them: loss terms are means over the steps between evaluations."""
    lines = csv_record.curve_lines(result)
    return {(curve_name(line["name"]), line["step"]): line["value"] for line in lines}


def curve_name(name: str) -> str:
    """Return a curve's name in MLflow, whose charts are grouped by what is before the slash."""
    return name if "/" in name else f"{name}/total"


def scores(result: Mapping[str, Any]) -> dict[str, float]:
    """Return scores as `test/<task>`, with metric, checkpoint and scorer in the name where they are not the default.

    The default checkpoint is the one that is kept by dev score. `kept/<rule>` is that score, which `dev/<set>` is not:
    that is the last one of training. `avg` is the mean over all seven STS test sets, or quickstart's score; it comes
    first, as the compare page plots the metric that was logged first.
    """
    tested: dict[str, float] = {}
    by_task: dict[str, dict[str, float]] = {}
    for cell in result["cells"]:
        checkpoint = [] if SELECTION.get(cell["select"], True) else [cell["select"]]
        scorer = [] if cell["scorer"] == "cosine" else [cell["scorer"]]
        aggregate = [] if cell["metric"] == "spearman.all" else [cell["metric"]]
        tested["/".join(["test", cell["task"], *aggregate, *checkpoint, *scorer])] = cell["score"]
        if not aggregate:
            by_task.setdefault("/".join(["avg", *checkpoint, *scorer]), {})[cell["task"]] = cell["score"]
    means = {
        name: sum(by_name[task] for task in group) / len(group)
        for name, by_name in sorted(by_task.items())
        for group in AVERAGED
        if set(group) <= by_name.keys()
    }
    kept = {f"kept/{rule}": kept["score"] for rule, kept in result["kept"].items() if kept["score"] is not None}
    seconds = {f"seconds/{name}": result[key] for name, key in SECONDS.items() if result[key]}
    named = means | kept | tested | seconds
    return {re.sub(r"[^\w. :/-]", "", name): value for name, value in named.items()}  # MLflow allows no others


def _parameters(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that the run's method and training have, under flat names.

    `approach` is the run's label in its study's table; the compare page sorts it first.
    """
    given = {name: "none" if value in ("", None) else value for name, value in result["parameters"].items()}
    return {name: str(value)[:LONGEST_PARAMETER] for name, value in ({"approach": result["label"]} | given).items()}


def _tags(result: Mapping[str, Any]) -> dict[str, str]:
    tags = {
        "scale": result["scale"],
        "method": result["method"],
        "backbone": result["backbone"],
        "setting": setting(result),
        "studies": " ".join(result["studies"]),
        "changed": result["settings"],
        **{f"kept.{rule}": f"step {kept['step']}" for rule, kept in result["kept"].items()},
        "warnings": "; ".join(result["warnings"]),
        "mlflow.source.name": Path(sys.argv[0]).name,
        **{f"env.{name}": value for name, value in result["environment"].items()},
    }
    if "commit" in result["environment"]:
        tags["mlflow.source.git.commit"] = result["environment"]["commit"]
    return {name: value[:LONGEST_TAG] for name, value in tags.items()}


def setting(result: Mapping[str, Any]) -> str:
    """Return what is equal for all seeds of a setting, and differs between settings, to group runs by."""
    if given := result.get("setting"):
        return given
    # A result from before results had settings: a nested run is in its parameters by name, seed and key.
    return f"{result['method']} {result['settings']}"[:LONGEST_TAG]


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


def is_curve(name: str) -> bool:
    """Whether a metric of MLflow is a curve over the steps of training."""
    return name.startswith(CURVES)
