"""Check types and shapes in tests (pyproject.toml) with beartype, except where a dataclass refuses values itself."""

from collections.abc import Callable
from typing import Any, Literal, get_origin

from beartype import beartype


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check calls of a function, but not of a dataclass with Literal types: its own error lists the choices."""
    hints = getattr(function, "__annotations__", {}).values()
    return function if any(get_origin(hint) is Literal for hint in hints) else beartype(function)
