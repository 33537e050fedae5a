"""--check names what was changed since it was written: the record, tables, figures, files that are gone."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis import make_figures, make_tables
from experiments.results import csv_record
from experiments.studies import catalogue
from tests.support.toy_study import toy_lines, toy_study


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of the toy study, one run that no study declares, and the tables and figures of both: to be copied."""
    mlruns, study = tmp_path_factory.mktemp("record"), toy_study()
    csv_record.merge_results(mlruns, toy_lines())
    keys = [key for row in study.rows[:3] for key in row.keys().values()]
    points = [("small", key, "dev/stsb_dev", step, 0.5) for key in keys for step in (32, 64)]
    csv_record.CURVES_TABLE.merge(mlruns, pd.DataFrame(points, columns=csv_record.CURVES))
    line: dict[str, object] = {"key": "gone", "scale": "small", "method": "rankcse", "backbone": "b", "seed": 3}
    line |= {"settings": "rank=mse", "device": "d", "seconds": 1.0, "teachers": "c4bb688a65d9/stsb_dev x0.5"}
    line |= {"select": "last", "scorer": "cosine", "score": 0.5, "pairs": 9, "step": 1, "version": 1}
    line |= {"commit": "c", "metric": "acc"}
    csv_record.merge_results(mlruns, pd.DataFrame([line | {"task": task} for task in ("sts13", "sts12")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "STUDIES", {"toy": lambda scale: study})
        assert make_tables.main(mlruns=mlruns) == 0
        assert make_figures.main(("toy",), mlruns=mlruns) == 0
    return mlruns


@pytest.fixture
def made(record: Path, only_toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return shutil.copytree(record, tmp_path / "mlruns")


def check(mlruns: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What the two commands print. Each fails exactly if it finds a difference."""
    printed = []
    capsys.readouterr()
    for command in (make_tables, make_figures):
        status = command.main(check=True, mlruns=mlruns)
        printed.append(capsys.readouterr().out)
        assert ("0 differences" in printed[-1].splitlines()[-1]) is (status == 0)
    return printed[0], printed[1]


def alter(path: Path, at: int = -5) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_nothing_differs_from_what_was_made(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "figures/small/toy-curves.svg").unlink()  # git has none
    assert check(made, capsys) == ("0 differences from the record\n", "0 differences from SHA256SUMS\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["results.csv", "curves.csv", "runs.csv", "figures/small/toy-curves.png"])
def test_a_changed_byte_is_named(made: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    alter(made / name)
    for printed in check(made, capsys):
        assert f"{made / name}: its SHA-256 is" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["curves.csv", "figures/small/toy-curves.png", "SHA256SUMS"])
def test_a_missing_file_is_named(made: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (made / name).unlink()
    for printed in check(made, capsys):
        assert f"{made / name}: missing" in printed


@pytest.mark.slow
def test_a_changed_table_is_named_once(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made / "tables" / "small" / "toy.md"
    alter(path)
    capsys.readouterr()
    assert make_tables.main(check=True, mlruns=made) == 1
    printed = capsys.readouterr().out
    assert printed.count(f"{path}: ") == 1
    assert printed.endswith("1 difference from the record\n")


@pytest.mark.slow
def test_a_file_that_nothing_made_is_named(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = made / "figures" / "small" / "of-no-study.png"
    strange.write_bytes(b"")
    tables, figures = check(made, capsys)
    for printed in (tables, figures):
        assert f"{strange}: not listed in {made / 'SHA256SUMS'}" in printed
    assert f"{strange}: stale, no study gives it" in figures


@pytest.mark.slow
def test_tables_are_not_made_from_a_record_changed_by_hand_unless_it_is_accepted(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made / "runs.csv"
    path.write_text(path.read_text().replace("rank=mse", "rank=mle"))
    with pytest.raises(ValueError, match=r"runs\.csv: its SHA-256 is"):
        make_tables.main(mlruns=made)
    assert make_tables.main(accept=True, mlruns=made) == 0
    assert make_tables.main(mlruns=made) == 0
    assert check(made, capsys)[0] == "0 differences from the record\n"


def test_runs_of_no_study_are_a_page(made: Path) -> None:
    text = (made / "tables" / "small" / "undeclared-runs.md").read_text()
    runs = len(csv_record.read_runs("small", made))
    assert f"1 of the {runs} runs that are recorded" in text
    assert "| gone | rankcse | b | 3 | rank=mse | c4bb688a65d9/stsb_dev x0.5 | last, cosine: sts12 sts13 |" in text
    assert text.count("\n| ") == 2 + 1  # header, rule, one run


@pytest.mark.slow
@pytest.mark.usefixtures("only_toy")
def test_without_undeclared_runs_there_is_no_page(mlruns: Path) -> None:
    make_tables.main(mlruns=mlruns)
    assert not (mlruns / "tables" / "small" / "undeclared-runs.md").exists()
    assert (mlruns / "tables" / "small" / "toy.md").exists()
