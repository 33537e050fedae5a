"""Numbers and grids as text."""

import pytest

from analysis.report import formats
from analysis.report.formats import DASH, Grid
from analysis.stats.significance import Interval, Summary

GRID = Grid("A title", ("", "score", "what"), (("a | b", "1.00 ± 0.10 (3)", "of_x, 50 %"), ("[c]", DASH, "no")))


@pytest.mark.parametrize(
    ("score", "digits", "text"),
    [
        (54.714999, 2, "54.71"),
        (0.0, 2, "0.00"),
        (None, 2, DASH),
        (-0.001, 2, "0.00"),
        (100.0, 2, "100.00"),
        (3108.0, 0, "3108"),
        (3e-5, None, "3e-05"),
    ],
)
def test_a_number_is_rounded_once_and_missing_is_a_dash(score, digits, text):
    assert formats.number(score, digits=digits) == text


def test_a_number_and_an_interval_may_have_signs():
    assert formats.number(1.23, sign=True) == "+1.23"
    assert formats.number(-1.23, sign=True) == "-1.23"
    assert formats.interval(Interval(-1.0, 2.0), sign=True) == "[-1.00, +2.00]"
    assert formats.interval(None) == DASH


@pytest.mark.parametrize(
    ("found", "declared", "text", "brief"),
    [
        (Summary(54.71, 0.32, 3), 3, "54.71 ± 0.32 (3)", "54.71"),
        (Summary(54.71, 0.32, 2), 3, "54.71 ± 0.32 (2 of 3)", "54.71 (2 of 3)"),
        (Summary(54.71, None, 1), 1, "54.71 (1)", "54.71"),
        (None, 3, DASH, DASH),
    ],
)
def test_a_mean_has_its_deviation_and_seeds(found, declared, text, brief):
    assert formats.mean_and_deviation(found, declared) == text
    assert formats.mean_and_deviation(found, declared, brief=True) == brief


@pytest.mark.parametrize(("p", "text"), [(0.0004, "< 0.001"), (0.05, "0.050"), (1.0, "1.000"), (None, DASH)])
def test_a_p_value_has_three_decimals(p, text):
    assert formats.p_value(p) == text


def test_a_grid_in_markdown_escapes_bars():
    assert formats.markdown(GRID).splitlines() == [
        "**A title**",
        "",
        "|  | score | what |",
        "| --- | ---: | --- |",
        "| a \\| b | 1.00 ± 0.10 (3) | of_x, 50 % |",
        f"| [c] | {DASH} | no |",
    ]


def test_a_grid_in_latex_has_its_caption_label_and_notes():
    assert formats.latex(GRID, label="t", caption="R&D", notes=["under_score"]).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\small",
        r"\caption{R\&D}",
        r"\label{tab:t}",
        r"\begin{tabular}{lrl}",
        r"\toprule",
        r" & score & what \\",
        r"\midrule",
        r"a \textbar{} b & 1.00 $\pm$ 0.10 (3) & of\_x, 50 \% \\",
        r"{[}c{]} & -- & no \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}\footnotesize",
        r"under\_score\\",
        r"\end{minipage}",
        r"\end{table}",
    ]


def test_latex_escapes_every_special_character():
    assert formats.escape("\\{}$&#_%~^<>") == (
        r"\textbackslash{}\{\}\$\&\#\_\%\textasciitilde{}\textasciicircum{}\textless{}\textgreater{}"
    )


def test_a_wide_latex_table_is_scaled_to_the_line():
    names = tuple("abcdefgh")
    assert r"\resizebox{\linewidth}{!}{%" in formats.latex(Grid("", names, (names,)), label="t", caption="")
    assert r"\resizebox" not in formats.latex(Grid("", names[:7], (names[:7],)), label="t", caption="")


def test_rows_are_as_long_as_the_header():
    with pytest.raises(ValueError, match="has 1 cells, expected 2"):
        Grid("", ("a", "b"), (("1",),))
