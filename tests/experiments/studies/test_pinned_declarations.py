"""Every study has the pinned keys, checkpoints, scorers and metrics, and the pinned contrasts.

The pins were checked line by line against the papers' tables and CLAIMS.md. After an intended change, run
`python -m tests.experiments.studies.test_pinned_declarations` and read the diff of the two CSV files.
"""

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cse_core.run import Pretrained
from experiments.schema.contrasts import EXPLORATORY, MEAN
from experiments.schema.scales import SCALES
from experiments.schema.study import Row, Study
from experiments.studies.catalogue import EVERYTHING, PLANNED, STUDIES, choose_studies
from experiments.sweep import Options, main

FOLDER = Path(__file__).with_name("pinned")
SIZES = ("small", "small-1m", "paper")
STUDY_FIELDS = ("study", "scale", "columns", "rows", "sha256")
CLAIM_FIELDS = ("study", "claim", "kind", "plus", "minus", "column", "more", "scales")


@cache
def declared(scale: str) -> tuple[Study, ...]:
    names = [scale] if scale in ("quickstart", "released") else ["all"]
    return tuple(choose_studies(names, scale))


@cache
def pinned_at(scale: str) -> tuple[Study, ...]:
    """At scale paper also the plan and its pilots, whose seeds and epochs at the others grow with each look."""
    return (*declared(scale), *(choose_studies(list(PLANNED), scale) if scale == "paper" else ()))


def row_of(study: Study, one: Row) -> list[Any]:
    """Everything that decides which numbers a row shows, and its published numbers."""
    published = one.published and [
        one.published.table,
        one.published.backbone,
        one.published.method,
        one.published.variant,
        dict(one.published.columns),
        one.published_runs,
    ]
    encoder = one.encoder.identity if isinstance(one.encoder, Pretrained) else list(one.keys().items())
    metrics = [study.metric_of(one, name, name) for name in study.columns]
    return [one.label, encoder, one.select, str(one.scorer), metrics, published, one.why, one.substitute]


def pinned_study(study: Study) -> dict[str, str]:
    rows = [row_of(study, one) for one in study.rows]
    content = json.dumps([rows, study.columns, study.metric, study.transfer_metric, study.twin], sort_keys=True)
    columns = " ".join(study.columns) if len(study.columns) < 8 else f"{study.columns[0]} ... {study.columns[-1]}"
    found = hashlib.sha256(content.encode()).hexdigest()[:16]
    return dict(zip(STUDY_FIELDS, (study.name, study.scale.name, columns, str(len(rows)), found), strict=True))


def compared(study: Study) -> Iterator[tuple[str, ...]]:
    """Each contrast and finding of a study, in words."""
    for one in study.contrasts:
        more = {"seed": one.teacher_seed} if one.teacher_seed is not None else {}
        more |= {} if one.paired or one.kind != MEAN else {"paired": False}
        sides = [" + ".join(side) for side in (one.plus, one.minus)]
        yield (study.name, one.claim, one.kind, *sides, one.column, json.dumps(more) if more else "")
    for other in study.findings:
        fields = asdict(other)
        claim = fields.pop("claim")
        yield (study.name, claim, type(other).__name__, "", "", "", json.dumps(fields))


@cache
def pinned_claims() -> list[dict[str, str]]:
    """One line a contrast, with the scales that declare it."""
    found: dict[tuple[str, ...], list[str]] = {}
    for scale in ("quickstart", *SIZES):
        for study in declared(scale):
            for line in compared(study):
                found.setdefault(line, []).append(scale)
    lines = [dict(zip(CLAIM_FIELDS, (*line, " ".join(scales)), strict=True)) for line, scales in found.items()]
    return sorted(lines, key=lambda line: [*STUDIES, "quickstart"].index(line["study"]))


def pinned_studies() -> list[dict[str, str]]:
    return [pinned_study(study) for scale in ("quickstart", *SIZES, "released") for study in pinned_at(scale)]


def read(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(name: str, fields: tuple[str, ...], lines: list[dict[str, str]]) -> None:
    with (FOLDER / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["quickstart", *SIZES, "released"])
def test_every_study_has_the_runs_scorers_and_metrics_that_are_pinned(scale: str) -> None:
    pinned = {line["study"]: line for line in read("studies.csv") if line["scale"] == scale}
    found = {study.name: pinned_study(study) for study in pinned_at(scale)}
    assert found.keys() == pinned.keys()
    assert {name for name in found if found[name] != pinned[name]} == set()


@pytest.mark.slow
def test_a_dry_run_of_everything_at_the_published_scale_lists_the_pinned_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Each run is listed once below its level. There is no warning, no unknown name and no file."""
    assert main(Options(studies=EVERYTHING, scale="paper", dry_run=True, mlruns=tmp_path)) == 0
    said = capsys.readouterr()
    first, *lines = said.out.splitlines()
    listed = [match[1] for line in lines if (match := re.match(r" +([0-9a-f]{12})  \S", line))]
    trained = [key for study in pinned_at("paper") if study.tasks for row in study.rows for key in row.keys().values()]
    assert set(trained) <= set(listed)
    assert first == f"{len(set(listed))} runs, 0 done, {len(listed)} to do"
    assert [line for line in lines if not re.match(r" +([0-9a-f]{12}|\d+\.)", line)] == []
    assert (said.err, caplog.text, list(tmp_path.iterdir())) == ("", "", [])


@pytest.mark.parametrize("name", ["quickstart", *STUDIES])
def test_every_contrast_is_for_its_claim_in_its_direction(name: str) -> None:
    pinned = [line for line in read("claims.csv") if line["study"] == name]
    found = [line for line in pinned_claims() if line["study"] == name]
    assert found == pinned


def test_the_papers_own_tables_judge_nothing() -> None:
    for scale in SCALES.keys() - {"minilm"}:
        for study in declared(scale):
            assert {(one.role, one.margin) for one in study.contrasts} <= {(EXPLORATORY, None)}, study.name


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write("studies.csv", STUDY_FIELDS, pinned_studies())
    write("claims.csv", CLAIM_FIELDS, pinned_claims())
