"""Format verdicts: a line for each comparison, a sentence for each claim."""

from collections.abc import Collection, Sequence

from analysis.cells import Results
from analysis.report.formats import DASH, MINUS, Grid, interval, markdown, number, p_value
from analysis.report.study_tables import name_of
from analysis.stats import significance
from analysis.stats.resampling import Estimate
from analysis.verdicts.claims import Overall, overall
from analysis.verdicts.comparisons import AGREES, BINS, Verdict, cost_range, judge
from analysis.verdicts.other_claims import OtherVerdict
from experiments.schema.columns import column
from experiments.schema.contrasts import PRIMARY
from experiments.schema.hypotheses import Comparison, Cost, Finding, Order, Trend, Untested

HEADER = ("claim", f"A {MINUS} B", "column", "difference", "95 % interval", "Holm p", "smallest detectable")
HOW = {
    "mean": "Differences, in the column's units, over seeds that both rows have: paired t test.",
    "spread": "Spreads: ratio of deviations, F test, which takes the two rows as independent though runs of one seed "
    "share their order of sentences.",
    "same": "Within a margin: two one-sided paired tests, or beyond it a t test of the difference against it.",
    "beyond": "Beyond a margin: paired t test of the difference against it.",
    "cost": "Costs: median and quartiles of a benchmark's turns; supported where both quartiles are within a tenth of "
    "the claim's number (or below it, for a claim of at most), contradicted where both are outside on one side; no "
    "correction.",
    "teacher": "Against the run that taught all seeds: t test of the students' scores against its one score.",
    "parity": "Within a margin of a value: two one-sided t tests over seeds, or beyond it a t test against the margin.",
    "positive": "Above 0: t test over seeds.",
    "bins": f"Over bins: a rank correlation's normal approximation for {BINS} bins, as all seeds share the pairs.",
    "order": "Orders: Kendall's tau of the rows' means, with seeds resampled; supported where the interval is at least "
    f"{AGREES}; no correction.",
    "trend": "Trends: Spearman's rho of mean gains over columns, normal approximation, as all seeds share the columns.",
}


def verdicts_block(results: Results) -> str:
    """Return the verdict of each claim and its comparisons, as Markdown."""
    judged = judge(results)
    if not judged:
        return _without_comparisons({contrast.kind for contrast in results.study.contrasts})
    claims = "\n".join(overall_lines(overall(judged)))
    return "\n\n".join([claims, markdown(verdict_grid(judged)), how_judged(judged)])


def _without_comparisons(kinds: Collection[str]) -> str:
    """Say what becomes of a study's contrasts, of these kinds, if it has no comparisons."""
    if PRIMARY in kinds:
        return "The plan judges this study's contrasts; REPORT.md has the verdicts of scale small."
    return "This study's contrasts have no verdicts." if kinds else "This study compares nothing."


def verdict_grid(judged: Sequence[Verdict]) -> Grid:
    """Return a grid with a line for each comparison."""
    tests = _count_tested(judged)
    return Grid(
        "", (*HEADER, "seeds", "published", "verdict"), tuple(_verdict_line(verdict, tests) for verdict in judged)
    )


def how_judged(judged: Sequence[Verdict]) -> str:
    """Explain how the verdicts were reached."""
    kinds = dict.fromkeys(_kind(verdict.comparison) for verdict in judged)
    correction = f"Holm's correction over the {_count_tested(judged)} tested comparisons of this table"
    return (
        " ".join(HOW[kind] for kind in kinds if kind in HOW) + f" {correction}, at {significance.ALPHA}. "
        "Smallest detectable: the difference found with 80 % power by the first step of this correction, had the "
        "observed deviation been the true one."
    )


def others_grid(judged: Sequence[OtherVerdict]) -> Grid:
    """Return the plan's claims without a contrast: estimate, interval, seeds, what would decide, verdict."""
    header = ("claim", "what is tested", "estimate", "95 % interval", "seeds", "what would decide", "verdict")
    lines = []
    for each in judged:
        what, where = _comparison_names(each.compared)
        estimate, band, *_ = _estimate_texts(each.tested, 1) if each.tested else (DASH, DASH)
        seeds = each.tested.seeds if each.tested else "0"
        what = what if where == DASH else f"{what}: {where}"
        lines.append((each.compared.claim, what, estimate, band, seeds, _would_decide(each), each.verdict))
    return Grid("", header, tuple(lines))


def _would_decide(judged: OtherVerdict) -> str:
    """Return which estimate would decide a claim, and for deviations which true ratio would with 80 % power."""
    compared, estimate = judged.compared, judged.tested.estimate if judged.tested else None
    if isinstance(compared, Cost):
        return f"quartiles {cost_range(compared)}, or both outside"
    if isinstance(compared, Order):
        return f"an interval from {AGREES}, or below it"
    if isinstance(estimate, significance.Spread):
        observed, true = significance.detectable_spread(*estimate.n)
        return f"a ratio up to {number(observed)} (80 % power: a true one of {number(true)})"
    if isinstance(estimate, Estimate):
        points = len(compared.over) if isinstance(compared, Trend) else BINS
        return f"a correlation from {number(significance.least_rank_correlation(points))} over {points} points"
    return DASH


def _count_tested(judged: Sequence[Verdict]) -> int:
    return sum(verdict.p is not None for verdict in judged)


def overall_lines(claims: Sequence[Overall]) -> list[str]:
    """Return a list item for each claim."""
    about = [
        f"{f', {claim.text}' if claim.text else ''}{f' ({claim.reading})' if claim.reading else ''}" for claim in claims
    ]
    return [f"- **{claim.claim}**{words}: {outcome(claim)}." for claim, words in zip(claims, about, strict=True)]


def outcome(claim: Overall, *, brief: bool = False) -> str:
    """Return a claim's verdict with its counts; brief: without the reasons why comparisons were not tested."""
    why = f"; not tested: {', '.join(claim.reasons)}" if claim.reasons and not brief else ""
    counts = ", ".join(f"{count} {word}" for word, count in claim.counts.items())
    tested = f"{sum(claim.counts.values())} of {claim.declared} comparisons tested" + (f": {counts}" if counts else "")
    return f"**{claim.verdict}** ({tested}{why})"


def _kind(compared: Comparison | Finding) -> str:
    return compared.kind if isinstance(compared, Comparison) else type(compared).__name__.lower()


def _comparison_names(compared: Comparison | Finding) -> tuple[str, str]:
    """Return what is compared, and in which column."""
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
        "teacher": f"{a} {MINUS} {b}, seed {compared.teacher_seed}",
        "parity": f"{a} {MINUS} {compared.value:g}, within {compared.margin:g}",
        "positive": a,
        "bins": a,
    }
    return names.get(compared.kind, f"{a} {MINUS} {b}"), name_of(compared.column)


def _verdict_line(judged: Verdict, tests: int) -> tuple[str, ...]:
    what, where = _comparison_names(judged.comparison)
    signed = _kind(judged.comparison) in ("mean", "same", "beyond", "teacher", "parity", "positive")
    verdict = f"{judged.verdict}: {judged.reason}" if judged.reason else judged.verdict
    published = number(judged.published, sign=signed, digits=_digits(judged))
    return (judged.comparison.claim, what, where, *_estimate_texts(judged, tests), judged.seeds, published, verdict)


def _digits(judged: Verdict) -> int:
    """Return the number of digits of the column, at least two."""
    return max(2, column(judged.comparison.column).digits or 2) if isinstance(judged.comparison, Comparison) else 2


def _estimate_texts(judged: Verdict, tests: int) -> tuple[str, str, str, str]:
    """Return the texts of estimate, interval, corrected p and smallest detectable difference."""
    estimate = judged.estimate
    p = p_value(judged.adjusted)
    if isinstance(estimate, significance.Paired):
        digits = _digits(judged)
        band = interval(estimate.interval, sign=True, digits=digits)
        least = (
            None
            if _kind(judged.comparison) in ("same", "beyond", "parity")
            else significance.detectable(estimate, tests)
        )
        return number(estimate.mean, sign=True, digits=digits), band, p, number(least, digits=digits)
    if isinstance(estimate, significance.Spread):
        return number(estimate.ratio), interval(estimate.interval), p, DASH
    if isinstance(estimate, Estimate):
        return number(estimate.value), interval(estimate.interval), p, DASH
    return DASH, DASH, DASH, DASH
