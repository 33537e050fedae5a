"""Look up names that a user typed."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


def unknown(kind: str, name: str, names: Iterable[str]) -> ValueError:
    """Return the error for an unknown name of a `kind` of thing: it lists the most similar names, and all of them."""
    names = list(names)
    similar = get_close_matches(name, names)
    hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
    return ValueError(f"unknown {kind} {name!r}{hint}; known: {', '.join(names)}")


def look_up(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Return the entry of a name, or raise `unknown`."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]
