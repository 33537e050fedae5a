"""Make the tables of the plan and of its verdicts: a line for each contrast or claim."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from analysis.cells import Results
from analysis.report.blocks import block
from analysis.report.contrast_tables import contrast_text, estimate_texts, tested_texts
from analysis.report.formats import DASH, Grid, interval, markdown, number, p_value
from analysis.stats import significance
from analysis.verdicts.claims import claims
from analysis.verdicts.estimates import AGREES, FEWEST_BINS, claimed_range, measure, published_effect
from analysis.verdicts.plan import PlanVerdicts, judge_stage
from analysis.verdicts.verdict import (
    CONTRADICTED,
    DECIDED,
    INCONCLUSIVE,
    NOT_RUN,
    NOT_TESTABLE,
    SUPPORTED,
    WITHIN,
    Verdict,
)
from experiments.schema.columns import column
from experiments.schema.contrasts import ONE_LOOK, PRIMARY, SPREAD, Contrast, looks_at
from experiments.schema.hypotheses import Cost, Order, Trend, Untested
from experiments.schema.study import Study

STAGES = {"A": "plan2", "D": "plan2-quality"}  # of the second plan, with the studies of their contrasts
BAND = "95 % interval"
TESTS = ("p (effect is 0)", "p (beyond the margin)")


@block(*(f"plan2 {stage}" for stage in STAGES), of=lambda ask: (ask.choose(STAGES[ask.name]), ask.name))
def one_look_grid(results: Sequence[Results], stage: str) -> Grid:
    """Return the verdicts on a stage's primaries, each with the same contrast on disjoint pairs."""
    staged = [each for each in results if has_primaries(each, stage)]
    disjoint = {
        (contrast.plus, contrast.minus): _on_disjoint_pairs(each, contrast)
        for each in staged
        for contrast in each.study.contrasts
        if contrast.column == "sts_disjoint_avg"
    }
    lines = []
    for verdict in judge_stage(staged, stage):
        claim, contrast, effect, band, seeds, differs, within, _, detectable, _ = _verdict_line(verdict)
        apart = disjoint.get((verdict.contrast.plus, verdict.contrast.minus), (DASH, DASH))
        verdict_text = one_look_text(verdict)
        lines.append((claim, contrast, effect, band, *apart, seeds, differs, within, detectable, verdict_text))
    header = (
        "primary",
        "contrast",
        "effect",
        BAND,
        "on disjoint pairs",
        BAND,
        "seeds",
        *TESTS,
        "detectable",
        "verdict",
    )
    return Grid("", header, tuple(lines))


def _on_disjoint_pairs(results: Results, contrast: Contrast) -> tuple[str, str]:
    """Return the texts of estimate and interval, or dashes until all seeds are there: the plan looks once."""
    if any(results.cells[label, contrast.column].missing for label in contrast.rows):
        return DASH, DASH
    return estimate_texts(measure(results, contrast))


def one_look_text(verdict: Verdict) -> str:
    """Return the verdict of a contrast of one look, or which seeds are missing."""
    if verdict.word == NOT_RUN:
        return f"not complete ({verdict.reason})"
    return _verdict_text(verdict)


@block("page claims", of=lambda ask: ([each.study for each in ask.choose("all")], ask.plan))
def claims_grid(studies: Iterable[Study], plan: PlanVerdicts) -> Grid:
    """Return every claim with the plan's verdict, and links to the studies that have contrasts about it."""
    links: dict[str, list[str]] = {}
    for study in studies:
        for claim in study.claims:
            links.setdefault(claim, []).append(f"[{study.name}](analysis/tables/{study.scale.name}/{study.name}.md)")
    words = plan.of_claims()
    rows = ((id_, text, words.get(id_, DASH), ", ".join(links.get(id_, [DASH]))) for id_, text in claims().items())
    return Grid("", ("id", "claim", "verdict", "studies"), tuple(rows))


def planned_sentence(plan: PlanVerdicts) -> str:
    """Return a sentence that counts the verdicts on contrasts and other claims, with seeds and failing controls."""
    primaries, others = plan.primaries, [verdict.word for verdict in plan.others]
    blocked = {family: why for family, (word, why) in plan.blocked.items() if word == NOT_TESTABLE}
    open_ones, most = (INCONCLUSIVE, NOT_TESTABLE, NOT_RUN), looks_at(plan.planned[0].study.scale.name)[-1]
    failing = ", ".join(_failure_text(family, blocked[family]) for family in sorted(blocked))
    failing = f" A control fails in: {failing}." if failing else ""
    smaller = Counter(verdict.word for verdict in primaries if verdict.text.endswith(WITHIN))
    return (
        f"{len(primaries)} contrasts, fixed before their runs, tested after up to {most} seeds"
        f"{_seeds_text(primaries)}: "
        f"{_count([verdict.word for verdict in primaries], (*DECIDED, *open_ones), smaller)}.{failing} "
        f"{len(others)} claims about orders, trends, spreads and costs: "
        f"{_count(others, (SUPPORTED, CONTRADICTED, *open_ones), {})}."
    )


def _seeds_text(primaries: Sequence[Verdict]) -> str:
    """Count the contrasts by their number of seeds at the last complete look."""
    seeds = Counter(verdict.estimate.n for verdict in primaries if verdict.estimate)
    counts = [f"{count} after {n}" for n, count in sorted(seeds.items(), reverse=True)]
    if counts and (without := sum(verdict.estimate is None for verdict in primaries)):
        counts.append(f"{without} without an estimate")
    return f" ({', '.join(counts)})" if counts else ""


def _failure_text(family: str, reason: str) -> str:
    """Name a family and which of its controls fail, without their numbers."""
    problems = [each.partition(" (")[0] for each in reason.split("; ")]
    return f"{family} ({'; '.join(problems)})"


def _count(words: Sequence[str], kinds: Sequence[str], smaller: Mapping[str, int]) -> str:
    within = {kind: f" ({count}{WITHIN.replace(',', '')})" for kind, count in smaller.items()}
    return ", ".join(f"{words.count(kind)} {kind}{within.get(kind, '')}" for kind in kinds)


@block("plan2 contrasts", of=lambda ask: ([each for each in ask.choose("plan2") if has_primaries(each)],))
@block("plan contrasts", of=lambda ask: (ask.plan.planned,))
def plan_grid(planned: Sequence[Results]) -> Grid:
    """Return what is planned: every contrast with its column, test, margin and the published effect."""
    rows = tuple(
        (
            contrast.claim if contrast.role in (PRIMARY, ONE_LOOK) else contrast.role,
            contrast.family,
            contrast_text(contrast),
            column(contrast.column).heading,
            "paired" if contrast.paired else "Welch",
            f"{contrast.margin:g}",
            number(published_effect(results, contrast), sign=True),
        )
        for results in planned
        for contrast in results.study.contrasts
        if contrast.margin
    )
    return Grid("", ("claim", "family", "contrast", "column", "test", "margin", "published"), rows)


def has_primaries(results: Results, stage: str = "") -> bool:
    """Whether the second plan judges a contrast of the study, in a stage if one is named."""
    return any(c.role == ONE_LOOK and c.claim.startswith(stage) for c in results.study.contrasts)


def claim_text(contrast: Contrast) -> str:
    """Return a primary's claim, or which control of which family a contrast is."""
    return contrast.claim if contrast.role in (PRIMARY, ONE_LOOK) else f"{contrast.role}, {contrast.family}"


@block("plan verdicts", of=lambda ask: (ask.plan,))
def verdicts_block(plan: PlanVerdicts) -> str:
    """Return the verdicts as Markdown, below a list of families with failed or missing controls."""
    families = [f"- **{family}**: {word}: {why}." for family, (word, why) in plan.blocked.items()]
    return "\n".join([*families, "", markdown(verdicts_grid(plan.contrasts, plan.moderated))]).lstrip("\n")


def verdicts_grid(judged: Sequence[Verdict], moderated: Sequence[Verdict]) -> Grid:
    """Return the verdicts: estimate, interval, seeds, both corrected p, the published effect, what was detectable.

    The last column is the verdict by moderated variances, the sensitivity analysis.
    """
    header = ("claim", "contrast", "effect", BAND, "seeds", *TESTS, "published", "detectable", "verdict", "moderated")
    lines = ((*_verdict_line(verdict), other.word) for verdict, other in zip(judged, moderated, strict=True))
    return Grid("", header, tuple(lines))


@block("plan others", of=lambda ask: (ask.plan.others,))
def others_grid(judged: Sequence[Verdict]) -> Grid:
    """Return the plan's claims without a contrast of means: estimate, interval, seeds, what would decide, verdict."""
    header = ("claim", "what is tested", "estimate", BAND, "seeds", "what would decide", "verdict")
    lines = []
    for verdict in judged:
        what, where = tested_texts(verdict.tested)
        what = what if where == DASH else f"{what}: {where}"
        seeds = verdict.estimate.seeds if verdict.estimate else "0"
        texts = (*estimate_texts(verdict), seeds, _would_decide(verdict), verdict.word)
        lines.append((verdict.tested.claim, what, *texts))
    return Grid("", header, tuple(lines))


def _would_decide(judged: Verdict) -> str:
    """Return which estimate would decide a claim, and for deviations the true ratio detected with 80 % power."""
    tested, (least, most) = judged.tested, claimed_range(judged.tested)
    if isinstance(tested, Cost):
        where = f"up to {most:g}" if tested.at_most else f"from {least:.2f} to {most:.2f}"
        return f"quartiles {where}, or both outside"
    if isinstance(tested, Order):
        return f"an interval from {AGREES}, or below it"
    if isinstance(tested, Untested) or judged.estimate is None:
        return DASH
    if isinstance(tested, Contrast) and tested.kind == SPREAD:
        observed, true = significance.detectable_spread(judged.estimate.n, judged.estimate.n)
        return f"a ratio up to {number(observed)} (80 % power: a true one of {number(true)})"
    points = len(tested.over) if isinstance(tested, Trend) else FEWEST_BINS
    return f"a correlation from {number(significance.least_rank_correlation(points))} over {points} points"


def _verdict_line(verdict: Verdict) -> tuple[str, ...]:
    contrast, digits = verdict.contrast, column(verdict.contrast.column).digits or 2
    estimate = verdict.estimate
    return (
        claim_text(contrast),
        contrast_text(contrast),
        number(estimate.mean, sign=True, digits=digits) if estimate else DASH,
        interval(estimate.interval if estimate else None, sign=True, digits=digits),
        estimate.seeds if estimate else "0",
        p_value(verdict.difference_p) if estimate else DASH,
        p_value(verdict.equivalence_p) if estimate else DASH,
        _published_text(verdict),
        number(verdict.detectable, digits=digits),
        _verdict_text(verdict),
    )


def _verdict_text(verdict: Verdict) -> str:
    if verdict.own:  # the family's reason is above the table
        return verdict.with_own_test
    return ": ".join(filter(None, (verdict.text, verdict.reason)))


def _published_text(verdict: Verdict) -> str:
    if verdict.published is None:
        return DASH
    where = {True: ", inside", False: ", excluded", None: ""}[verdict.published_inside]
    return f"{number(verdict.published, sign=True)}{where}"
