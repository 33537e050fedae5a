"""Comparisons at scale quickstart that train nothing."""

from experiments.comparison.comparison import Comparison
from experiments.comparison.entrants import entrant, measures_of, with_space
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES

QUICK = SCALES["quickstart"]


def comparison_of(*names: str, **about: object) -> Comparison:
    entrants = tuple(with_space(entrant(name, QUICK, BASE), QUICK, 128, ("synthetic",)) for name in names)
    given = {"name": "test", "scale": QUICK, "entrants": entrants, "dev": QUICK.dev}
    return Comparison(**({**given, "measures": measures_of(["synthetic"], QUICK.dev)} | about))  # ty: ignore[invalid-argument-type]
