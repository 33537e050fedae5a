"""Write a run's teachers and bases as text, for the column `teachers` of runs.csv."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from cse_core.methods.rankcse import Teacher
from cse_core.run import Pretrained, Run


def teachers_of(encoder: Run | Pretrained) -> str:
    """Return the text of a run's teachers and bases: `KEY/RULE xWEIGHT` for each, joined by " + "; "" if none.

    RULE selects one of the teacher's checkpoints. A teacher that is not trained here is written as name and content
    hash. Bases of RankEncoder have no weight.
    """
    return " + ".join(_teachers_in(encoder.method)) if isinstance(encoder, Run) else ""


def _teachers_in(value: Any, rule: str = "last", weight: float | None = None) -> Iterator[str]:
    share = "" if weight is None else f" x{weight!r}"
    if isinstance(value, Teacher) and value.scorer:
        yield from (f"{text} by {value.scorer}" for text in _teachers_in(replace(value, scorer=None), rule, weight))
    elif isinstance(value, Run):
        yield f"{value.key}/{rule}{share}"
    elif isinstance(value, tuple):
        for item in value:
            yield from _teachers_in(item, rule, weight)
    elif is_dataclass(value):
        rule, weight = getattr(value, "select", rule), getattr(value, "weight", None)
        for item in (getattr(value, field.name) for field in fields(value)):
            if isinstance(item, Pretrained) and hasattr(value, "select"):
                yield f"{item.name}:{item.sha256[:12]}" + ("" if weight is None else f" x{weight!r}")
            else:
                yield from _teachers_in(item, rule, weight)
