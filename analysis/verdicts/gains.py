"""Exploratory gains: each contrast of a study that belongs to no plan, with its interval, which judges nothing."""

from dataclasses import dataclass

from analysis.cells import Results
from analysis.stats.contrast_tests import ContrastEstimate, paired_contrast, welch_contrast
from experiments.schema.contrasts import EXPLORATORY, Contrast


@dataclass(frozen=True)
class Gain:
    """A contrast and its estimate from all seeds that are recorded; None where a row has no score."""

    contrast: Contrast
    estimate: ContrastEstimate | None


def gains(results: Results) -> tuple[Gain, ...]:
    """Estimate the study's exploratory contrasts, in its order."""
    return tuple(_gain(results, each) for each in results.study.contrasts if each.kind == EXPLORATORY)


def _gain(results: Results, contrast: Contrast) -> Gain:
    groups = [results.cells[label, contrast.column].scores for label in contrast.weights]
    estimate = paired_contrast if contrast.paired else welch_contrast
    return Gain(contrast, estimate(groups, list(contrast.weights.values())))
