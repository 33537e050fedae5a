"""Numbers among the options of all commands: a word that is none is refused in a sentence, not by a type's name."""

from types import NoneType
from typing import get_args

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

NUMBERS = ConstructorRegistry()  # in force while a command reads its options


def whole_number(word: str) -> int:
    """Return the whole number that a word of the command line is."""
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"expected a whole number, got {word!r}") from None


def number(word: str) -> float:
    """Return the number that a word of the command line is."""
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"expected a number, got {word!r}") from None


@NUMBERS.primitive_rule
def _read_number(option: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Return how tyro reads an option that is a number; None, which is "not given", can't be typed."""
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
