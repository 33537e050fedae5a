"""What a run learns from besides its corpus, as text: the column `teachers` of runs.csv."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, cast, get_args

from cse_core.methods import METHODS
from cse_core.run import Pretrained, Run

UNKNOWN = "unknown"  # the teachers of a run that was recorded before they were
PLAIN = (int, float, str, bool, NoneType, Ellipsis, Pretrained)  # types of fields without room for a run


def teachers_of(encoder: Run | Pretrained) -> str:
    """Return what a run learns from besides its corpus: `KEY/RULE xWEIGHT` for each run that it reads, " + " between.

    RULE says which of that run's checkpoints; an encoder that is not trained here goes by name and content. Bases of
    RankEncoder have no weight. "" for a run that reads no other.
    """
    return " + ".join(_teachers_in(encoder.method)) if isinstance(encoder, Run) else ""


def _teachers_in(value: Any, rule: str = "last", weight: float | None = None) -> Iterator[str]:
    share = "" if weight is None else f" x{weight!r}"
    if isinstance(value, Run):
        yield f"{value.key}/{rule}{share}"
    elif isinstance(value, tuple):
        for item in value:
            yield from _teachers_in(item, rule, weight)
    elif is_dataclass(value):
        rule, weight = getattr(value, "select", rule), getattr(value, "weight", None)
        for one in (getattr(value, field.name) for field in fields(value)):
            if isinstance(one, Pretrained) and hasattr(value, "select"):
                yield f"{one.name}:{one.sha256[:12]}" + ("" if weight is None else f" x{weight!r}")
            else:
                yield from _teachers_in(one, rule, weight)


def old_teachers(line: Mapping[str, str]) -> str:
    """What a line of runs.csv from before it had teachers says of them: none, where the method can't have any."""
    method = METHODS.get(line["method"])
    alone = line["method"] == "none" or (method and all(_is_plain(f.type) for f in fields(cast(Any, method))))
    return "" if alone else UNKNOWN


def _is_plain(kind: Any) -> bool:
    """Whether a field's type has no room for a run."""
    return kind in PLAIN or (bool(get_args(kind)) and all(map(_is_plain, get_args(kind))))
