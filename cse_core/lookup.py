"""Look names up that a user typed."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error for a name of no `kind`: with the names that are most like it, and all that are known."""
    names = list(known)
    close = get_close_matches(name, names)
    meant = f" (did you mean {' or '.join(close)}?)" if close else ""
    return ValueError(f"unknown {kind} {name!r}{meant}; known: {', '.join(names)}")


def look_up(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return what goes by the name, or raise `unknown`."""
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
