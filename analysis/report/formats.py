"""Format numbers as text, and grids of text as Markdown and LaTeX."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval, Summary

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
MAX_UNSCALED_COLUMNS = 7  # LaTeX scales wider tables to the line (package graphicx)
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    DASH: "--",
    MINUS: "$-$",
    "[": "{[}",  # LaTeX takes a bracket after a line end for an argument
    "]": "{]}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


@dataclass(frozen=True)
class Grid:
    """A table of text: a title (may be empty), a header, and rows of the header's length."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.header)]
        if wrong:
            raise ValueError(
                f"{self.title or 'table'}: row {wrong[0]} has {len(wrong[0])} cells, expected {len(self.header)}"
            )

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column has only numbers and dashes."""
        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.header)
        return tuple(all(re.match(rf"[-+<\[\d{DASH}]", cell) for cell in column) for column in columns)


def number(value: float | None, *, sign: bool = False, digits: int | None = 2) -> str:
    """Round and format a number to `digits` decimals (None: as many as it needs); None is an en dash."""
    if value is None:
        return DASH
    if digits is None:
        return f"{value:.6g}"
    rounded = round(value, digits) + 0.0  # no -0.00
    return f"{rounded:{'+' if sign else ''}.{digits}f}"


def mean_and_deviation(
    summary: Summary | None, declared_seeds: int, *, brief: bool = False, digits: int | None = 2
) -> str:
    """Format mean, deviation and seeds: `54.71 +- 0.32 (3)`; `(2 of 3)` if seeds are missing; brief: only the mean."""
    if summary is None:
        return DASH
    seeds = f" ({summary.n})" if summary.n == declared_seeds else f" ({summary.n} of {declared_seeds})"
    if brief:
        return number(summary.mean, digits=digits) + ("" if summary.n == declared_seeds else seeds)
    deviation = "" if summary.sd is None else f" \N{PLUS-MINUS SIGN} {number(summary.sd, digits=digits)}"
    return number(summary.mean, digits=digits) + deviation + seeds


def interval(band: Interval | None, *, sign: bool = False, digits: int | None = 2) -> str:
    """Format an interval as `[low, high]`."""
    if band is None:
        return DASH
    low, high = (number(value, sign=sign, digits=digits) for value in band)
    return f"[{low}, {high}]"


def estimate_text(estimate: Estimate | None, *, sign: bool = True) -> str:
    """Format an estimate with its interval: `+0.31 [+0.10, +0.52]`."""
    if estimate is None:
        return DASH
    return f"{number(estimate.value, sign=sign)} {interval(estimate.interval, sign=sign)}"


def p_value(p: float | None) -> str:
    """Format p with three decimals, but never as zero."""
    if p is None:
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def markdown(grid: Grid) -> str:
    """Return the grid as a Markdown table, text aligned left, numbers right."""
    rule = ("---:" if numeric else "---" for numeric in grid.numeric)
    lines = [_markdown_line(grid.header), "| " + " | ".join(rule) + " |", *map(_markdown_line, grid.rows)]
    return "\n".join([f"**{grid.title}**", "", *lines] if grid.title else lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a header and rows as a Markdown table."""
    return markdown(Grid("", tuple(header), tuple(map(tuple, rows))))


def latex(grid: Grid, *, label: str, caption: str, notes: Sequence[str] = ()) -> str:
    """Return the grid as a booktabs table with notes below it."""
    columns = "".join("r" if numeric else "l" for numeric in grid.numeric)
    body = [r"\begin{table}", r"\centering", r"\small", f"\\caption{{{escape(caption)}}}", f"\\label{{tab:{label}}}"]
    wide = len(grid.header) > MAX_UNSCALED_COLUMNS
    body += [r"\resizebox{\linewidth}{!}{%"] if wide else []
    body += [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", _tex_line(grid.header), r"\midrule"]
    body += [*map(_tex_line, grid.rows), r"\bottomrule", r"\end{tabular}" + "}" * wide]
    if notes:
        body += [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize"]
        body += [f"{escape(note)}\\\\" for note in notes] + [r"\end{minipage}"]
    return "\n".join([*body, r"\end{table}"])


def escape(text: str) -> str:
    """Escape a text for LaTeX."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _tex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
