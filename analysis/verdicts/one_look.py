"""The second plan's verdicts: each primary is tested once, when all declared seeds of its rows are scored."""

from collections.abc import Iterable
from dataclasses import replace

from analysis.cells import Results
from analysis.stats import significance
from analysis.stats.contrast_tests import estimate_contrast
from analysis.verdicts.primaries import BETTER, EQUIVALENT, INCONCLUSIVE, NOT_RUN, WORSE, ContrastVerdict
from experiments.schema.contrasts import SECOND, Contrast


def judge_stage(studies: Iterable[Results], stage: str) -> tuple[ContrastVerdict, ...]:
    """Judge a stage's primaries together, those whose name begins with its letter, such as A1.

    Holm's correction counts all of them, those not run yet too.
    """
    estimated = [
        _estimate(results, contrast)
        for results in studies
        for contrast in results.study.contrasts
        if contrast.kind == SECOND and contrast.subject.startswith(stage)
    ]
    tests = [(v.estimate, v.contrast.margin) for v in estimated]
    differing = significance.holm([_p(t.difference_p() if t else None) for t, _ in tests])
    equivalent = significance.holm([_p(t.equivalence_p(margin) if t else None) for t, margin in tests])
    return tuple(
        _judge(verdict, differs, within, significance.ALPHA / len(estimated))
        for verdict, differs, within in zip(estimated, differing, equivalent, strict=True)
    )


def _p(value: float | None) -> float:
    return 1.0 if value is None else value


def _estimate(results: Results, contrast: Contrast) -> ContrastVerdict:
    cells = [results.cells[label, contrast.column] for label in contrast.weights]
    missing = [f"{cell.row}: {len(cell.scores)} of {cell.declared_seeds} seeds" for cell in cells if cell.missing]
    if missing:
        return ContrastVerdict(contrast=contrast, verdict=NOT_RUN, reason="; ".join(missing))
    groups = [cell.scores for cell in cells]
    estimate = estimate_contrast(groups, list(contrast.weights.values()), paired=contrast.paired)
    if estimate is None or estimate.error is None:
        raise ValueError(f"contrast {contrast.subject}: expected two seeds of each row at least")
    return ContrastVerdict(contrast=contrast, estimate=estimate, declared=estimate.n)


def _judge(verdict: ContrastVerdict, differing: float, within: float, level: float) -> ContrastVerdict:
    if verdict.estimate is None:
        return verdict
    outcome = INCONCLUSIVE
    if differing < significance.ALPHA:
        outcome = BETTER if verdict.estimate.mean > 0 else WORSE
    elif within < significance.ALPHA:
        outcome = EQUIVALENT
    return replace(
        verdict,
        difference_p=differing,
        equivalence_p=within,
        detectable=verdict.estimate.detectable(level),
        verdict=outcome,
    )
