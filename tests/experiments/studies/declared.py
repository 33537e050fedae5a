"""Rows of declared studies, by label."""

from experiments.schema.study import Row
from experiments.studies.catalogue import single


def rows(name: str, scale: str = "paper") -> dict[str, Row]:
    return {row.label: row for row in single(name, scale).rows}
