"""Read numeric options of all commands, and refuse other words with a sentence instead of a type's name."""

from types import NoneType
from typing import get_args

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

NUMBERS = ConstructorRegistry()  # in force while a command reads its options


def whole_number(word: str) -> int:
    """Return a word of the command line as a whole number."""
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"expected a whole number, got {word!r}") from None


def number(word: str) -> float:
    """Return a word of the command line as a number."""
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"expected a number, got {word!r}") from None


@NUMBERS.primitive_rule
def _read_number(option: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Return how tyro reads a numeric option, or None for any other; a value of None, "not given", can't be typed."""
    kinds = {*(get_args(option.type) or (option.type,))} - {NoneType}
    if kinds not in ({int}, {float}):
        return None
    read, word = (whole_number, "INT") if kinds == {int} else (number, "FLOAT")
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=word,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )
