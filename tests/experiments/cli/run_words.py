"""Runs by the words of `run.py`."""

from typing import Any

import tyro

from cse_core.run import Run
from experiments.run import build, options_for


def parsed(*words: str) -> Any:
    """The options of a method, given with its name first."""
    return tyro.cli(options_for(words[0]), args=list(words[1:]))


def built(*words: str) -> Run:
    return build(words[0], parsed(*words))
