"""Check values of options before anything starts; errors name the option, what is expected and the value."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from tyro.constructors import PrimitiveConstructorSpec

from cse_core.data.locate import data_folder
from cse_core.run import MAX_SEED
from experiments.cli.numbers import whole_number

DEVICES = ("cpu", "cuda")
MOST_THREADS = 1024  # torch starts them all, whatever the machine has


def read_words(kind: Callable[[str], Any]) -> Callable[[list[str]], tuple[Any, ...]]:
    """Return a parser of an option's values; it refuses an empty list, which would look like an option not given."""

    def read(words: list[str]) -> tuple[Any, ...]:
        if not words:
            raise ValueError("expected at least one value, got none")
        if "" in words:  # an empty word is part of every name
            raise ValueError("expected values that are not empty")
        return tuple(map(kind, words))

    return read


def one_or_more(kind: Callable[[str], Any], word: str) -> PrimitiveConstructorSpec[tuple[Any, ...]]:
    """Return how tyro reads an option with one or more values."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{word} [{word} ...]",
        instance_from_str=read_words(kind),
        is_instance=lambda values: isinstance(values, tuple),
        str_from_instance=lambda values: list(map(str, values)),
    )


Words = Annotated[tuple[str, ...], one_or_more(str, "STR")]
Numbers = Annotated[tuple[int, ...], one_or_more(whole_number, "INT")]


def at_least(least: float, **options: float | None) -> None:
    """Refuse numbers below `least` and infinite ones; None is an option that was not given."""
    _check(options, lambda value: least <= value < math.inf, f"a number of at least {least:g}")


def at_most(most: int, **options: int | None) -> None:
    """Refuse numbers above `most`; None is an option that was not given."""
    _check(options, lambda value: value <= most, f"a number of at most {most}")


def seeds_in_range(**options: int | None) -> None:
    """Refuse seeds that the record can't hold; None is an option that was not given."""
    at_least(0, **options)
    at_most(MAX_SEED, **options)


def check_threads(threads: int) -> None:
    """Refuse a number of threads that torch can't start."""
    at_least(1, threads=threads)
    at_most(MOST_THREADS, threads=threads)


def above_zero(**options: float | None) -> None:
    """Refuse numbers that are not positive and finite; None is an option that was not given."""
    _check(options, lambda value: 0 < value < math.inf, "a number above 0")


def whole_gpus(**options: float) -> None:
    """Refuse a fractional number of GPUs above 1, which Ray can't assign."""
    above_zero(**options)
    _check(options, lambda value: value < 1 or not value % 1, "a share of one GPU or a whole number of them")


def _check(options: Mapping[str, float | None], fits: Callable[[float], bool], expected: str) -> None:
    for name, value in options.items():
        if value is not None and not fits(value):
            got = f"{value:g}" if isinstance(value, float) else str(value)
            raise ValueError(f"{flag(name)}: expected {expected}, got {got}")


def check_device(device: str, address: str = "local") -> None:
    """Refuse an unknown device, and cuda on a machine without a GPU; an empty device is chosen automatically."""
    if device and device not in DEVICES:
        raise ValueError(f"--device: expected {' or '.join(DEVICES)} (Ray chooses among several GPUs), got {device!r}")
    if device == "cuda" and address == "local" and not torch.cuda.is_available():
        raise ValueError("--device cuda: expected a GPU on this machine, found none; leave --device out to use the CPU")


def device_here(device: str) -> str:
    """Return the device; if it is empty, cuda if this machine has a GPU, else cpu."""
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def filled_data_folder(folder: Path | None) -> Path | None:
    """Return the data folder (locate.data_folder); refuse an empty one before anything is loaded or looked for."""
    found = data_folder(folder)
    if found and not any(found.iterdir()):
        raise FileNotFoundError(
            f"data folder {found}: it is empty; expected SentEval's folder or corpora in it (docs/data.md says how to "
            "get them); correct --data or CSE_DATA, or leave both unset"
        )
    return found


def flag(name: str) -> str:
    """Return an option as it is typed, from its field's name."""
    return "--" + name.replace("_", "-")
