"""Values inside sentences: what a name and a part give, and what is refused."""

import re
from pathlib import Path

import pytest

from analysis.report import values
from analysis.report.blocks import Record, fill_page
from analysis.report.values import Value, largest, over, spread, value_text
from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval
from experiments.results import csv_record
from tests.support.figure_records import EmptyRecord

PAGES = ("README.md", "REPORT.md", "APPENDIX.md")
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "gain": Value(lambda record: Estimate(-1.25, Interval(-2.0, -0.5), 5), 1),
        "share": Value(lambda record: 0.0064, 3),
        "word": Value(lambda record: "E1"),
        "nothing": Value(lambda record: None),
    }
    monkeypatch.setattr(values, "VALUES", made)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gain", "1.2"),
        ("gain signed", "-1.25"),
        ("gain interval", "[-2.00, -0.50]"),
        ("gain estimate", "-1.25 [-2.00, -0.50]"),
        ("gain seeds", "5"),
        ("share", "0.006"),
        ("word", "E1"),
        ("nothing estimate", "\N{EN DASH}"),
    ],
)
def test_a_part_of_a_value_is_its_text(name: str, expected: str) -> None:
    assert value_text(name, EmptyRecord()) == expected


def test_an_unknown_part_or_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"value 'gain p': no part 'p'; there are signed, interval, estimate"):
        value_text("gain p", EmptyRecord())


@pytest.mark.slow
def test_claims_and_controls_of_the_plan_have_names() -> None:
    message = r"'R99': no such value; there are R1, .*teachers\.positive, .*S4.*, gain, share"
    with pytest.raises(ValueError, match=message):
        value_text("R99", EmptyRecord())
    assert value_text("R1 verdict", EmptyRecord()) == "not run yet"
    assert value_text("R1 published", EmptyRecord()) == "3.80"
    assert value_text("R1 estimate", EmptyRecord()) == "\N{EN DASH}"


def test_a_page_is_filled_inside_its_sentences_and_nowhere_else() -> None:
    page = "It loses <!-- value gain -->9<!-- --> points (by <!-- value gain\nseeds --><!-- --> seeds); 9 stays.\n"
    filled = fill_page(page, EmptyRecord())
    assert re.sub(r"<!--.*?-->", "", filled, flags=re.DOTALL) == "It loses 1.2 points (by 5 seeds); 9 stays.\n"
    assert fill_page(filled, EmptyRecord()) == filled
    with pytest.raises(ValueError, match="not closed"):
        fill_page("It loses <!-- value gain -->9 points.", EmptyRecord())


def test_one_number_of_several_needs_all_of_them() -> None:
    gain, share, nothing = (values.VALUES[name] for name in ("gain", "share", "nothing"))
    assert largest(gain, share).make(EmptyRecord()) == 1.25
    assert spread([gain, share]).make(EmptyRecord()) == pytest.approx(1.2564)
    assert over(max, [gain, share]).make(EmptyRecord()) == 0.0064
    assert largest(gain, nothing).make(EmptyRecord()) is None


@pytest.mark.slow  # reads the record's plan
def test_a_row_ahead_of_another_is_what_the_plans_own_contrast_gives() -> None:
    record = Record(csv_record.MLRUNS)
    found = values.paired("plan-losses", "ListNet, 8 epochs", "ListNet w/o consistency, 8 epochs").make(record)
    ours = {verdict.tested.claim: verdict.estimate for verdict in record.plan("small").contrasts}["R3"]
    assert isinstance(found, Estimate)
    assert found.interval == pytest.approx(ours.interval if ours else None)
    hidden = values.mean("plan-ranks", "RankEncoder, 8 epochs", "rank_larger").make(record)
    assert 0 < float(str(hidden)) < 100  # a column that the study's table does not show


def test_every_value_is_used_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = "".join((ROOT / name).read_text() for name in PAGES)
    used = {name.split()[0] for name in re.findall(r"<!-- value ([^>]+?) -->", text)}
    assert [name for name in values.VALUES if name not in used] == []
