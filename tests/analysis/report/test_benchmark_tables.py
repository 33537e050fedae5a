"""The benchmark blocks of the report, from figures written by hand."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.report.benchmark_tables import benchmarks_block, exponent, meets_aim

WHERE = {"on": "cpu", "machine": "a machine", "threads": 2, "versions": "torch 2"}


def write(folder: Path, name: str, rows: list[dict]) -> None:
    pd.DataFrame([row | WHERE for row in rows]).to_csv(folder / f"{name}.csv", index=False)


@pytest.mark.parametrize(
    ("ratio", "aim", "expected"),
    [
        (1.5, "at least 1.5", "yes"),
        (1.49, "at least 1.5", "**no**"),
        (1.1, "at most 1.10", "yes"),
        (1.11, "at most 1.10", "**no**"),
        (9.0, "", "\N{EN DASH}"),
    ],
)
def test_an_aim_is_met_or_not(ratio: float, aim: str, expected: str) -> None:
    assert meets_aim(ratio, aim) == expected


@pytest.mark.parametrize("aim", ["below 2", "at last 2", "at least", "at most 2 s"])
def test_an_aim_that_says_nothing_is_refused(aim: str) -> None:
    with pytest.raises(ValueError, match="an aim reads"):
        meets_aim(1.0, aim)


def test_ratios_show_their_spread_their_aim_and_the_machine(tmp_path: Path) -> None:
    row = {"what": "a step", "ratio": 2.346, "low": 2.2, "high": 2.5, "turns": 5, "wanted": "at least 3"}
    write(tmp_path, "ratios", [row | {"against": "as fast as a peer", "bound": "products", "note": "7 ms"}])
    table, where = benchmarks_block("ratios", "cpu", tmp_path).split("\n\n")
    assert table.splitlines()[-1] == (
        "| a step | 2.35 | 2.20 to 2.50 (5) | at least 3 | **no** | as fast as a peer | 7 ms | products |"
    )
    assert where == "Measured on: a machine, 2 threads (torch 2)."


def test_exponents_are_slopes_of_logarithms(tmp_path: Path) -> None:
    assert exponent(pd.Series([1, 10, 100]), pd.Series([3, 300, 30_000])) == pytest.approx(2)
    points = [{"what": "time, sorting", "of": "rows", "x": x, "value": 5 * x, "unit": "ms"} for x in (10, 100, 1000)]
    points.append({"what": "time, sorting", "of": "rows", "x": 2, "value": 0, "unit": "ms"})  # too small to be seen
    write(tmp_path, "scaling", points)
    line = benchmarks_block("scaling", "cpu", tmp_path).splitlines()[2]
    assert line == "| time, sorting | rows | 1.00 | 10: 50, 100: 500, 1,000: 5,000, 2: 0 ms |"


def test_profiles_stand_side_by_side_and_add_up(tmp_path: Path) -> None:
    parts = [
        ("padded", "products", 3.0),
        ("padded", "dropout", 1.0),
        ("packed", "products", 1.5),
        ("packed", "dropout", 0.1),
    ]
    write(tmp_path, "profiles", [{"step": step, "part": part, "ms": ms} for step, part, ms in parts])
    lines = benchmarks_block("profiles", "cpu", tmp_path).splitlines()
    assert lines[0] == "| ms a step | padded | packed |"
    assert lines[2:5] == ["| products | 3.0 | 1.5 |", "| dropout | 1.0 | 0.1 |", "| **together** | 4.0 | 1.6 |"]


def test_what_was_not_measured_is_shown_as_missing(tmp_path: Path) -> None:
    assert "Not measured" in benchmarks_block("ratios", "cpu", tmp_path)
    write(tmp_path, "ratios", [{"what": "a step"}])
    assert "Not measured" in benchmarks_block("ratios", "cuda", tmp_path)
    known = "ratios, tried, scaling, profiles, rehearsed-methods, rehearsed-studies"
    with pytest.raises(ValueError, match=f"blocks are {known}, got 'speed'"):
        benchmarks_block("speed", "cpu", tmp_path)


REHEARSED: dict[str, object] = {
    **{"study": "as published", "row": "simcse", "backbone": "bert-base-uncased"},
    **{"layers": 0, "batch": 16, "tokens": 32},
    **{"changes": "batch_size 16, published 64; precision fp32, published fp16", "failed": "", "identical": "yes"},
    **{"memory_mib": 2048, "seconds": 4.0, "gigaflops": 96, "resumed_after": 1, "scored": "sts16"},
}


def test_a_rehearsal_shows_each_method_with_its_forecast_and_what_is_missing(tmp_path: Path) -> None:
    """The forecast of a method's time is SimCSE's, here 4 s for 96 operations, times the ratio of operations."""
    other = {"row": "whitenedcse", "gigaflops": 48, "seconds": 2.8, "memory_mib": 1100, "batch": 64, "identical": ""}
    lost = {"row": "ct", "failed": "OSError: no space", "memory_mib": "", "seconds": ""}
    empty = {"row": "simcse", "backbone": "roberta-large", "memory_mib": "", "seconds": "", "changes": ""}
    whole = {"changes": "precision fp32, published fp16"}
    write(tmp_path, "rehearsal", [REHEARSED, REHEARSED | other | whole, REHEARSED | lost, REHEARSED | empty])
    text = benchmarks_block("rehearsed-methods", "cpu", tmp_path)
    lines = text.splitlines()
    assert lines[0] == "2 of 4 rehearsed; the others have dashes."
    dash = "\N{EN DASH}"
    simcse = "| simcse | BERT-base | 16 of 64 | 32 | 2.00 | 4.00 | {0} | {0} | after 1 | yes | sts16 |"
    assert simcse.format(dash) in lines
    whitened = "| whitenedcse | BERT-base | 64 | 32 | 1.07 | 2.80 | 2.00 | 1.40 | after 1 | {0} | sts16 |"
    assert whitened.format(dash) in lines
    assert f"| ct | BERT-base |{f' {dash} |' * 8} failed: OSError: no space |" in lines
    assert f"| simcse | RoBERTa-large |{f' {dash} |' * 9}" in lines
    assert "- precision fp32, published fp16: all." in lines
    assert "batch_size" not in text


def test_a_rehearsal_of_studies_says_what_became_of_each(tmp_path: Path) -> None:
    study = REHEARSED | {"study": "rankcse-table4", "row": "SimCSE", "layers": 2}
    glove = study | {"study": "b", "row": "GloVe", "backbone": "", "memory_mib": "", "scored": "mr"}
    broken, absent, idle = ({"study": name, "failed": "", "scored": ""} for name in "cde")
    others = [study | broken | {"failed": "no"}, study | absent, study | idle | {"row": ""}]
    write(tmp_path, "rehearsal", [REHEARSED, study, glove, *others])
    lines = benchmarks_block("rehearsed-studies", "cpu", tmp_path).splitlines()
    assert lines[0] == "2 of 4 started and were scored. Not rehearsed: d. Nothing to start in e."
    assert lines[4:7] == [
        "| rankcse-table4 | SimCSE | BERT-base, 2 layers | trained | sts16 |",
        "| b | GloVe | \N{EN DASH} | as it is | mr |",
        "| c | SimCSE | BERT-base, 2 layers | failed: no | \N{EN DASH} |",
    ]
