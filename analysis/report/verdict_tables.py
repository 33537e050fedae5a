"""How verdicts are shown: a line a comparison, a sentence a claim."""

from collections.abc import Sequence

from analysis.report.formats import DASH, MINUS, Grid, interval, number, p_value
from analysis.report.study_tables import name_of
from analysis.stats import significance
from analysis.stats.bootstrap import Estimate
from analysis.verdicts.claims import Overall
from analysis.verdicts.comparisons import AGREES, Verdict
from experiments.schema.columns import column
from experiments.schema.hypotheses import Comparison, Cost, Finding, Order, Trend, Untested

HEADER = ("claim", f"A {MINUS} B", "column", "difference", "95 % interval", "Holm p", "smallest detectable")
HOW = {
    "mean": "Differences, in the column's units, over seeds that both rows have: paired t test.",
    "spread": "Spreads: ratio of deviations, F test, which takes the two rows as independent though runs of one seed "
    "share their order of sentences.",
    "same": "Within a margin: two one-sided paired tests, or beyond it a t test of the difference against it.",
    "beyond": "Beyond a margin: paired t test of the difference against it.",
    "cost": "Costs: median and quartiles of a benchmark's turns; supported where the quartiles hold the claim's number "
    "(or lie below it, where it says at most); no correction.",
    "positive": "Above 0: t test over seeds.",
    "bins": "Over bins: a rank correlation's normal approximation for ten bins, as all seeds share the pairs.",
    "order": f"Orders: Kendall's tau of the rows' means, seeds drawn anew; supported where the interval is at least "
    f"{AGREES}; no correction.",
    "trend": "Trends: Spearman's rho over columns by seed, t test of the seeds' rho against 0.",
}


def verdict_grid(judged: Sequence[Verdict]) -> Grid:
    """One line a comparison."""
    tests = _tested(judged)
    return Grid("", (*HEADER, "seeds", "published", "verdict"), tuple(_line(one, tests) for one in judged))


def how_judged(judged: Sequence[Verdict]) -> str:
    """How the verdicts were reached."""
    kinds = dict.fromkeys(_kind(one.comparison) for one in judged)
    return (
        " ".join(HOW[kind] for kind in kinds if kind in HOW)
        + f" Holm's correction over the {_tested(judged)} tested comparisons of this table, at {significance.ALPHA}. "
        "Smallest detectable: the difference found with 80 % power by the first step of this correction, had the "
        "observed deviation been the true one."
    )


def _tested(judged: Sequence[Verdict]) -> int:
    return sum(one.p is not None for one in judged)


def overall_lines(found: Sequence[Overall]) -> list[str]:
    """A sentence a claim."""
    about = [f"{f', {one.text}' if one.text else ''}{f' ({one.reading})' if one.reading else ''}" for one in found]
    return [f"- **{one.claim}**{words}: {outcome(one)}." for one, words in zip(found, about, strict=True)]


def outcome(one: Overall, *, brief: bool = False) -> str:
    """A claim's verdict with its counts; brief: without the reasons of what is not tested."""
    why = f"; not tested: {', '.join(one.reasons)}" if one.reasons and not brief else ""
    counts = ", ".join(f"{count} {word}" for word, count in one.counts.items())
    tested = f"{sum(one.counts.values())} of {one.declared} comparisons tested" + (f": {counts}" if counts else "")
    return f"**{one.verdict}** ({tested}{why})"


def _kind(compared: Comparison | Finding) -> str:
    return compared.kind if isinstance(compared, Comparison) else type(compared).__name__.lower()


def _names(compared: Comparison | Finding) -> tuple[str, str]:
    """What is compared, and in which column."""
    if isinstance(compared, Cost):
        return f"{compared.what}{f', at most {compared.times:g}' if compared.at_most else ''}", "times as long"
    if isinstance(compared, Untested):
        return compared.what, DASH
    if isinstance(compared, Order):
        other = f"{name_of(compared.other)}{compared.suffix}"
        return f"order of {len(compared.rows)} rows, and by {other}", name_of(compared.column)
    if isinstance(compared, Trend):
        gain = f"gain of {compared.better} over {compared.worse}"
        return f"{gain}, by what {compared.row} has", f"{len(compared.over)} columns"
    a, b = compared.better, compared.worse
    names = {
        "spread": f"sd of {a} / sd of {b}",
        "same": f"{a} {MINUS} {b}, within {compared.margin:g}",
        "beyond": f"{a} {MINUS} {b}, beyond {compared.margin:g}",
        "positive": a,
        "bins": a,
    }
    return names.get(compared.kind, f"{a} {MINUS} {b}"), name_of(compared.column)


def _line(one: Verdict, tests: int) -> tuple[str, ...]:
    what, where = _names(one.comparison)
    signed = _kind(one.comparison) in ("mean", "same", "beyond", "positive", "trend")
    verdict = f"{one.verdict}: {one.reason}" if one.reason else one.verdict
    published = number(one.published, sign=signed, digits=_digits(one))
    return (one.comparison.claim, what, where, *_numbers(one, tests), one.seeds, published, verdict)


def _digits(one: Verdict) -> int:
    """As many as the column has, at least two."""
    return max(2, column(one.comparison.column).digits or 2) if isinstance(one.comparison, Comparison) else 2


def _numbers(one: Verdict, tests: int) -> tuple[str, str, str, str]:
    """Estimate, interval, corrected p and what could have been detected."""
    found = one.estimate
    p = p_value(one.adjusted)
    if isinstance(found, significance.Paired):
        digits = _digits(one)
        band = interval(found.interval, sign=True, digits=digits)
        least = None if _kind(one.comparison) in ("same", "beyond") else significance.detectable(found, tests)
        return number(found.mean, sign=True, digits=digits), band, p, number(least, digits=digits)
    if isinstance(found, significance.Spread):
        return number(found.ratio), interval(found.interval), p, DASH
    if isinstance(found, Estimate):
        return number(found.value), interval(found.interval), p, DASH
    return DASH, DASH, DASH, DASH
