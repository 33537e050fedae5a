"""Judge contrasts that are tested together: looks, corrections, and what a family's controls show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from analysis.cells import Cell, Results
from analysis.stats import significance
from analysis.stats.contrast_tests import estimate_contrast, moderate
from analysis.stats.estimate import Estimate
from analysis.stats.sequential import nominal_levels, sequential_p, total_levels
from analysis.verdicts.estimates import measure, published_effect
from analysis.verdicts.verdict import BETTER, EQUIVALENT, INCONCLUSIVE, NOT_RUN, NOT_TESTABLE, WORSE, Verdict
from experiments.schema.contrasts import EXPLORATORY, NEGATIVE, ONE_LOOK, POSITIVE, PRIMARY, Contrast, looks_at

Key = TypeVar("Key")  # of what is tested together
Looks = Mapping[float, Estimate]  # each complete look's estimate, by its share of the information
WHOLE = 1.0  # of the information


@dataclass(frozen=True)
class Decision:
    """What the tests of one contrast say, corrected for those made together; `equivalence_p` is None without one."""

    word: str
    difference_p: float
    equivalence_p: float | None
    detectable: float | None


def decide(looks: Mapping[Key, Looks], margins: Mapping[Key, float]) -> dict[Key, Decision]:
    """Test together: each difference from 0, and equivalence of those with a margin, each corrected by Holm."""
    differing = _holm({key: _difference(by_look) for key, by_look in looks.items()})
    within = _holm({key: _equivalence(margin, looks[key]) for key, margin in margins.items()})
    level = significance.ALPHA / max(1, len(differing))
    return {key: _decide(by_look, differing[key], within.get(key), level) for key, by_look in looks.items()}


def _decide(by_look: Looks, differing: float, within: float | None, level: float) -> Decision:
    word, last = INCONCLUSIVE, list(by_look.values())[-1:]
    if differing < significance.ALPHA:
        word = BETTER if _deciding_estimate(by_look).mean > 0 else WORSE
    elif within is not None and within < significance.ALPHA:
        word = EQUIVALENT
    detectable = last[0].detectable(_level_at_last_look(level, by_look)) if last else None
    return Decision(word, differing, within, detectable)


def judge(together: Mapping[Contrast, Results], *, moderated: bool = False) -> tuple[Verdict, ...]:
    """Judge contrasts together: looks, Holm's corrections, controls.

    The test of a difference is corrected over all primaries and positive controls, that of equivalence over all
    primaries; those not run yet count too. With `moderated`, by variances drawn towards those of similar contrasts:
    the plan's sensitivity analysis.
    """
    looks = {contrast: _looks(results, contrast) for contrast, results in together.items()}
    if moderated:
        looks = _moderate_looks(looks)
    tested = {c: by_look for c, by_look in looks.items() if c.role != NEGATIVE}
    margins = {c: c.margin for c in tested if c.role in (PRIMARY, ONE_LOOK) and c.margin}
    decisions = decide(tested, margins)
    judged = [
        _judge(together[contrast], contrast, by_look, decisions.get(contrast)) for contrast, by_look in looks.items()
    ]
    blocked = blocked_families(judged)
    return tuple(
        _overrule(verdict, *blocked[verdict.contrast.family])
        if verdict.contrast.role == PRIMARY and verdict.contrast.family in blocked
        else verdict
        for verdict in judged
    )


def _overrule(judged: Verdict, word: str, reason: str) -> Verdict:
    """Give a primary its family's verdict, unless its own rows already decided it."""
    if judged.word in (word, NOT_TESTABLE):
        return judged
    return replace(judged, word=word, reason=reason, own=judged.text)


def _looks(results: Results, contrast: Contrast) -> Looks:
    """Return the estimate of each complete look by its share of the information.

    A planned look takes the first 5, 10 or 20 seeds of every row at `small`, where rows that end at ten have half of
    the information then; at other scales there is one look, of ten seeds and all of the information. Rows that declare
    fewer seeds than the first look, and contrasts of one look, are looked at once, with all seeds.
    """
    cells = [results.cells[label, contrast.column] for label in contrast.weights]
    declared, looks = _declared_seeds(results, contrast), looks_at(results.study.scale.name)
    seeds_of_share = {n / looks[-1]: n for n in looks if n <= declared} or {WHOLE: declared}
    if contrast.role == ONE_LOOK:
        if any(cell.missing for cell in cells):
            return {}
        seeds_of_share = {WHOLE: max(cell.declared_seeds for cell in cells)}
    estimates: dict[float, Estimate] = {}
    for share, n in seeds_of_share.items():
        groups = [first_seeds(cell, n) for cell in cells]
        lacking = contrast.role != ONE_LOOK and any(len(scores) < n for scores in groups)
        estimate = estimate_contrast(groups, list(contrast.weights.values()), paired=contrast.paired)
        if n < 2 or lacking or estimate is None or (not estimate.error and len(groups) > 1):
            break
        estimates[share] = estimate
    return estimates


def _moderate_looks(looks: Mapping[Contrast, Looks]) -> dict[Contrast, Looks]:
    """Moderate each look's variances among contrasts of one column, paired and unpaired ones apart."""
    groups: dict[tuple[float, str, bool], dict[Contrast, Estimate]] = {}
    for contrast, by_look in looks.items():
        for share, estimate in by_look.items():
            groups.setdefault((share, contrast.column, contrast.paired), {})[contrast] = estimate
    moderated = {key: moderate(estimates) for key, estimates in groups.items()}
    return {
        contrast: {share: moderated[share, contrast.column, contrast.paired][contrast] for share in by_look}
        for contrast, by_look in looks.items()
    }


def first_seeds(cell: Cell, count: int) -> dict[int, float]:
    """Return the scores of the first declared seeds."""
    seeds = sorted([*cell.scores, *cell.missing])[:count]
    return {seed: cell.scores[seed] for seed in seeds if seed in cell.scores}


def _declared_seeds(results: Results, contrast: Contrast) -> int:
    return min(results.cells[label, contrast.column].declared_seeds for label in contrast.weights)


def _difference(by_look: Looks) -> float:
    """Return the sequential p of a difference from 0; 1 without a look, so that Holm counts every primary."""
    return _over_looks(_difference_p_values(by_look), by_look)


def _difference_p_values(by_look: Looks) -> list[float]:
    return [_or_one(estimate.difference_p()) for estimate in by_look.values()]


def _deciding_estimate(by_look: Looks) -> Estimate:
    """Return the estimate of the look that has the sequential p of a difference, and so its sign."""
    levels = total_levels(_difference_p_values(by_look), list(by_look))
    return list(by_look.values())[levels.index(min(levels))]


def _equivalence(margin: float, by_look: Looks) -> float:
    """Return the sequential p of equivalence, which is one-sided."""
    p_values = [_or_one(estimate.equivalence_p(margin)) for estimate in by_look.values()]
    if list(by_look) == [WHOLE]:
        return p_values[0]
    return _over_looks([min(1.0, 2 * p) for p in p_values], by_look) / 2


def _over_looks(p_values: Sequence[float], by_look: Looks) -> float:
    """Return the sequential p; that of a single look at all of the information is its own."""
    return p_values[0] if list(by_look) == [WHOLE] else sequential_p(p_values, list(by_look))


def _or_one(p: float | None) -> float:
    return 1.0 if p is None else p


def _holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    return dict(zip(p_values, significance.holm(list(p_values.values())), strict=True))


def _judge(results: Results, contrast: Contrast, by_look: Looks, decision: Decision | None) -> Verdict:
    declared, published = _declared_seeds(results, contrast), published_effect(results, contrast)
    published = contrast.added if published is None else published
    if not by_look:
        word, reason = _without_estimate(results, contrast)
        return Verdict(tested=contrast, word=word, reason=reason, published=published, declared=declared)
    estimate = list(by_look.values())[-1]
    verdict = Verdict(tested=contrast, estimate=estimate, published=published, declared=declared)
    if decision is None:  # a negative control, of which only the interval counts
        helps = estimate.interval is not None and estimate.interval.low > 0
        return replace(verdict, word=BETTER if helps else INCONCLUSIVE)
    return replace(verdict, **vars(decision))


def _level_at_last_look(level: float, by_look: Looks) -> float:
    return level if list(by_look) == [WHOLE] else nominal_levels(level, tuple(by_look))[-1]


def _without_estimate(results: Results, contrast: Contrast) -> tuple[str, str]:
    """Return the verdict and its reason: rows that can't be run, seeds that the first look lacks, or no difference."""
    rows = {row.label: row for row in results.study.rows}
    why = [rows[label].why for label in contrast.rows if rows[label].encoder is None]
    if why:
        return NOT_TESTABLE, "; ".join(dict.fromkeys(why))
    cells = [results.cells[label, contrast.column] for label in contrast.rows]
    first = min(looks_at(results.study.scale.name)[0], _declared_seeds(results, contrast))
    lacking = [c for c in cells if len(first_seeds(c, first)) < first or (contrast.role == ONE_LOOK and c.missing)]
    if lacking:
        return NOT_RUN, "; ".join(f"{c.row}: {len(c.scores)} of {c.declared_seeds} seeds" for c in lacking)
    if first < 2:
        return NOT_TESTABLE, "a test needs two seeds of each row, which declare one"
    return NOT_TESTABLE, "the same on every seed: the treatment never acted"


def blocked_families(judged: Sequence[Verdict]) -> dict[str, tuple[str, str]]:
    """For each family whose controls failed or are missing, return the verdict that all its claims get, and why."""
    problems: dict[tuple[str, str], list[str]] = {}
    for control in judged:
        if problem := _control_problem(control):
            word, reason = problem
            problems.setdefault((word, control.contrast.family), []).append(reason)
    return {
        family: (word, "; ".join(reasons))
        for stands in (NOT_RUN, NOT_TESTABLE)  # the later one counts
        for (word, family), reasons in problems.items()
        if word == stands
    }


def _control_problem(control: Verdict) -> tuple[str, str] | None:
    """Return the verdict that a control leaves its family, with the reason; None if it shows what it must.

    A positive control fails that is not detected, a negative one that is or that can't be judged.
    """
    role, estimate = control.contrast.role, control.estimate
    if role not in (POSITIVE, NEGATIVE):
        return None
    shown = f"({control.contrast.name}: {f'{estimate.mean:+.2f}' if estimate else control.word})"
    if control.word == NOT_RUN:
        return NOT_RUN, f"the {role} {shown}"
    if role == POSITIVE and control.word != BETTER:
        return NOT_TESTABLE, " ".join(filter(None, ("the positive control is not detected", control.so_far, shown)))
    if role == NEGATIVE and control.word == BETTER:
        return NOT_TESTABLE, f"the negative control helps {shown}"
    if role == NEGATIVE and control.word == NOT_TESTABLE:
        return NOT_TESTABLE, f"the negative control can't be judged {shown}"
    return None


def study_verdicts(results: Results) -> tuple[Verdict, ...]:
    """Estimate what no plan judges in a study, from all seeds; what the study itself judges has its verdict.

    That is what a user's own study declares with a margin: contrasts of one look, of no family.
    """
    own = [each for each in results.study.contrasts if each.role == ONE_LOOK and not each.family]
    judged = {verdict.tested: verdict for verdict in judge(dict.fromkeys(own, results))}
    shown = [each for each in results.study.contrasts if each.role in (EXPLORATORY, ONE_LOOK)]
    verdicts = []
    for tested in (*shown, *results.study.findings):
        found = measure(results, tested)
        verdict = judged.get(tested, found)
        verdicts.append(verdict if verdict.estimate else replace(verdict, estimate=found.estimate))
    return tuple(verdicts)
