"""The planned study's verdicts: each primary contrast, and whether its family's controls show what they must."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.cells import Cell, Results
from analysis.stats import significance
from analysis.stats.contrast_tests import ContrastEstimate, estimate_contrast
from analysis.stats.moderated import moderate
from analysis.stats.sequential import nominal_levels, sequential_p, total_levels
from experiments.plan.published_effects import added_effects
from experiments.schema.contrasts import EXPLORATORY, NEGATIVE, POSITIVE, PRIMARY, Contrast, looks_at

BETTER, WORSE, EQUIVALENT, INCONCLUSIVE, NOT_TESTABLE, NOT_RUN = (
    "better",
    "worse",
    "equivalent",
    "inconclusive",
    "not testable here",
    "not run yet",
)
DECIDED = (BETTER, WORSE, EQUIVALENT)
WITHIN = ", by less than the margin"  # stands after a difference's verdict


@dataclass(frozen=True, kw_only=True)
class ContrastVerdict:
    """A contrast, a primary or a control, its estimate at the last complete look, and what follows from it."""

    contrast: Contrast
    estimate: ContrastEstimate | None = None
    difference_p: float | None = None  # sequential, Holm-corrected over all primaries and positive controls
    equivalence_p: float | None = None  # sequential, Holm-corrected over all primaries
    detectable: float | None = None  # at this look, with 80 % power at the first step of Holm's correction
    verdict: str = NOT_RUN
    reason: str = ""
    declared: int = 0  # seeds of each row

    @property
    def published_effect(self) -> float | None:
        """The paper's effect: the plan's, or what was added after the runs."""
        return (
            added_effects().get(self.contrast.subject) if self.contrast.published is None else self.contrast.published
        )

    @property
    def published_inside(self) -> bool | None:
        """Whether the 95 % interval holds the paper's effect; None without an interval or a published effect."""
        return self.estimate.holds(self.published_effect) if self.estimate else None

    @property
    def so_far(self) -> str:
        """The seeds of the last complete look in words, if its rows declare more; else nothing."""
        if self.estimate is None or self.estimate.n >= self.declared:
            return ""
        return f"so far, with {self.estimate.n} of {self.declared} seeds"

    @property
    def text(self) -> str:
        """The verdict, and whether a difference is smaller than the margin, by its estimate, not its interval."""
        small = self.verdict in (BETTER, WORSE) and self.estimate and abs(self.estimate.mean) < self.contrast.margin
        return self.verdict + WITHIN if small else self.verdict


def judge_contrasts(studies: Iterable[Results], *, moderated: bool = False) -> tuple[ContrastVerdict, ...]:
    """Judge all contrasts of these studies but exploratory ones together, by the plan: looks, corrections, controls.

    With `moderated`, by variances drawn towards those of similar contrasts: the plan's sensitivity analysis.
    """
    results_of = {
        contrast: results for results in studies for contrast in results.study.contrasts if contrast.kind != EXPLORATORY
    }
    looks = {contrast: _looks(results, contrast) for contrast, results in results_of.items()}
    if moderated:
        looks = _moderate_looks(looks)
    differing = _holm({c: _difference(by_look) for c, by_look in looks.items() if c.is_corrected})
    equivalent = _holm({c: _equivalence(c, by_look) for c, by_look in looks.items() if c.kind == PRIMARY})
    level = significance.ALPHA / max(1, len(differing))
    judged = [
        _judge(results_of[contrast], contrast, by_look, differing.get(contrast), equivalent.get(contrast), level)
        for contrast, by_look in looks.items()
    ]
    blocked = blocked_families(judged)
    return tuple(
        _overrule(verdict, *blocked[verdict.contrast.family])
        if verdict.contrast.kind == PRIMARY and verdict.contrast.family in blocked
        else verdict
        for verdict in judged
    )


def _overrule(judged: ContrastVerdict, verdict: str, reason: str) -> ContrastVerdict:
    """Return a primary with its family's verdict; one that its own rows rule out, or that has it, keeps its reason."""
    if judged.verdict in (verdict, NOT_TESTABLE):
        return judged
    return replace(judged, verdict=verdict, reason=f"{reason}; without this rule: {judged.text}")


def _looks(results: Results, contrast: Contrast) -> dict[float, ContrastEstimate]:
    """Return the estimate of each complete look by its share of the information.

    A look takes the first 5, 10 or 20 seeds of every row at `small`, where rows that end at ten have half of the
    information then; at other scales there is one look, of ten seeds and all of the information. Rows that declare
    fewer seeds than the first look are looked at once.
    """
    cells = [results.cells[label, contrast.column] for label in contrast.weights]
    declared = _declared_seeds(results, contrast)
    looks = looks_at(results.study.scale.name)
    seeds_of_share = {n / looks[-1]: n for n in looks if n <= declared} or {1.0: declared}
    estimates: dict[float, ContrastEstimate] = {}
    for share, n in seeds_of_share.items():
        groups = [first_seeds(cell, n) for cell in cells]
        if n < 2 or any(len(scores) < n for scores in groups):
            break
        estimate = estimate_contrast(groups, list(contrast.weights.values()), paired=contrast.paired)
        if estimate is None or (not estimate.error and len(groups) > 1):
            break
        estimates[share] = estimate
    return estimates


def _moderate_looks(
    looks: Mapping[Contrast, Mapping[float, ContrastEstimate]],
) -> dict[Contrast, dict[float, ContrastEstimate]]:
    """Moderate each look's variances among contrasts of one column, paired and unpaired ones apart."""
    groups: dict[tuple[float, str, bool], dict[Contrast, ContrastEstimate]] = {}
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


def _difference(by_look: Mapping[float, ContrastEstimate]) -> float:
    """Return the sequential p of a difference from 0; 1 without a look, so that Holm counts every primary."""
    return sequential_p(_difference_p_values(by_look), list(by_look))


def _difference_p_values(by_look: Mapping[float, ContrastEstimate]) -> list[float]:
    return [_or_one(estimate.difference_p()) for estimate in by_look.values()]


def _deciding_estimate(by_look: Mapping[float, ContrastEstimate]) -> ContrastEstimate:
    """Return the estimate of the look that has the sequential p of a difference, and so its sign."""
    levels = total_levels(_difference_p_values(by_look), list(by_look))
    return list(by_look.values())[levels.index(min(levels))]


def _equivalence(contrast: Contrast, by_look: Mapping[float, ContrastEstimate]) -> float:
    """Return the sequential p of equivalence, which is one-sided."""
    p_values = [min(1.0, 2 * _or_one(estimate.equivalence_p(contrast.margin))) for estimate in by_look.values()]
    return sequential_p(p_values, list(by_look)) / 2


def _or_one(p: float | None) -> float:
    return 1.0 if p is None else p


def _holm(p_values: Mapping[Contrast, float]) -> dict[Contrast, float]:
    return dict(zip(p_values, significance.holm(list(p_values.values())), strict=True))


def _judge(
    results: Results,
    contrast: Contrast,
    by_look: Mapping[float, ContrastEstimate],
    differing: float | None,
    within: float | None,
    level: float,
) -> ContrastVerdict:
    declared = _declared_seeds(results, contrast)
    if not by_look:
        verdict, reason = _without_estimate(results, contrast)
        return ContrastVerdict(contrast=contrast, verdict=verdict, reason=reason, declared=declared)
    estimate = list(by_look.values())[-1]
    verdict = INCONCLUSIVE
    if differing is not None and differing < significance.ALPHA:
        verdict = BETTER if _deciding_estimate(by_look).mean > 0 else WORSE
    elif within is not None and within < significance.ALPHA:
        verdict = EQUIVALENT
    elif contrast.kind == NEGATIVE:
        interval = estimate.interval()
        verdict = BETTER if interval and interval.low > 0 else INCONCLUSIVE
    return ContrastVerdict(
        contrast=contrast,
        estimate=estimate,
        difference_p=differing,
        equivalence_p=within,
        detectable=None if differing is None else estimate.detectable(nominal_levels(level, tuple(by_look))[-1]),
        verdict=verdict,
        declared=declared,
    )


def _without_estimate(results: Results, contrast: Contrast) -> tuple[str, str]:
    """Return the verdict and its reason: rows that can't be run, seeds that the first look lacks, or no difference."""
    rows = {row.label: row for row in results.study.rows}
    why = [rows[label].why for label in contrast.rows if rows[label].encoder is None]
    if why:
        return NOT_TESTABLE, "; ".join(dict.fromkeys(why))
    cells = [results.cells[label, contrast.column] for label in contrast.rows]
    first = min(looks_at(results.study.scale.name)[0], _declared_seeds(results, contrast))
    lacking = [cell for cell in cells if len(first_seeds(cell, first)) < first]
    if lacking:
        return NOT_RUN, "; ".join(f"{c.row}: {len(c.scores)} of {c.declared_seeds} seeds" for c in lacking)
    if first < 2:
        return NOT_TESTABLE, "a test needs two seeds of each row, which declare one"
    return NOT_TESTABLE, "the same on every seed: the treatment never acted"


def blocked_families(judged: Sequence[ContrastVerdict]) -> dict[str, tuple[str, str]]:
    """Return what stands in place of a verdict, with its reason, in families with a failed control or one not run."""
    problems: dict[tuple[str, str], list[str]] = {}
    for control in judged:
        if problem := _control_problem(control):
            verdict, reason = problem
            problems.setdefault((verdict, control.contrast.family), []).append(reason)
    return {
        family: (verdict, "; ".join(reasons))
        for stands in (NOT_RUN, NOT_TESTABLE)  # the later one counts
        for (verdict, family), reasons in problems.items()
        if verdict == stands
    }


def _control_problem(control: ContrastVerdict) -> tuple[str, str] | None:
    """Return the verdict that a control leaves its family, with the reason; None if it shows what it must.

    A positive control fails that is not detected, a negative one that is or that can't be judged.
    """
    kind, estimate = control.contrast.kind, control.estimate
    if kind not in (POSITIVE, NEGATIVE):
        return None
    shown = f"({control.contrast.subject}: {f'{estimate.mean:+.2f}' if estimate else control.verdict})"
    if control.verdict == NOT_RUN:
        return NOT_RUN, f"the {kind} {shown}"
    if kind == POSITIVE and control.verdict != BETTER:
        return NOT_TESTABLE, " ".join(filter(None, ("the positive control is not detected", control.so_far, shown)))
    if kind == NEGATIVE and control.verdict == BETTER:
        return NOT_TESTABLE, f"the negative control helps {shown}"
    if kind == NEGATIVE and control.verdict == NOT_TESTABLE:
        return NOT_TESTABLE, f"the negative control can't be judged {shown}"
    return None
