"""What REPORT.md says of an audit."""

import json
from pathlib import Path
from typing import Any

from analysis.record.audit_tables import audit_block

RUN: dict[str, Any] = {
    "key": "abc",
    "row": "SimCSE s1",
    "studies": ["one", "two"],
    "drawn": True,
    "commit": "1234567890",
    "failure": "",
    "recorded_on": "A",
    "trained_on": "A",
    "cells": 1000,
    "largest_cell": 0.0,
    "points": 40,
    "largest_point": 0.0,
    "differences": [],
}
NESTED = RUN | {"key": "def", "drawn": False, "trained_on": "B", "cells": 24, "largest_cell": 2e-8, "points": 8}
DIFFERENCE = {"select": "last", "scorer": "cosine", "task": "stsb", "metric": "spearman.all"}
FAILED = {name: RUN[name] for name in ("key", "row", "studies", "drawn", "commit")} | {"failure": "OSError: no room"}


def block(folder: Path, *runs: dict[str, Any]) -> str:
    about = {"scale": "small", "seed": 21, "asked": 20, "candidates": 462, "undeclared": 79}
    tolerances = {"same processor": 1e-12, "score": 5e-5, "accuracy": 0.02}
    (folder / "audit-small.json").write_text(json.dumps(about | {"tolerances": tolerances, "runs": runs}))
    return audit_block("small", folder)


def test_an_audit_that_was_not_made_is_shown_as_missing(tmp_path: Path) -> None:
    assert audit_block("small", tmp_path) == "Not audited yet."


def test_runs_are_counted_by_processors(tmp_path: Path) -> None:
    said = block(tmp_path, RUN, NESTED)
    assert "audit.py --count 20 --seed 21 --scale small" in said
    assert "drew 20 of the 462 runs that were recorded then" in said
    assert "79 more belonged to no study" in said
    assert "1 of those drawn were retrained, and 1 that they need" in said
    assert "| A | A | 1 | 1,000 | 0.0e+00 | 40 | 0.0e+00 | 0 |" in said
    assert "| A | B | 1 | 24 | 2.0e-08 | 8 | 0.0e+00 | 0 |" in said
    assert "| together |  | 2 | 1,024 | 2.0e-08 | 48 | 0.0e+00 | 0 |" in said
    assert "more than 1e-12 on one kind of processor; on another: score 5e-05, accuracy 0.02." in said
    assert "\n- " not in said


def test_what_differs_and_what_failed_is_named(tmp_path: Path) -> None:
    said = block(tmp_path, RUN | {"differences": [DIFFERENCE | {"recorded": 0.5, "retrained": 0.6}]}, FAILED)
    assert "- abc, SimCSE s1 (one, two): last, cosine, stsb, spearman.all: recorded 0.5, retrained 0.6" in said
    assert "- abc, SimCSE s1 (one, two): failed, OSError: no room" in said
    assert "| A | A | 1 | 1,000 | 0.0e+00 | 40 | 0.0e+00 | 1 |" in said


def test_of_many_differences_the_largest_of_a_score_is_named(tmp_path: Path) -> None:
    small, large = {"recorded": 0.5, "retrained": 0.51}, {"recorded": 0.5, "retrained": 0.4}
    curve = {"select": "", "scorer": "curve", "task": "loss", "metric": "step 8", "recorded": 9.0, "retrained": 8.0}
    differences = [DIFFERENCE | small, DIFFERENCE | {"task": "sts12"} | large, curve]
    said = block(tmp_path, RUN | {"differences": differences})
    assert "3 numbers differ, most: last, cosine, sts12, spearman.all: recorded 0.5, retrained 0.4" in said
    said = block(tmp_path, RUN | {"differences": [*differences, DIFFERENCE | {"recorded": None, "retrained": 0.5}]})
    assert "4 numbers differ, most: last, cosine, stsb, spearman.all: recorded None, retrained 0.5" in said
    assert "most: curve, loss, step 8: recorded 9.0" in block(tmp_path, RUN | {"differences": [curve, curve]})
