"""The plan as a table, and its verdicts: a line a contrast."""

from collections.abc import Sequence

from analysis.cells import Results
from analysis.report.formats import DASH, MINUS, Grid, interval, markdown, number, p_value
from analysis.stats.significance import Interval
from analysis.verdicts.primaries import DECIDED, PrimaryVerdict, judge_contrasts
from experiments.schema.columns import column
from experiments.schema.contrasts import PRIMARY, Contrast
from experiments.schema.study import Study


def plan_block(name: str, studies_results: Sequence[Results]) -> str:
    """Return the plan's contrasts ("contrasts"), or their verdicts ("verdicts"), as Markdown."""
    if name == "contrasts":
        return markdown(plan_grid([results.study for results in studies_results]))
    if name == "verdicts":
        return markdown(verdicts_grid(judge_contrasts(studies_results)))
    raise ValueError(f"plan: no block {name!r}; there are contrasts and verdicts")


def plan_grid(studies: Sequence[Study]) -> Grid:
    """Return what is planned: every contrast with its column, test, margin and the published effect."""
    rows = tuple(
        (
            contrast.subject if contrast.kind == PRIMARY else contrast.kind,
            contrast.family,
            contrast_text(contrast),
            column(contrast.column).heading,
            "paired" if contrast.paired else "Welch",
            f"{contrast.margin:g}",
            number(contrast.published, sign=True),
        )
        for study in studies
        for contrast in study.contrasts
    )
    return Grid("", ("claim", "family", "contrast", "column", "test", "margin", "published"), rows)


def contrast_text(contrast: Contrast) -> str:
    """Return the contrast as a sum of rows' labels."""
    parts = []
    for label, weight in contrast.weights.items():
        size = "" if abs(weight) == 1 else f"{abs(weight):g} "
        parts.append(f"{MINUS if weight < 0 else '+'} {size}{label}")
    return " ".join(parts).removeprefix("+ ")


def verdicts_grid(judged: Sequence[PrimaryVerdict]) -> Grid:
    """Return the verdicts: estimate, interval, seeds, both corrected p, the published effect, what was detectable."""
    return Grid(
        "",
        (
            "claim",
            "contrast",
            "effect",
            "95 % interval",
            "seeds",
            f"p: effect {MINUS} 0",
            "p: within the margin",
            "published",
            "detectable",
            "verdict",
        ),
        tuple(map(_verdict_line, judged)),
    )


def _verdict_line(judged: PrimaryVerdict) -> tuple[str, ...]:
    contrast, digits = judged.contrast, column(judged.contrast.column).digits or 2
    estimate = judged.estimate
    band: Interval | None = estimate.interval() if estimate else None
    return (
        contrast.subject if contrast.kind == PRIMARY else f"{contrast.kind}, {contrast.family}",
        contrast_text(contrast),
        number(estimate.mean, sign=True, digits=digits) if estimate else DASH,
        interval(band, sign=True, digits=digits),
        str(estimate.n) if estimate else "0",
        p_value(judged.difference_p) if estimate else DASH,
        p_value(judged.equivalence_p) if estimate else DASH,
        _published_effect(judged),
        number(judged.detectable, digits=digits),
        _verdict_text(judged),
    )


def _published_effect(judged: PrimaryVerdict) -> str:
    if judged.contrast.published is None:
        return DASH
    where = {True: ", inside", False: ", excluded", None: ""}[judged.published_inside]
    return f"{number(judged.contrast.published, sign=True)}{where}"


def _verdict_text(judged: PrimaryVerdict) -> str:
    small = ", by less than the margin" if judged.verdict in DECIDED[:2] and judged.within_margin else ""
    return judged.verdict + small + (f": {judged.reason}" if judged.reason else "")
