"""Write a run's teachers and bases as text, for the column `teachers` of runs.csv."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin

from cse_core.methods import METHODS
from cse_core.methods.rankcse import Teacher
from cse_core.run import Pretrained, Run

UNKNOWN = "unknown"  # for a run recorded before runs.csv had this column
PLAIN = (int, float, str, bool, NoneType, Ellipsis, Pretrained)  # types of fields that can't hold a run


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


def old_teachers(line: Mapping[str, str]) -> str:
    """Return the teachers of an old line of runs.csv without this column: "" if its method has none, else "unknown"."""
    method = METHODS.get(line["method"])
    has_none = line["method"] == "none" or (method and all(_is_plain(f.type) for f in fields(cast(Any, method))))
    return "" if has_none else UNKNOWN


def _is_plain(kind: Any) -> bool:
    """Whether a field of this type can't hold a run."""
    parts = get_args(kind)
    return kind in PLAIN or get_origin(kind) is Literal or (bool(parts) and all(map(_is_plain, parts)))
