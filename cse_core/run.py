"""The definition of a training run, as frozen dataclasses, and the key that identifies it.

The key is the first twelve hex digits of a SHA-256. It covers the method's class (source.py) and version, every field
that differs from its default, the corpus and backbone, and TRAIN_VERSION. Corpus and backbone enter by SHA-256, or by
name if none is declared. A field that holds a Run (a teacher, a base) enters as that run's key. A new field with a
neutral default changes no old key.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from cse_core.lookup import check_choices, not_among
from cse_core.method import Method, check, innermost
from cse_core.source import class_name

TRAIN_VERSION = 2  # of encoder, packed_forward, batches and loop: bump with any change that could move a score
Pooling = Literal["cls", "mean", "top2_mean", "first_last_mean", "layer1_last_mean", "mask", "pooler_output"]
NgramPooling = Literal["ngrams", "ngrams_linear"]  # have weights (models/pooling.py); the second has no ReLU
POOLINGS: tuple[str, ...] = get_args(Pooling)
NGRAM_POOLINGS: tuple[str, ...] = get_args(NgramPooling)
MAX_SEED = 2**63 - 1  # the record's readers take 64-bit integers


def check_pooling(pooling: str, template: str = "") -> None:
    """Refuse an unknown pooling, a mask without a template and a template without a mask."""
    if pooling not in (*POOLINGS, *NGRAM_POOLINGS):
        raise not_among("pooling", pooling, (*POOLINGS, *NGRAM_POOLINGS))
    if (pooling == "mask") != bool(template):
        raise ValueError(f"the pooling mask and a template go together, got {pooling!r} and {template!r}")


def check_columns(method: Method, columns: Sequence[str]) -> None:
    """Refuse more columns than a method takes: its class variable `columns`, by default one."""
    if len(columns) < 2:
        return
    most = min(getattr(each, "columns", 1) for each in (method, innermost(method)))
    if len(columns) > most:
        raise ValueError(
            f"method {method.name}: expected sentences in {'one column' if most == 1 else f'at most {most} columns'}, "
            f"got {', '.join(columns)}; choose with --columns (from Python: columns=)"
        )


@dataclass(frozen=True)
class Corpus:
    """The first `lines` sentences of a named collection, pinned by `sha256` (corpora.lines_hash) unless that is "".

    `columns` names the columns to read from a file: a sentence, and optionally its positive and a hard negative. Blank
    rows are then left out, also from a text file with the column `text`. Without columns, lines are read as they are.
    """

    name: str
    lines: int
    sha256: str = ""
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.columns) > 3 or len(set(self.columns)) < len(self.columns):
            raise ValueError(
                f"corpus {self.name}: columns must be different ones of a sentence, its positive and a hard negative, "
                f"got {', '.join(self.columns)}"
            )
        if self.lines < 1:
            raise ValueError(f"corpus {self.name}: lines must be at least 1, got {self.lines}")

    @property
    def identity(self) -> str:
        return f"{self.sha256 or self._source}:{self.lines}"

    def __str__(self) -> str:
        pinned = f", {self.sha256[:12]}" if self.sha256 else ""
        return f"{self.name if pinned else self._source}, first {self.lines:,} lines{pinned}"

    @property
    def _source(self) -> str:
        """The name and the columns that are read."""
        return self.name + (f" ({', '.join(self.columns)})" if self.columns else "")


@dataclass(frozen=True)
class Pretrained:
    """An encoder that exists before the study: an embedded backbone, a folder or a hub name. `sha256` is as in Corpus.

    `tokenizer` names another encoder, whose tokenizer is used if this one has none.
    """

    name: str
    sha256: str = ""
    tokenizer: str = ""

    @property
    def identity(self) -> str:
        return self.sha256 or self.name

    def nested(self) -> tuple["Run", ...]:
        """Return no runs: it is not trained here."""
        return ()


def steps_per_epoch(examples: int, batch_size: int) -> int:
    """Return the number of batches in an epoch; a smaller last one is left out if it has one or two examples.

    One example has no negatives, and two leave no list to rank without the positive (ListNet).
    """
    whole, rest = divmod(examples, batch_size)
    return whole + 1 if rest > 2 else whole


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. Fields are declared values and never rewritten; derived values are properties."""

    method: Method
    backbone: Pretrained
    corpus: Corpus
    seed: int = 42
    epochs: int = 1
    batch_size: int = 64
    learning_rate: float = 3e-5
    warmup: float = 0.0  # share of all steps
    dropout: float = 0.1  # hidden and attention
    max_length: int = 32  # of training examples, special tokens included
    pooling: Literal[Pooling, NgramPooling] = "cls"
    eval_steps: int = 125
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    template: str = ""  # around sentences at evaluation, for the pooling "mask" (prompts.py)
    optimizer: Literal["adamw", "rmsprop"] = "adamw"
    schedule: Literal["linear", "staircase"] = "linear"  # of the learning rate
    weight_decay: float = 0.0  # of all parameters except biases and the scales of normalisations
    max_steps: int = 0  # training ends after these, the learning rate at zero; 0: after all epochs
    leave_out_duplicates: bool = False  # copies of a sentence in its batch are not its negatives

    def __post_init__(self) -> None:
        for name in ("epochs", "eval_steps"):
            check(name, getattr(self, name), lambda n: n >= 1, "at least 1")
        check("seed", self.seed, lambda s: 0 <= s <= MAX_SEED, f"in 0 to {MAX_SEED}")
        check("max_steps", self.max_steps, lambda n: n >= 0, "at least 0 (all)")
        if self.batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {self.batch_size}: a batch of one has no negatives")
        if self.max_length < 3:
            raise ValueError(f"max_length must leave room for one token between the special two, got {self.max_length}")
        # The learning rate is about how far AdamW moves each weight in a step.
        check("learning_rate", self.learning_rate, lambda r: 0 < r <= 1, "in (0, 1]")
        for name in ("dropout", "warmup"):
            check(name, getattr(self, name), lambda s: 0 <= s < 1, "in [0, 1)")
        check_choices(self)
        check("weight_decay", self.weight_decay, lambda w: 0 <= w <= 1, "in [0, 1]")
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError(f"weight_decay needs the optimizer adamw, got {self.optimizer}")
        if self.warmup and self.schedule != "linear":
            raise ValueError(f"warmup needs the schedule linear, got {self.schedule}")
        check_pooling(self.pooling, self.template)
        check_columns(self.method, self.corpus.columns)
        weight = getattr(self.method, "hard_negative_weight", 0.0)
        if weight and len(self.corpus.columns) < 3:
            raise ValueError(f"hard_negative_weight {weight} needs a corpus of three columns, got {self.corpus}")
        if self.leave_out_duplicates and not getattr(innermost(self.method), "leaves_out_duplicates", False):
            raise ValueError(
                f"method {self.method.name}: its loss can't leave duplicates out, got leave_out_duplicates=True"
            )
        if self.pooling in NGRAM_POOLINGS and not getattr(innermost(self.method), "trains_ngrams", False):
            name = innermost(self.method).name
            raise ValueError(f"the pooling {self.pooling} has weights, which only isbert trains; got {name}")

    @cached_property
    def key(self) -> str:
        """Twelve hex digits that identify this run's result."""
        return key_of(canonical(self) | {"train": TRAIN_VERSION})

    @property
    def identity(self) -> str:
        return self.key

    @property
    def steps(self) -> int:
        """The number of training steps, if each line of the corpus is an example."""
        steps = self.epochs * steps_per_epoch(self.corpus.lines, self.batch_size)
        return min(steps, self.max_steps or steps)

    @property
    def evaluations(self) -> int:
        """The number of evaluations on dev sets during training: one every `eval_steps`, and at least one."""
        return max(1, self.steps // self.eval_steps)

    def nested(self) -> tuple["Run", ...]:
        """Return the runs that must have been trained before this one: teachers, bases."""
        return tuple(dict.fromkeys(run for run, _ in self.nested_checkpoints))

    @cached_property
    def nested_checkpoints(self) -> tuple[tuple["Run", str], ...]:
        """The nested runs, each with the selection rule of the checkpoint that this run loads."""
        return tuple(dict.fromkeys((run, rule_of(owners)) for run, owners in parts_of(self.method, Run)))

    def required_checkpoints(self) -> dict["Run", tuple[str, ...]]:
        """Return all runs that must be trained before this one, including teachers' teachers, in order of training.

        Each comes with the selection rules of the checkpoints that later runs load.
        """
        required: dict[Run, tuple[str, ...]] = {}
        for nested, rule in self.nested_checkpoints:
            for run, rules in (nested.required_checkpoints() | {nested: (rule,)}).items():
                required[run] = tuple(dict.fromkeys((*required.get(run, ()), *rules)))
        return required

    def settings(self) -> dict[str, Any]:
        """Return all fields as a flat dict for people: method fields first, nested values by their names."""
        unusual = ("max_steps", "leave_out_duplicates")  # shown only if they are set
        left_out = {"method", *(name for name in unusual if not getattr(self, name))}
        parts: tuple[Any, ...] = (self.method, self)
        named = {f.name: getattr(part, f.name) for part in parts for f in fields(part)}
        return {"method": self.method.name} | {k: _readable(v) for k, v in named.items() if k not in left_out}

    def non_defaults(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, except the seed, as a flat dict for people."""
        outer = {k: v for k, v in _non_defaults(self).items() if k not in ("method", "seed")}
        return {k: _readable(v) for k, v in (_non_defaults(self.method) | outer).items()}


def parts_of(value: Any, *kinds: type, owners: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the instances of some classes in a value, in order, each with the dataclasses around it, innermost first.

    Tuples and dataclasses are searched, but not what is found.
    """
    if isinstance(value, kinds):
        yield value, owners
    elif isinstance(value, tuple):
        for item in value:
            yield from parts_of(item, *kinds, owners=owners)
    elif is_dataclass(value):
        for field in fields(value):
            yield from parts_of(getattr(value, field.name), *kinds, owners=(value, *owners))


def rule_of(owners: tuple[Any, ...]) -> str:
    """Return the selection rule of a nested run: `select` of the innermost dataclass around it that has one."""
    return next((owner.select for owner in owners if hasattr(owner, "select")), "last")


def key_of(content: dict[str, Any]) -> str:
    """Return twelve hex digits of the SHA-256 of sorted JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def is_key(text: str) -> bool:
    """Whether a text has the form of a key."""
    return bool(re.fullmatch("[0-9a-f]{12}", text))


def canonical(value: Any) -> Any:
    """Return a value as JSON that changes exactly when its meaning does: its class and its non-default fields."""
    if isinstance(value, Corpus | Pretrained):
        return value.identity
    if is_dataclass(value) and not isinstance(value, type):
        content = {name: _canonical_field(field) for name, field in _non_defaults(value).items()}
        for name, number in content.items():
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{name} must be a finite number, got {number}")
        return {"is": class_name(type(value)), "version": getattr(value, "version", 0)} | content
    return _canonical_field(value)


def _canonical_field(value: Any) -> Any:
    if isinstance(value, Run):
        return {"run": value.key}
    if isinstance(value, tuple):
        return [_canonical_field(item) for item in value]
    if is_dataclass(value):
        return canonical(value)
    if isinstance(value, str | int | float | bool | None):
        return value
    raise TypeError(f"a run's fields must be numbers, strings, tuples, dataclasses or runs, got {value!r}")


def _default_of(field: Field) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _non_defaults(value: Any) -> dict[str, Any]:
    values = {field: getattr(value, field.name) for field in fields(value)}
    return {field.name: item for field, item in values.items() if item != _default_of(field)}


def _readable(value: Any) -> Any:
    """Return a field's value for people: nested values by name, numbers and strings as they are."""
    if isinstance(value, Run):
        return f"{value.method.name} {value.backbone.name} seed {value.seed} ({value.key})"
    if isinstance(value, Corpus):
        return value.name
    if isinstance(value, Pretrained):
        return value.name
    if isinstance(value, tuple):
        return "; ".join(str(_readable(item)) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        # A method's name comes first: one with all defaults would otherwise be the empty text.
        name = [value.name] if getattr(value, "name", "") else []
        return " ".join([*name, *(f"{k}={_readable(v)}" for k, v in _non_defaults(value).items())])
    return value
