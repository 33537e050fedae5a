"""Tables, blocks and the check against the record.

tests/analysis/data/*.md are golden: after a deliberate change of layout, write them again with
`CSE_GOLDEN=write pytest tests/analysis/test_make_tables.py` and read the difference.
"""

import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis import make_figures, make_tables
from analysis.cells import join
from analysis.make_tables import Folders
from analysis.record.coverage import recorded_scales, studies_with_scores
from analysis.report import study_tables
from analysis.report.formats import DASH
from experiments.results import csv_record
from experiments.schema.contrasts import PRIMARY, Contrast
from experiments.schema.scales import SCALES
from experiments.studies import catalogue

GOLDEN = Path(__file__).parent / "data"
BLOCKS = "Prose.\n\n<!-- contrasts toy small -->\nold\n<!-- end -->\n\nMore.\n"


@pytest.fixture
def all_at_every_scale(only_toy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy study belongs to every scale."""
    monkeypatch.setattr(catalogue, "names_at", lambda scale: ["all"])


@pytest.fixture
def places(tmp_path: Path, mlruns: Path, all_at_every_scale: None) -> Folders:
    """A project with only the toy study and a report, whose tables are written."""
    found = Folders(mlruns=mlruns, tables=tmp_path / "tables", pages=(tmp_path / "REPORT.md",))
    (tmp_path / "REPORT.md").write_text(BLOCKS)
    make_tables.make(folders=found)
    return found


def check(places: Folders, **more) -> list[str]:
    return make_tables.make(check=True, folders=places, **more)


@pytest.mark.parametrize("name", ["study", "wide", "paper"])
def test_a_studys_page_is_as_it_was(name, lines, request):
    study = request.getfixturevalue(name)
    key = study.rows[1].keys()[1]  # Better has no sts14 for seed 1
    shorter = lines[(lines["key"] != key) | (lines["task"] != "sts14")]
    text = make_tables.files_of_study(join(study, shorter))["toy.md"]
    # The settings are those of a Run, whatever fields it has.
    stable = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("- Settings"))
    if os.environ.get("CSE_GOLDEN") == "write":
        (GOLDEN / f"{name}.md").write_text(stable)
    assert stable == (GOLDEN / f"{name}.md").read_text()


def test_settings_are_those_that_all_runs_share(study, lines):
    (note,) = [note for note in study_tables.notes(join(study, lines)) if note.startswith("Settings")]
    assert "batch_size 64" in note
    assert "temperature" not in note


def test_rows_that_differ_in_seeds_or_rule_are_named(study, lines):
    last = replace(study.rows[0], select="last", seeds=(7,), vary="all")
    text = "\n".join(study_tables.notes(join(replace(study, rows=(last, *study.rows[1:]), contrasts=()), lines)))
    assert 'Checkpoint kept by: stsb_dev; last for "SimCSE"; as is for "As it is".' in text
    assert (
        'Seeds: 7, nested runs too; 42, 1, 2 for "Better"; 42 for "One seed"; none (not trained) for "As it is".'
        in text
    )


def test_only_averages_are_compared_with_the_published_where_there_are_some(paper, lines):
    wider = replace(paper, columns=("sts12", "sts_avg"))
    first = replace(
        paper.rows[0], published=replace(paper.rows[0].published, columns={"sts12": "TR Avg", "sts_avg": "STS Avg"})
    )
    rows = (first, *paper.rows[1:])
    grid = study_tables.reproduction_grid(join(replace(wider, rows=rows), lines))
    assert {row[1] for row in grid.rows} == {"STS avg"}
    single = replace(wider, columns=("sts12",), rows=rows)
    assert [row[1] for row in study_tables.reproduction_grid(join(single, lines)).rows] == ["STS12"]


def test_latex_and_csv_come_with_the_markdown(study, lines):
    files = make_tables.files_of_study(join(study, lines))
    assert sorted(files) == ["toy.csv", "toy.md", "toy.tex"]
    assert r"SimCSE & 54.00 $\pm$ 1.00 (3) & 76.25 & -- & 85.81 & measured \\" in files["toy.tex"]
    header, first = files["toy.csv"].splitlines()[:2]
    assert header.startswith("row,column,provenance,mean,sd,n,scores")
    assert first.startswith("SimCSE,sts_avg,measured,54.0000,1.0000,3,42=53.0000 1=54.0000 2=55.0000,,76.2500")


def test_a_study_that_publishes_and_compares_nothing(study, lines):
    bare = replace(study, rows=tuple(replace(row, published=None) for row in study.rows), contrasts=())
    files = make_tables.files_of_study(join(bare, lines))
    assert "published" not in files["toy.md"].split("- Source")[0]
    assert "## Contrasts" not in files["toy.md"]
    planned = Contrast(claim="R1", family="f", role=PRIMARY, plus=("SimCSE",), margin=1.0)
    page = make_tables.files_of_study(join(replace(bare, contrasts=(planned,)), lines))["toy.md"]
    assert page.endswith("The plan judges this study's contrasts; REPORT.md has the verdicts of scale small.\n")


def test_made_twice_is_the_same_and_passes_the_check(places):
    files = sorted(places.tables.rglob("*"))
    before = {path: path.read_bytes() for path in files if path.is_file()}
    assert len(before) == 3
    assert check(places) == []
    assert make_tables.make(folders=places) == []
    assert {path: path.read_bytes() for path in before} == before
    assert not list(places.tables.rglob("*.part"))


def test_blocks_are_filled_and_prose_is_unchanged(places):
    report = places.pages[0].read_text()
    page = (places.tables / "small" / "toy.md").read_text()
    contrasts = page.split("\n\n## Contrasts\n\n")[1]
    assert contrasts.startswith("| claim | contrast |")
    assert report == f"Prose.\n\n<!-- contrasts toy small -->\n{contrasts}<!-- end -->\n\nMore.\n"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("<!-- contrasts nothing small -->\n<!-- end -->", "unknown study 'nothing'"),
        ("<!-- contrasts toy huge -->\n<!-- end -->", "unknown scale 'huge'"),
        ("<!-- contrasts all small -->\n<!-- end -->", "names 2 studies"),
        ("<!-- tables toy small -->\n<!-- end -->", "no block `tables toy`; there are .*, searches, value"),
        ("<!-- contrasts toy small -->\n", "not closed or has another form"),
        ("<!-- contrasts toy -->\n<!-- end -->", "not closed or has another form"),
        ("<!-- means toy small -->\n<!-- contrasts toy small -->\n<!-- end -->", "not closed or has another form"),
    ],
)
def test_wrong_blocks_are_errors(places, block, message, study, monkeypatch):
    monkeypatch.setattr(catalogue, "STUDIES", {"toy": lambda scale: study, "two": lambda scale: study})
    places.pages[0].write_text(block)
    with pytest.raises(ValueError, match=message):
        check(places)


def test_check_finds_an_edited_table_and_writes_nothing(places):
    path = places.tables / "small" / "toy.tex"
    path.write_text(path.read_text().replace("54.00", "64.00", 1))
    (found,) = check(places)
    assert str(path) in found
    assert "64.00" in found
    assert "64.00" in path.read_text()


def test_check_finds_an_edited_block(places):
    places.pages[0].write_text(places.pages[0].read_text().replace("| claim |", "| claims |", 1))
    (found,) = check(places)
    assert found.startswith(str(places.pages[0]))


def test_check_does_not_change_prose(places):
    places.pages[0].write_text("Other prose.\n" + places.pages[0].read_text())
    assert check(places) == []


def test_check_finds_a_changed_score(places, lines):
    lines.loc[0, "score"] = 0.99
    lines[csv_record.SCORES].to_csv(places.mlruns / "results.csv", index=False)
    changed = {Path(line.split(": line")[0]).name for line in check(places)}
    assert changed == {"toy.md", "toy.tex", "toy.csv", "REPORT.md"}


def test_check_finds_a_missing_and_a_stale_file(places):
    (places.tables / "small" / "toy.csv").unlink()
    for folder in ("small", "gone"):
        (places.tables / folder).mkdir(exist_ok=True)
        (places.tables / folder / "old.md").write_text("")
    stale = "stale, no study gives it"
    assert [line.split(": ")[1] for line in check(places)] == ["missing", stale, stale]
    make_tables.make(folders=places)
    assert check(places) == []


def test_check_sees_line_ends(places):
    path = places.tables / "small" / "toy.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert check(places) == [f"{path}: line ends differ"]


def test_stale_files_of_others_are_left_when_studies_are_named(places):
    other = places.tables / "small" / "other.md"
    other.write_text("")
    make_tables.make(["toy"], folders=places)
    assert other.is_file()


def test_quickstart_tables_are_neither_made_nor_checked_unasked(places):
    folder = places.tables / "quickstart"
    folder.mkdir()
    (folder / "quickstart.md").write_text("mine")
    assert check(places) == []
    make_tables.make(["quickstart"], folders=places)
    assert DASH in (folder / "quickstart.md").read_text()


def test_every_recorded_scale_is_made(lines):
    both = pd.concat([lines, lines.assign(scale="small-1m", key="x" + lines["key"])])
    assert recorded_scales(both) == ["small", "small-1m"]
    assert recorded_scales(lines.iloc[:0]) == ["small"]


def test_other_scales_than_the_reports_have_only_studies_with_scores(study, lines):
    larger = replace(study, scale=SCALES["small-1m"])
    both = pd.concat([lines, lines.assign(scale="small-1m")])
    for frame, made in ((lines, [study]), (lines.iloc[:0], [study]), (both, [study, larger])):
        assert studies_with_scores([study, larger], lambda scale, frame=frame: frame) == made


def test_a_named_study_is_made_where_something_of_it_is_recorded_or_at_the_scale_that_is_named(
    mlruns, places, lines, study, monkeypatch
):
    monkeypatch.setattr(catalogue, "STUDIES", {"toy": lambda scale: replace(study, scale=scale)})
    other = lines.assign(scale="small-1m", key="x" + lines["key"])  # of another study
    csv_record.merge_results(mlruns, other)
    folders = replace(places, tables=places.tables.with_name("named"))
    make_tables.make(["toy"], folders=folders)
    assert [path.name for path in folders.tables.iterdir()] == ["small"]
    make_tables.make(["toy"], scale="small-1m", folders=folders)
    assert sorted(path.name for path in folders.tables.iterdir()) == ["small", "small-1m"]


@pytest.mark.parametrize(("edit", "code"), [(False, 0), (True, 1)])
@pytest.mark.usefixtures("all_at_every_scale")
def test_command_check_fails_if_anything_differs(mlruns, tmp_path, monkeypatch, capsys, edit, code):
    def status(argument: str) -> object:
        monkeypatch.setattr("sys.argv", ["make_tables.py", argument, "--mlruns", str(mlruns)])
        with pytest.raises(SystemExit) as stop:
            make_tables.command()
        return stop.value.code

    monkeypatch.setattr(make_tables, "ROOT", tmp_path)
    assert status("toy") == 0
    path = mlruns / "tables" / "small" / "toy.md"
    path.write_text(path.read_text() + "more\n" * edit)
    assert status("--check") == code
    assert ("1 difference from" if edit else "0 differences from") in capsys.readouterr().out


@pytest.mark.parametrize("command", [make_tables.main, make_figures.main])
@pytest.mark.parametrize("names", [(), ("rankcse-table4",)])
def test_a_record_that_is_not_there_is_refused_and_not_made(tmp_path, command, names):
    gone = tmp_path / "gone"
    with pytest.raises(FileNotFoundError, match=f"--mlruns {gone}: no such folder; expected the folder of a record"):
        command(names, mlruns=gone)
    assert not gone.exists()


@pytest.mark.parametrize("command", [make_tables.main, make_figures.main])
@pytest.mark.parametrize("scale", ["small", "quickstart"])
def test_a_folder_without_scores_gives_no_tables_of_everything(tmp_path, command, scale):
    with pytest.raises(FileNotFoundError, match=r"holds no results\.csv; expected the folder of a record"):
        command((), scale=scale, mlruns=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_scale_of_quickstart_means_its_study(mlruns, lines, capsys):
    csv_record.merge_results(mlruns / "quickstart", lines.assign(scale="quickstart"))
    assert make_tables.main((), scale="quickstart", mlruns=mlruns) == 0
    made = {path.relative_to(mlruns / "tables").as_posix() for path in (mlruns / "tables").rglob("*.md")}
    assert made == {"quickstart/quickstart.md"}
    assert "SimCSE" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rankcse-table5", "rankencoder-corpus", "whitenedcse-table2"])
def test_a_study_that_a_scale_has_no_encoders_for_is_refused_by_name(mlruns, name):
    with pytest.raises(ValueError, match=f"study {name}: the scale quickstart lacks what it compares"):
        make_tables.main((name,), scale="quickstart", mlruns=mlruns)


def test_the_committed_tables_and_the_report_belong_to_the_projects_own_record(mlruns, tmp_path, monkeypatch):
    elsewhere = Folders.of(mlruns)
    assert (elsewhere.tables, elsewhere.pages) == (mlruns / "tables", ())
    own = Folders.of(csv_record.MLRUNS)
    assert own.tables == make_tables.ROOT / "analysis" / "tables"
    assert own.pages == tuple(make_tables.ROOT / name for name in make_tables.PAGES)
