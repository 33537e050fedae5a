"""Find the scales and the studies that have scores in the record."""

from collections.abc import Callable, Iterable
from functools import cache

import pandas as pd

from experiments.schema.scales import SCALES
from experiments.schema.study import Study

REPORTED = "small"  # the scale of the report, of which every study has a page


def recorded_scales(frame: pd.DataFrame) -> list[str]:
    """Return small and every other recorded scale except quickstart."""
    return [name for name in SCALES if name in {REPORTED, *frame["scale"].dropna().unique()} - {"quickstart"}]


def studies_with_scores(studies: Iterable[Study], results: Callable[[str], pd.DataFrame]) -> list[Study]:
    """Return the studies at small, and others with a score at their scale; `results` reads a scale's record."""

    @cache
    def keys_at(scale: str) -> frozenset[str]:
        frame = results(scale)
        return frozenset(frame.loc[frame["scale"] == scale, "key"])

    def has_scores(study: Study) -> bool:
        keys = keys_at(study.scale.name)
        return any(not keys.isdisjoint(row.keys().values()) for row in study.rows if row.encoder is not None)

    return [study for study in studies if study.scale.name == REPORTED or has_scores(study)]
