"""Gains: each contrast that the first plan doesn't judge, with its interval."""

from dataclasses import dataclass

from analysis.cells import Results
from analysis.stats.contrast_tests import ContrastEstimate, estimate_contrast
from experiments.schema.contrasts import EXPLORATORY, SECOND, Contrast


@dataclass(frozen=True)
class Gain:
    """A contrast and its estimate from all seeds that are recorded; None where a row has no score."""

    contrast: Contrast
    estimate: ContrastEstimate | None


def gains(results: Results) -> tuple[Gain, ...]:
    """Estimate the study's exploratory contrasts and those of the second plan, in its order."""
    return tuple(gain_of(results, each) for each in results.study.contrasts if each.kind in (EXPLORATORY, SECOND))


def gain_of(results: Results, contrast: Contrast) -> Gain:
    """Estimate one of the study's contrasts."""
    groups = [results.cells[label, contrast.column].scores for label in contrast.weights]
    return Gain(contrast, estimate_contrast(groups, list(contrast.weights.values()), paired=contrast.paired))
