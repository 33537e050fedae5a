"""A rehearsal kills and resumes real processes, writes a line for each row, and refuses wrong options."""

import csv
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.models.pretrained import ENCODERS
from experiments.execution.job import ExecutionSettings
from experiments.execution.step_cost import size_of, step_cost
from experiments.schema.recipes import simcse_run
from experiments.schema.scales import SCALES
from tests.benchmarks import bench_published_scale as bench
from tests.benchmarks.rehearsal import rehearsal_row, rehearsal_table
from tests.benchmarks.rehearsal.measured_run import Measured
from tests.benchmarks.rehearsal.rehearsal_row import rehearse_row, remove_unneeded
from tests.benchmarks.rehearsal.rehearsal_table import (
    add_line,
    as_text,
    forecast_line,
    read_lines,
    renew_forecasts,
    with_measured,
)
from tests.benchmarks.rehearsal.rehearsed_runs import (
    METHODS,
    Limits,
    Rehearsed,
    needed_jobs,
    rehearsed_methods,
    rehearsed_studies,
    stand_in_scale,
)
from tests.benchmarks.rehearsal.stand_ins import shapes
from tests.support.rehearsals import LIMITS, SCALE

NUMBERS = ("batch", "tokens", "gigaflops")


def tiny(name: str) -> Rehearsed:
    rows = rehearsed_methods(SCALE, LIMITS, "synthetic_dev")
    return next(row for row in rows if (row.name, row.backbone) == (name, "bert-base-uncased"))


def forecast(row: Rehearsed) -> rehearsal_table.Line:
    return forecast_line(row, layers=0, on="cpu")


def rehearsed(row: Rehearsed, store: Path, **how: bool) -> rehearsal_table.Line:
    return rehearse_row(row, forecast(row), ExecutionSettings(store), **how)


@pytest.mark.parametrize(
    ("resumed", "unkilled", "said"),
    [("a", "aa", "yes"), ("a", "bb", "no"), ("a", "bc", "not repeatable"), ("a", "ba", "not repeatable")],
)
def test_a_failed_resume_and_a_device_without_repeatable_sums_get_different_answers(
    resumed: str, unkilled: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = iter(unkilled)
    monkeypatch.setattr(rehearsal_row, "_weights", lambda folder: {"last": resumed})
    monkeypatch.setattr(rehearsal_row, "_train_apart", lambda *_: {"last": next(trained)})
    assert rehearsal_row._compare(tiny("simcse"), ExecutionSettings(tmp_path)) == said


@pytest.mark.slow
def test_a_run_is_killed_resumed_compared_and_scored_with_the_base_it_needs(tmp_path: Path) -> None:
    row = tiny("rankencoder")
    line = rehearsed(row, tmp_path, compare=True)
    assert line.failed == ""
    assert (line.resumed_after, line.identical, line.scored) == (1, "yes", "synthetic_dev")
    assert (line.batch, line.tokens, line.threads, line.layers) == (4, 32, 1, 0)
    assert line.memory_mib
    assert line.seconds
    assert 30 < line.memory_mib < 600  # weights, gradients and moments of 2.5 million parameters are 38 MiB
    assert 0 < line.seconds < 5
    bases = {job.key for job in needed_jobs(row)}
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {row.job.key, *bases}  # the copy for the comparison was deleted
    remove_unneeded(row, tmp_path, bases)
    assert not (tmp_path / row.job.key).exists()


@pytest.mark.slow
def test_an_encoder_is_scored_and_an_error_becomes_the_rows_line(tmp_path: Path) -> None:
    rows = rehearsed_studies(SCALE, LIMITS, "synthetic_dev")
    untrained = next(row for row in rows if row.run is None and row.job.encoder.name == "wiki-tiny")  # ty: ignore
    line = rehearsed(untrained, tmp_path)
    assert (line.failed, line.scored, line.memory_mib, line.resumed_after) == ("", "synthetic_dev", None, None)
    whole = replace(LIMITS, batch=0)
    row = next(iter(rehearsed_methods(stand_in_scale(shapes()), whole, "synthetic_dev")))
    line = rehearsed(row, tmp_path)  # there are no stand-ins
    assert line.failed.startswith("FileNotFoundError: backbone 'stand-in/bert-base-uncased': neither embedded")
    assert (line.memory_mib, line.seconds, line.scored) == (None, None, "")


def test_a_forecast_is_the_planners_for_the_papers_shape() -> None:
    scale = stand_in_scale(shapes())
    row = next(iter(rehearsed_methods(scale, Limits(precision="fp32", batch=16), "sts16")))
    line = forecast(row)
    published = simcse_run(SCALES["paper"], "bert-base-uncased")
    assert published
    assert line.gigaflops == 16 * step_cost(published).at(size_of("bert-base-uncased")) / 1e9
    consert = next(row for row in rehearsed_methods(scale, Limits(), "sts16") if row.name == "consert")
    work = [forecast_line(consert, layers=0, on=on).gigaflops or 0 for on in ("cpu", "cuda")]
    assert work[1] == pytest.approx(work[0] * 67 / 32)  # only a GPU's passes have padding
    assert forecast_line(row, layers=1, on="cpu").gigaflops is None  # no shape of the planner's


@pytest.mark.slow
def test_the_committed_tables_forecasts_are_those_of_the_planner_as_it_is() -> None:
    """After a change of the planner, `--forecasts --write` with the table's options puts its forecasts there."""
    lines = [line for line in read_lines() if line["study"] == METHODS and line["layers"] == "0"]
    assert len(lines) > 15
    for batch in {int(line["batch"]) for line in lines}:
        limits = Limits(batch=batch, precision="fp32", parser=False)
        rows = {(r.name, r.backbone): r for r in rehearsed_methods(stand_in_scale(shapes()), limits, "sts16")}
        for line in (line for line in lines if (line["batch"], line["on"]) == (str(batch), "cpu")):
            now = as_text(forecast(rows[line["row"], line["backbone"]]))
            assert [now[name] for name in NUMBERS] == [line[name] for name in NUMBERS], line["row"]


def test_a_line_replaces_that_of_the_same_row_and_no_other(tmp_path: Path) -> None:
    table = tmp_path / "new" / "rehearsal.csv"
    one, other = (forecast(tiny(name)) for name in ("simcse", "mixcse"))
    measured = Measured((2, 3), 2**21, 0.123456789, {"sts16 spearman.all": 0.5, "sts16 pearson.all": 0.5}, "m", 1, "v")
    add_line(replace(one, failed='an "error", with a comma'), table)
    add_line(other, table)
    add_line(with_measured(one, measured, killed=True), table)
    first, second = read_lines(table)
    assert (first["row"], first["memory_mib"], first["seconds"], first["failed"]) == ("simcse", "2", "0.12346", "")
    assert (first["scored"], first["resumed_after"]) == ("sts16", "1")
    assert (second["row"], second["memory_mib"], second["seconds"], second["threads"]) == ("mixcse", "", "", "")
    renewed = [replace(one, gigaflops=7.0), replace(other, gigaflops=9.0, changes="another batch")]
    renew_forecasts(renewed, table)
    first, same = read_lines(table)
    assert (first["gigaflops"], first["memory_mib"]) == ("7", "2")
    assert same == second
    table.write_text("other,columns\n1,2\n")
    with pytest.raises(ValueError, match="expected the columns study, row"):
        read_lines(table)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """The command on the embedded backbones, with a row's work replaced by its name."""
    monkeypatch.setenv(ENCODERS, "")
    monkeypatch.setattr(bench, "stand_in_scale", lambda shapes, corpus: SCALE)

    def started(**options: object) -> list[str]:
        rows: list[str] = []

        def work(row: Rehearsed, line: rehearsal_table.Line, execution: object, **how: bool) -> rehearsal_table.Line:
            rows.append(f"{row.study} {row.name} {row.backbone}{' compared' if how['compare'] else ''}")
            return replace(line, failed="it broke" if row.name == "ct" else "", scored="" if row.name == "ct" else "it")

        monkeypatch.setattr(bench, "rehearse_row", work)
        about = {"encoders": tmp_path, "corpus": "synthetic", "device": "cpu"}
        status = bench.main(bench.Options(**(about | options)))  # ty: ignore[invalid-argument-type]
        assert status == int(any(" ct " in row for row in rows))
        return rows

    return started


@pytest.mark.slow
def test_chosen_rows_are_rehearsed_unless_they_ended_before(
    run: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = {"only": ("simcse", "ct"), "backbones": ("bert-base-uncased",)}
    both = ["as published simcse bert-base-uncased compared", "as published ct bert-base-uncased"]
    assert run(**only, compare=("simcse",)) == both
    assert os.environ[ENCODERS] == str(tmp_path)
    assert run(**only) == ["as published ct bert-base-uncased"]  # which failed
    assert run(only=("simcse",)) == ["as published simcse bert-large-uncased"]
    assert run(**only, again=True) == ["as published simcse bert-base-uncased", "as published ct bert-base-uncased"]
    assert run(forecasts=True, again=True) == []
    assert run(studies=True, only=("rankcse-table4",))[0].startswith("rankcse-table4 ")
    known = [{"study": "as published", "row": "mixcse", "backbone": "bert-base-uncased", "layers": "0", "on": "cpu"}]
    monkeypatch.setattr(bench, "read_lines", lambda *path: [] if path else [line | {"scored": "it"} for line in known])
    assert run(only=("mixcse", "pcl"), missing=True) == ["as published pcl bert-base-uncased"]
    with (tmp_path / "rehearsal.csv").open() as file:
        assert sum(bool(line["failed"]) or line["scored"] == "it" for line in csv.DictReader(file)) == 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"only": ("simcs",)}, "simcs: expected one of simcse, rankcse"),
        ({"backbones": ("BERT-base",)}, "BERT-base: expected one of bert-base-uncased"),
        ({"compare": ("none",)}, "none: expected one of simcse"),
        ({"steps": 1}, "--steps: expected a number of at least 2, got 1"),
        ({"layers": -1}, "--layers: expected a number of at least 0"),
        ({"device": "gpu"}, "--device: expected cpu or cuda"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    run: Callable[..., list[str]], tmp_path: Path, options: dict[str, object], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        run(**options)
    assert list(tmp_path.iterdir()) == []
