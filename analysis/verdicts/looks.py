"""Judge contrasts that are tested together: at several looks, with Holm's correction and each family's controls."""

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

Key = TypeVar("Key")  # of one of several tests
Looks = Mapping[float, Estimate]  # each complete look's estimate, by its share of the information
WHOLE = 1.0  # of the information


@dataclass(frozen=True)
class Decision:
    """The outcome of a contrast's tests, corrected for multiple testing; `equivalence_p` is None without that test."""

    word: str
    difference_p: float
    equivalence_p: float | None
    detectable: float | None


def decide(looks: Mapping[Key, Looks], margins: Mapping[Key, float]) -> dict[Key, Decision]:
    """Test each difference from 0, and equivalence where there is a margin; correct each kind of test by Holm."""
    difference = _holm({key: _difference(by_look) for key, by_look in looks.items()})
    equivalence = _holm({key: _equivalence(margin, looks[key]) for key, margin in margins.items()})
    level = significance.ALPHA / max(1, len(difference))
    return {key: _decide(by_look, difference[key], equivalence.get(key), level) for key, by_look in looks.items()}


def _decide(by_look: Looks, difference_p: float, equivalence_p: float | None, level: float) -> Decision:
    word, last = INCONCLUSIVE, list(by_look.values())[-1:]
    if difference_p < significance.ALPHA:
        word = BETTER if _deciding_estimate(by_look).mean > 0 else WORSE
    elif equivalence_p is not None and equivalence_p < significance.ALPHA:
        word = EQUIVALENT
    detectable = last[0].detectable(_level_at_last_look(level, by_look)) if last else None
    return Decision(word, difference_p, equivalence_p, detectable)


def judge(together: Mapping[Contrast, Results], *, moderated: bool = False) -> tuple[Verdict, ...]:
    """Judge contrasts together: looks, Holm's corrections, controls.

    Tests of a difference are corrected over all primaries and positive controls, tests of equivalence over all
    primaries. Contrasts not run yet count too. With `moderated`, variances are shrunk towards those of similar
    contrasts: the plan's sensitivity analysis.
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
    """Give a primary its family's verdict, unless it has that already or its own rows make it not testable."""
    if judged.word in (word, NOT_TESTABLE):
        return judged
    return replace(judged, word=word, reason=reason, own=judged.text)


def _looks(results: Results, contrast: Contrast) -> Looks:
    """Return the estimate of each complete look by its share of the information.

    At scale `small`, planned looks take the first 5, 10 and 20 seeds of every row; rows that end at ten seeds have half
    of the information then. At other scales there is one look, of ten seeds and all of the information. Rows that
    declare fewer seeds than the first look, and contrasts of one look, are looked at once, with all seeds.
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
        incomplete = contrast.role != ONE_LOOK and any(len(scores) < n for scores in groups)
        estimate = estimate_contrast(groups, list(contrast.weights.values()), paired=contrast.paired)
        if n < 2 or incomplete or estimate is None or (not estimate.error and len(groups) > 1):
            break
        estimates[share] = estimate
    return estimates


def _moderate_looks(looks: Mapping[Contrast, Looks]) -> dict[Contrast, Looks]:
    """Moderate each look's variances among contrasts of one column, separately for paired and unpaired ones."""
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
    """Return the estimate of the look that gives the sequential p of a difference, and so its sign."""
    levels = total_levels(_difference_p_values(by_look), list(by_look))
    return list(by_look.values())[levels.index(min(levels))]


def _equivalence(margin: float, by_look: Looks) -> float:
    """Return the sequential p of equivalence, which is one-sided."""
    p_values = [_or_one(estimate.equivalence_p(margin)) for estimate in by_look.values()]
    if list(by_look) == [WHOLE]:
        return p_values[0]
    return _over_looks([min(1.0, 2 * p) for p in p_values], by_look) / 2


def _over_looks(p_values: Sequence[float], by_look: Looks) -> float:
    """Return the sequential p; a single look at all of the information keeps its own p."""
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
    """Return the verdict and its reason: rows that can't be run, seeds missing at the first look, or no difference."""
    rows = {row.label: row for row in results.study.rows}
    why = [rows[label].why for label in contrast.rows if rows[label].encoder is None]
    if why:
        return NOT_TESTABLE, "; ".join(dict.fromkeys(why))
    cells = [results.cells[label, contrast.column] for label in contrast.rows]
    first = min(looks_at(results.study.scale.name)[0], _declared_seeds(results, contrast))
    incomplete = [c for c in cells if len(first_seeds(c, first)) < first or (contrast.role == ONE_LOOK and c.missing)]
    if incomplete:
        return NOT_RUN, "; ".join(f"{c.row}: {len(c.scores)} of {c.declared_seeds} seeds" for c in incomplete)
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
    not_testable_last = sorted(problems.items(), key=lambda problem: problem[0][0] == NOT_TESTABLE)  # overrides NOT_RUN
    return {family: (word, "; ".join(reasons)) for (word, family), reasons in not_testable_last}


def _control_problem(control: Verdict) -> tuple[str, str] | None:
    """Return the verdict that a failed or missing control gives its family, with the reason; None if it passes.

    A positive control fails if it is not detected. A negative one fails if it is, or if it can't be judged.
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
    """Estimate what no plan judges in a study, from all seeds, and judge the contrasts that the study itself tests.

    Those are the contrasts of one look and no family, which a user's own study declares with a margin.
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
