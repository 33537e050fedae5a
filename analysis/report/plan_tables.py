"""The plan as a table, and its verdicts: a line a contrast."""

from collections import Counter
from collections.abc import Mapping, Sequence

from analysis.cells import Results
from analysis.report.formats import DASH, MINUS, Grid, interval, markdown, number, p_value
from analysis.report.study_tables import contrast_text
from analysis.report.verdict_tables import others_grid
from analysis.stats.significance import Interval
from analysis.verdicts.gains import gains
from analysis.verdicts.one_look import judge_stage
from analysis.verdicts.other_claims import CONTRADICTED, SUPPORTED, judge_other_claims, judge_others
from analysis.verdicts.primaries import (
    DECIDED,
    INCONCLUSIVE,
    NOT_RUN,
    NOT_TESTABLE,
    WITHIN,
    ContrastVerdict,
    blocked_families,
    judge_contrasts,
)
from experiments.schema.columns import column
from experiments.schema.contrasts import PRIMARY, SECOND, Contrast, looks_at
from experiments.schema.study import Study

STAGES = ("A", "D")  # of the second plan
LETTERS = ("R", "E", "W", "C", "S")  # of the papers' claims, and of this project's


def plan_block(name: str, estimate: Sequence[Results]) -> str:
    """Return the plan's contrasts ("contrasts"), their verdicts ("verdicts"), those of the claims without a contrast
    ("others"), or a paper's in words, by its letter.
    """
    if name == "contrasts":
        return markdown(plan_grid([results.study for results in estimate]))
    if name == "verdicts":
        return markdown(verdicts_grid(judge_contrasts(estimate), judge_contrasts(estimate, moderated=True)))
    if name == "others":
        return markdown(others_grid(judge_others(estimate)))
    if name in LETTERS:
        return states_sentence(name, judge_contrasts(estimate))
    raise ValueError(f"plan: no block {name!r}; there are contrasts, verdicts, others and {', '.join(LETTERS)}")


def second_plan_block(name: str, results: Sequence[Results]) -> str:
    """Return the second plan's contrasts ("contrasts"), or the verdicts on a stage's primaries, by its letter."""
    if name == "contrasts":
        planned = [each.study for each in results if any(c.kind == SECOND for c in each.study.contrasts)]
        return markdown(plan_grid(planned))
    if name in STAGES:
        return markdown(one_look_grid(results, name))
    raise ValueError(f"plan2: no block {name!r}; there are contrasts, {', '.join(STAGES)}")


def one_look_grid(results: Sequence[Results], stage: str) -> Grid:
    """Return the verdicts on a stage's primaries, each with the same contrast on disjoint pairs."""
    disjoint = {
        (gain.contrast.plus, gain.contrast.minus): gain.estimate
        for each in results
        for gain in gains(each)
        if gain.contrast.column == "sts_disjoint_avg"
    }
    lines = []
    for verdict in judge_stage(results, stage):
        apart = disjoint.get((verdict.contrast.plus, verdict.contrast.minus))
        claim, contrast, effect, band, seeds, differs, within, _, detectable, text = _verdict_line(verdict)
        elsewhere = (number(apart.mean, sign=True), interval(apart.interval(), sign=True)) if apart else (DASH, DASH)
        lines.append((claim, contrast, effect, band, *elsewhere, seeds, differs, within, detectable, text))
    band = "95 % interval"
    header = ("primary", "contrast", "effect", band, "on disjoint pairs", band, "seeds")
    tests = (f"p: effect {MINUS} 0", "p: within the margin", "detectable", "verdict")
    return Grid("", (*header, *tests), tuple(lines))


def states_sentence(letter: str, judged: Sequence[ContrastVerdict]) -> str:
    """Return the verdicts on a paper's claims as a sentence, by verdict, with the numbers of seeds."""
    primaries = [v for v in judged if v.contrast.kind == PRIMARY and v.contrast.subject.startswith(letter)]
    claims: dict[str, list[str]] = {}
    for verdict in sorted(primaries, key=lambda v: int(v.contrast.subject[1:])):
        claims.setdefault(verdict.text, []).append(verdict.contrast.subject)
    counts = sorted({verdict.estimate.n for verdict in primaries if verdict.estimate})
    seeds = f" ({', '.join(map(str, counts))} seeds)" if counts else ""
    states = "; ".join(f"{', '.join(named)} {state}" for state, named in claims.items())
    return f"In the plan{seeds}: {states}."


def planned_sentence(planned: Sequence[Results]) -> str:
    """Return how many contrasts and other claims have which verdict, after how many seeds, and which controls fail."""
    judged = judge_contrasts(planned)
    primaries = [verdict for verdict in judged if verdict.contrast.kind == PRIMARY]
    others = list(judge_other_claims(planned).values())
    blocked = {family: why for family, (verdict, why) in blocked_families(judged).items() if verdict == NOT_TESTABLE}
    open_ones, most = (INCONCLUSIVE, NOT_TESTABLE, NOT_RUN), looks_at(planned[0].study.scale.name)[-1]
    failing = ", ".join(_failure_text(family, blocked[family]) for family in sorted(blocked))
    failing = f" A control fails in: {failing}." if failing else ""
    return (
        f"{len(primaries)} contrasts, fixed before their runs, tested after up to {most} seeds"
        f"{_seeds_text(primaries)}: "
        f"{_count([verdict.verdict for verdict in primaries], (*DECIDED, *open_ones), _smaller(primaries))}.{failing} "
        f"{len(others)} claims about orders, trends, spreads and costs: "
        f"{_count(others, (SUPPORTED, CONTRADICTED, *open_ones))}."
    )


def _seeds_text(primaries: Sequence[ContrastVerdict]) -> str:
    """Say how many contrasts have how many seeds at their last complete look."""
    seeds = Counter(verdict.estimate.n for verdict in primaries if verdict.estimate)
    counts = [f"{count} after {n}" for n, count in sorted(seeds.items(), reverse=True)]
    if counts and (without := sum(verdict.estimate is None for verdict in primaries)):
        counts.append(f"{without} without an estimate")
    return f" ({', '.join(counts)})" if counts else ""


def _smaller(primaries: Sequence[ContrastVerdict]) -> Counter[str]:
    """Count, for each verdict of a difference, those that are smaller than their margin."""
    return Counter(verdict.verdict for verdict in primaries if verdict.text.endswith(WITHIN))


def _failure_text(family: str, reason: str) -> str:
    """Name a family and which of its controls fail, without their numbers."""
    problems = [each.partition(" (")[0] for each in reason.split("; ")]
    return f"{family} ({'; '.join(problems)})"


def _count(verdicts: Sequence[str], kinds: Sequence[str], smaller: Mapping[str, int] | None = None) -> str:
    within = {kind: f" ({count}{WITHIN.replace(',', '')})" for kind, count in (smaller or {}).items()}
    return ", ".join(f"{verdicts.count(kind)} {kind}{within.get(kind, '')}" for kind in kinds)


def plan_grid(studies: Sequence[Study]) -> Grid:
    """Return what is planned: every contrast with its column, test, margin and the published effect."""
    rows = tuple(
        (
            contrast.subject if contrast.kind in (PRIMARY, SECOND) else contrast.kind,
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


def claim_text(contrast: Contrast) -> str:
    """Return a primary's claim, or which control of which family a contrast is."""
    return contrast.subject if contrast.kind in (PRIMARY, SECOND) else f"{contrast.kind}, {contrast.family}"


def verdicts_grid(judged: Sequence[ContrastVerdict], moderated: Sequence[ContrastVerdict]) -> Grid:
    """Return the verdicts: estimate, interval, seeds, both corrected p, the published effect, what was detectable.

    The last column is the verdict by moderated variances, the sensitivity analysis.
    """
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
            "moderated",
        ),
        tuple((*_verdict_line(verdict), other.verdict) for verdict, other in zip(judged, moderated, strict=True)),
    )


def _verdict_line(verdict: ContrastVerdict) -> tuple[str, ...]:
    contrast, digits = verdict.contrast, column(verdict.contrast.column).digits or 2
    estimate = verdict.estimate
    band: Interval | None = estimate.interval() if estimate else None
    return (
        claim_text(contrast),
        contrast_text(contrast),
        number(estimate.mean, sign=True, digits=digits) if estimate else DASH,
        interval(band, sign=True, digits=digits),
        str(estimate.n) if estimate else "0",
        p_value(verdict.difference_p) if estimate else DASH,
        p_value(verdict.equivalence_p) if estimate else DASH,
        _published_text(verdict),
        number(verdict.detectable, digits=digits),
        _verdict_text(verdict),
    )


def _published_text(verdict: ContrastVerdict) -> str:
    if verdict.published_effect is None:
        return DASH
    where = {True: ", inside", False: ", excluded", None: ""}[verdict.published_inside]
    return f"{number(verdict.published_effect, sign=True)}{where}"


def _verdict_text(verdict: ContrastVerdict) -> str:
    return verdict.text + (f": {verdict.reason}" if verdict.reason else "")
