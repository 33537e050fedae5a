"""Search spaces: the values that a hyperparameter search tries for a method's settings.

A method declares them in a class variable `space`:

    space: ClassVar[Space] = {"distillation_weight": LogUniform(0.1, 1.0), "rank": ("list_net", "list_mle")}

Settings that are tuned for all methods, such as the learning rate, are in `SHARED`. A method may give one other values,
or an empty tuple to keep the published value. Names are fields of the method, of its `inner`, or of a Run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from cse_core.method import Method, method_chain, with_fields
from cse_core.run import Run


@dataclass(frozen=True)
class LogUniform:
    """Numbers from `low` to `high`, uniform on a logarithmic scale."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high:
            raise ValueError(f"a log-uniform range needs 0 < low < high, got {self.low} and {self.high}")


@dataclass(frozen=True)
class Times:
    """Numbers from `low` to `high` times the method's value at the scale, uniform on a logarithmic scale."""

    low: float
    high: float


@dataclass(frozen=True)
class OfWidth:
    """These shares of the encoder's width, rounded to whole numbers."""

    shares: tuple[float, ...]


Values = LogUniform | tuple[Any, ...]
Space = Mapping[str, Values | Times | OfWidth]
SCORING_WEIGHT = "scoring_weight"  # the weight of ranks against the cosine when pairs are scored; no field of a run
SHARED: Space = {
    "learning_rate": Times(1 / 10, 10 / 3),
    "dropout": (0.1, 0.2, 0.3, 0.4),
    "epochs": (1, 2),
    "temperature": LogUniform(0.005, 0.1),
}
_RUN_FIELDS = {field.name for field in fields(Run)}


def space_of(run: Run, width: int) -> dict[str, Values]:
    """Return the search space of a run's method: the shared settings that it has, and its own.

    `width` is the dimension of the encoder's vectors. Epochs are left out if `max_steps` fixes the number of steps.
    """
    shared = {name: values for name, values in SHARED.items() if _owner(run, name) is not None}
    if run.max_steps:
        del shared["epochs"]
    space = {**shared, **getattr(run.method, "space", {})}
    for name, values in space.items():
        if wrong := _what_is_wrong(run, name, values):
            raise ValueError(f"method {run.method.name}: its space names {name!r}, {wrong}")
    return {name: _resolved(run, name, values, width) for name, values in space.items() if values != ()}


def _what_is_wrong(run: Run, name: str, values: object) -> str:
    """Return what is wrong with a setting of a space; empty if nothing is."""
    owner = _owner(run, name)
    if owner is None and name != SCORING_WEIGHT:
        return "which is no setting of it or of a run"
    of_method = any(name in _names(method) for method in method_chain(run.method))
    if owner is run and of_method and getattr(run.method, "space", {}).get(name):  # () leaves the run's as published
        return "which is a setting of it and of a run; expected another name for its own"
    if not isinstance(values, LogUniform | Times | OfWidth | tuple):
        return f"with {values!r}; expected a tuple of choices, such as (0.25, 0.5) or (0.25,), or a LogUniform range"
    published = getattr(owner, name, None)
    if isinstance(values, Times) and not (isinstance(published, int | float) and published > 0):
        return f"with multiples of {published!r}; expected choices or a LogUniform range"
    if (
        isinstance(values, LogUniform | Times)
        and type(published) is int
        and _names(owner)[name] not in (float, "float")
    ):
        return "a whole number, with a range; expected a tuple of choices, such as (2, 4, 8)"
    return ""


def _names(owner: Any) -> dict[str, Any]:
    """Return the fields of a run or method with their types."""
    return {field.name: field.type for field in fields(owner)}


def _resolved(run: Run, name: str, values: Values | Times | OfWidth, width: int) -> Values:
    if isinstance(values, Times):
        published = getattr(_owner(run, name), name)
        return LogUniform(published * values.low, published * values.high)
    if isinstance(values, OfWidth):
        return tuple(dict.fromkeys(max(1, round(share * width)) for share in values.shares))
    return values


def _owner(run: Run, name: str) -> Any:
    """Return the object that has the setting: the run, its method or the nearest method inside; None if none has."""
    if name in _RUN_FIELDS:
        return run
    return next((method for method in method_chain(run.method) if name in _names(method)), None)


def with_settings(run: Run, settings: Mapping[str, Any]) -> Run:
    """Return the run with settings replaced: its own, its method's or those of a method inside."""
    of_run = {name: value for name, value in settings.items() if name in _RUN_FIELDS}
    of_method = {k: v for k, v in settings.items() if k not in of_run and k != SCORING_WEIGHT}
    return replace(run, **of_run, method=_with(run.method, of_method))


def _with(method: Method, settings: Mapping[str, Any]) -> Method:
    names = _names(method)
    own = {name: value for name, value in settings.items() if name in names}
    left = {name: value for name, value in settings.items() if name not in names}
    if left:
        own["inner"] = _with(getattr(method, "inner"), left)  # noqa: B009 - a Protocol without it
    return with_fields(method, **own)
