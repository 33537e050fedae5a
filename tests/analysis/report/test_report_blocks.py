"""Blocks of REPORT.md that are of no single study, against what is known of the published tables."""

import pytest

from analysis.report import report_blocks
from cse_core.run import Run
from experiments.execution.plan import jobs_of
from experiments.execution.schedule_estimate import gpu_hours
from experiments.results.csv_record import read_results
from experiments.studies.catalogue import choose_studies


def test_averages_that_do_not_add_up_are_the_known_four():
    found = report_blocks.averages_grid().rows
    assert [(title, method) for title, _, method, *_ in found] == [
        ("CompCSE, Table 1", "MoCoSE"),
        ("RankCSE, Table 3", "last avg"),
        ("RankEncoder, Table 1", "PromptBERT"),
        ("WhitenedCSE, Table 2", "last avg"),
    ]
    assert found[0][3:] == ("77.287", "77.27")


def test_values_shared_by_two_backbones_are_arccses():
    found = report_blocks.copies_grid().rows
    assert {row[1] for row in found} == {"ArcCSE"}
    assert {row[3] for row in found} == {"SUBJ 99.58, MRPC 74.78"}
    assert [row[0] for row in found] == ["RankCSE, Table 3", "WhitenedCSE, Table 2"]


def test_baselines_that_papers_print_differently_are_dclr_and_pcl():
    found = report_blocks.mismatches_grid().rows
    assert {row[0] for row in found} == {"DCLR", "PCL"}
    assert ("DCLR", "BERT-base", "RankCSE, Table 2", "WhitenedCSE, Table 1", "STS13 83.73 / 83.74") in found
    large = next(row for row in found if row[:2] == ("PCL", "BERT-large"))
    assert large[4].endswith("Avg 79.94 / 80.14")


@pytest.mark.slow
def test_hours_at_the_published_scale_are_estimates_of_all_runs():
    studies = choose_studies(["rankcse-table1"], "paper")
    runs = [job.encoder for job in jobs_of(studies).values() if isinstance(job.encoder, Run)]
    hours = sum(map(gpu_hours, runs))
    assert hours > 20 / 60 + 45 / 60  # the two teachers' epochs
    found = {row[0]: row for row in report_blocks.runs_grid(studies, read_results("paper")).rows}
    assert found["rankcse-table1"][6] == f"{hours:.1f}"


@pytest.mark.slow
def test_runs_are_unique_and_count_those_that_others_need():
    studies = choose_studies(["rankcse-table1", "rankcse-table12", "rankcse-table9"], "paper")
    found = {row[0]: row for row in report_blocks.runs_grid(studies, read_results("paper")).rows}
    assert found["rankcse-table1"][4] == found["together"][4] == "5"  # SimCSE twice, DiffCSE, both losses
    assert found["rankcse-table9"][4] == "0"
    assert found["together"][5] == "0"


@pytest.mark.slow
def test_a_study_leads_to_its_table_and_its_figure():
    line = report_blocks.runs_grid(choose_studies(["rankcse-figure4"], "small"), read_results("small")).rows[0]
    assert line[0] == "[rankcse-figure4](analysis/tables/small/rankcse-figure4.md)"
    assert line[1] == "[RankCSE, Figure 4](analysis/figures/small/rankcse-figure4.png)"
    assert line[2] == "R12"
    table = report_blocks.runs_grid(choose_studies(["rankcse-table4"], "small"), read_results("small")).rows[0]
    assert table[1] == "RankCSE, Table 4"


@pytest.mark.slow
def test_hours_trained_are_those_of_the_record_once_a_run():
    results = read_results("small")
    studies = choose_studies(["rankcse-table1", "rankcse-table12"], "small")
    found = {row[0]: row for row in report_blocks.runs_grid(studies, results).rows}
    keys = {key for study in studies for row in study.rows for key in row.keys().values()}
    keys |= {n.key for study in studies for row in study.rows for run in row.runs() for n in run.nested()}
    seconds = {key: s for key, s in zip(results["key"], results["seconds"], strict=True) if key in keys}
    assert len(seconds) == len(keys)
    assert float(found["together"][6]) == pytest.approx(sum(seconds.values()) / 3600, abs=0.05)
