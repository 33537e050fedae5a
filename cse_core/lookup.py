"""Look up names that a user typed."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
FEW = 30  # names that an error may list after similar ones


def unknown(kind: str, name: str, names: Iterable[str]) -> ValueError:
    """Return the error for an unknown name. It lists similar names, and all names if few exist or none is similar."""
    names = list(names)
    hint = _hint(name, names)
    if hint and len(names) > FEW:
        return ValueError(f"unknown {kind} {name!r}{hint}; there are {len(names)}")
    return ValueError(f"unknown {kind} {name!r}{hint}; known: {', '.join(names)}")


def _hint(name: str, names: Sequence[str]) -> str:
    similar = get_close_matches(name, names)
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""


@cache
def choices_of(kind: type) -> Mapping[str, Sequence[str]]:
    """Return the allowed values of each field of a dataclass that has a Literal type."""
    return {name: get_args(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}


def check_choices(settings: Any) -> None:
    """Refuse a value that its field's Literal type does not allow; the error lists all choices and similar ones."""
    for name, choices in choices_of(type(settings)).items():
        value = getattr(settings, name)
        if value not in choices:
            raise not_among(name, value, choices)


def not_among(name: str, value: object, choices: Sequence[str]) -> ValueError:
    """Return the error for a setting whose value is not among its choices."""
    return ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}{_hint(str(value), choices)}")


def look_up(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Return the entry of a name, or raise `unknown`."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]
