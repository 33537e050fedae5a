"""Every table, figure and claim is declared, and every published number has one place at every scale."""

from collections import Counter
from pathlib import Path

import pytest

from analysis.verdicts.claims import claims
from cse_core.methods.compcse import CompCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.run import Pretrained, Run
from experiments.schema.columns import column
from experiments.schema.published_rows import BASELINES
from experiments.schema.recipes import BACKBONES
from experiments.schema.scales import SCALES
from experiments.schema.study import PUBLISHED_FOLDER, Study, published_lines
from experiments.studies.catalogue import STUDIES, choose_studies, single

SIZES = ("small", "small-1m", "paper")
CONTROLS = {"baselines", "ladder", "search", "whitenedcse-controls"}
CONTROLS |= {"rankcse-compute", "whitenedcse-figure3", "compcse-figure2", "compcse-figure3"}
OTHER_SETTINGS = {"consert", "ct", "isbert", "l2pcsr"}  # whose rates are in proportion to SimCSE's
TABLES = {"rankcse": 13, "rankencoder": 5, "whitenedcse": 6, "compcse": 6}
IDENTITY = ("backbone", "method", "variant", "task")
FIGURES = {
    "rankcse": ("1", "3a", "3b", "4", "5"),
    "rankencoder": ("4", "5", "6", "7", "8", "9"),
    "whitenedcse": ("1", "3"),
    "compcse": ("2", "3", "4", "5"),
}


def printed(study: Study) -> Counter[tuple[str, ...]]:
    """The lines of published tables that the study's cells show."""
    found: Counter[tuple[str, ...]] = Counter()
    for one in (row.published for row in study.rows if row.published):
        for name in study.columns:
            if line := one.line(name):
                found[(one.table, *(line[field] for field in IDENTITY))] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scale", SIZES)
def test_every_published_value_stands_in_exactly_one_cell_of_a_table(scale: str) -> None:
    studies = choose_studies(list(TABLES), scale)
    used = sum((printed(study) for study in studies if not study.twin), Counter())
    files = [path.stem for path in sorted(PUBLISHED_FOLDER.glob("*.csv")) if not path.stem.startswith("_")]
    assert len(files) == sum(TABLES.values())
    lines = [(table, line) for table in files for line in published_lines(table)]
    expected = Counter((table, *(line[field] for field in IDENTITY)) for table, line in lines)
    assert max(expected.values()) == 1
    assert {line: used[line] for line in expected if used[line] != 1} == {}
    assert set(used) <= set(expected)
    assert set(printed(*choose_studies(["baselines"], scale))) <= set(expected)  # shows some of them again


@pytest.mark.slow
@pytest.mark.parametrize("scale", SIZES)
def test_a_twin_shows_numbers_of_its_table_and_judges_nothing(scale: str) -> None:
    studies = {study.name: study for study in choose_studies(["all"], scale)}
    twins = [study for study in studies.values() if study.twin]
    assert {study.name for study in twins} == {"rankcse-figure1", "rankencoder-figure4", "rankencoder-figure5"}
    for study in twins:
        shown = printed(study)
        assert shown
        assert shown <= printed(studies[study.twin])
        assert study.view != "table"
        assert not study.contrasts


def test_every_table_and_figure_is_a_study_by_its_papers_number() -> None:
    expected = {f"{paper}-table{i}" for paper, count in TABLES.items() for i in range(1, count + 1)}
    expected |= {f"{paper}-figure{number}" for paper, numbers in FIGURES.items() for number in numbers}
    assert len(expected) == 30 + 17
    assert expected <= set(STUDIES)
    for study in choose_studies(sorted(expected), "small"):
        paper, _, number = study.name.partition("-")
        kind = "Table " if "table" in number else "Figure "
        assert study.source.lower() == f"{paper}, {kind}{number.removeprefix('table').removeprefix('figure')}".lower()


def test_every_claim_is_judged_somewhere() -> None:
    studies = choose_studies(["all"], "small")
    found = {claim for study in studies for claim in study.claims}
    assert set(claims()) - found == set()
    assert found <= set(claims())


def reads_others(run: Run) -> bool:
    """Whether a run is on other sentences by declaration: the STS sets' own, or no more than CT's steps read."""
    return run.corpus.name == "sts_texts" or run.method.name == "ct"


@pytest.mark.parametrize("scale", SIZES)
def test_every_declared_study_is_sound(scale: str) -> None:
    for declared in choose_studies(["all"], scale):
        for one in declared.rows:
            assert len(set(one.keys().values())) == len(one.keys()), f"{declared.name}: {one.label} has a key twice"
            assert one.encoder is not None or one.why
            assert not (one.why.startswith("imported") and one.published is None), f"{one.label}: imported from nowhere"
        if declared.tasks:
            runs = [run for one in declared.rows for run in one.runs()]
            assert runs or all(isinstance(one.encoder, Pretrained) for one in declared.rows if one.encoder)
            assert all(run.corpus == SCALES[scale].corpus or reads_others(run) for run in runs)
        for one in declared.contrasts:
            column(one.column)


def test_small_scale_is_as_declared() -> None:
    studies = [one for one in choose_studies(["all"], "small") if one.name not in CONTROLS and one.tasks]
    runs = [run for one in studies for line in one.rows for run in line.runs()]
    for run in runs:
        assert (run.batch_size, run.max_length, run.epochs, run.corpus.lines) == (64, 32, 1, 256 * 64)
        if run.method.name not in OTHER_SETTINGS:
            assert (run.learning_rate, run.dropout, run.eval_steps, run.warmup) == (3e-4, 0.3, 32, 0.0)
            assert run.seed in (42, 1, 2)


def test_the_search_is_on_dev_and_on_seeds_of_its_own() -> None:
    seeds = {
        study.name: {run.seed for one in study.rows for run in one.runs()} for study in choose_studies(["all"], "small")
    }
    mine = seeds.pop("search")
    assert mine
    assert not mine & set().union(*seeds.values())
    assert single("search", "small").columns == ("stsb_dev",)


def test_methods_of_the_core_point_to_runs_where_the_scale_has_their_backbone() -> None:
    ours = {"SimCSE", "DiffCSE", "PromptBERT", "SNCSE", "RankCSE", "RankEncoder", "WhitenedCSE", "CompCSE", *BASELINES}
    unstated = {(name, title) for name in ("PCL", "L2P-CSR") for title in BACKBONES.values() if title != "BERT-base"}
    for study in choose_studies(["all"], "paper"):
        for one in study.rows:
            named = (one.published.method, one.published.backbone) if one.published else ("", "")
            if one.published and named[0].split(" ")[0] in ours and one.published.table != "rankcse_table9":
                assert isinstance(one.encoder, Run) == (named not in unstated), f"{study.name}: {one.label}"


def test_the_claims_are_those_of_the_list() -> None:
    text = Path("experiments/CLAIMS.md").read_text()
    assert len(claims()) == text.count("\n| ") - 2  # head and rule


@pytest.mark.parametrize(("scale", "width"), [("small", 128), ("paper", 768)])
def test_groups_of_channels_are_those_of_the_labels(scale: str, width: int) -> None:
    for one in single("whitenedcse-table4", scale).rows:
        for run in one.runs():
            assert isinstance(run.method, WhitenedCSE)
            channels, how = one.label.split(" channels a group, ")
            assert run.method.groups * int(channels) == width
            assert run.method.whitening == ("group" if how.startswith("not") else "shuffled_group")


def test_sides_and_widths_of_composition_are_those_of_the_labels() -> None:
    methods = {
        one.label: run.method
        for table, scale in (("compcse-table4", "paper"), ("compcse-table6", "small"))
        for one in single(table, scale).rows
        for run in one.runs()[:1]
        if isinstance(run.method, CompCSE)
    }
    sides = {"compose z": "anchor", "compose z+": "positive", "compose both": "both"}
    assert {label: methods[label].side for label in sides} == sides
    widths = [method.dims for label, method in methods.items() if label.startswith("d0=")]
    assert widths == [32, 43, 64, None, 40, 48, 64, None]


@pytest.mark.slow
def test_the_papers_own_numbers_are_on_the_side_of_what_is_compared() -> None:
    against, count = set(), 0
    for declared in choose_studies(["all"], "paper"):
        rows = {one.label: one.published for one in declared.rows}
        for one in (one for one in declared.contrasts if one.is_of_two_rows and one.claim):
            first, second = (row.value(one.column) if (row := rows[label]) else None for label in one.rows)
            if first is not None and second is not None:
                count += 1
                against |= {(one.claim, *one.rows)} if first <= second else set()
    assert count > 90
    # ListMLE is below ListNet there, though the paper says that it is better on STS.
    assert against == {("R2", "RankCSE-listMLE RoBERTa-large", "RankCSE-listNet RoBERTa-large")}
