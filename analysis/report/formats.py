"""Numbers as text, and grids of text as Markdown and LaTeX."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.stats.significance import Interval, Summary

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
PAGE = 7  # columns; LaTeX scales a wider table to the line (package graphicx)
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
    "[": "{[}",  # after a line end LaTeX reads a bracket as an argument
    "]": "{]}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


@dataclass(frozen=True)
class Grid:
    """A table of text: a title (may be empty), a header and rows as long as it."""

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
        """Which columns hold numbers only, or nothing."""
        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.header)
        return tuple(all(re.match(rf"[-+<\[\d{DASH}]", cell) for cell in column) for column in columns)


def number(value: float | None, *, sign: bool = False, digits: int | None = 2) -> str:
    """So many decimals (None: as many as it takes), an en dash for what is missing; the one place that rounds."""
    if value is None:
        return DASH
    if digits is None:
        return f"{value:.6g}"
    rounded = round(value, digits) + 0.0  # no -0.00
    return f"{rounded:{'+' if sign else ''}.{digits}f}"


def measured(found: Summary | None, declared: int, *, brief: bool = False, digits: int | None = 2) -> str:
    """Mean, deviation and seeds: `54.71 +- 0.32 (3)`; `(2 of 3)` where seeds are missing; brief: only the mean."""
    if found is None:
        return DASH
    seeds = f" ({found.n})" if found.n == declared else f" ({found.n} of {declared})"
    if brief:
        return number(found.mean, digits=digits) + ("" if found.n == declared else seeds)
    deviation = "" if found.sd is None else f" \N{PLUS-MINUS SIGN} {number(found.sd, digits=digits)}"
    return number(found.mean, digits=digits) + deviation + seeds


def interval(found: Interval | None, *, sign: bool = False, digits: int | None = 2) -> str:
    """`[low, high]`."""
    if found is None:
        return DASH
    low, high = (number(value, sign=sign, digits=digits) for value in found)
    return f"[{low}, {high}]"


def p_value(p: float | None) -> str:
    """Three decimals, no zero."""
    if p is None:
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def markdown(grid: Grid) -> str:
    """The grid as a Markdown table, words to the left, numbers to the right."""
    rule = ("---:" if numeric else "---" for numeric in grid.numeric)
    lines = [_line(grid.header), "| " + " | ".join(rule) + " |", *map(_line, grid.rows)]
    return "\n".join([f"**{grid.title}**", "", *lines] if grid.title else lines)


def latex(grid: Grid, *, label: str, caption: str, notes: Sequence[str] = ()) -> str:
    """The grid as a booktabs table with its notes under it."""
    columns = "".join("r" if numeric else "l" for numeric in grid.numeric)
    body = [r"\begin{table}", r"\centering", r"\small", f"\\caption{{{escape(caption)}}}", f"\\label{{tab:{label}}}"]
    wide = len(grid.header) > PAGE
    body += [r"\resizebox{\linewidth}{!}{%"] if wide else []
    body += [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", _tex_line(grid.header), r"\midrule"]
    body += [*map(_tex_line, grid.rows), r"\bottomrule", r"\end{tabular}" + "}" * wide]
    if notes:
        body += [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize"]
        body += [f"{escape(note)}\\\\" for note in notes] + [r"\end{minipage}"]
    return "\n".join([*body, r"\end{table}"])


def escape(text: str) -> str:
    """The text as LaTeX sets it."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _tex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
