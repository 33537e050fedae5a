"""What a method supplies (Method, a Protocol) and the pieces that most methods share.

A method is a frozen dataclass of the paper's hyperparameters with five members. Most of them have an obvious default,
written out as an assignment: `examples = single_column`, `modules = tanh_head`, `targets = no_targets`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Factors:
    """What multiplies the k lowest states of a pass.

    Feature f of token j in state l is multiplied by (tokens[l, j] + features[l, f]) / 2.
    State 0 is the embedding output, state l the output of layer l. Ones change nothing. Both may require gradient.
    """

    tokens: Float[Tensor, "n k t"]
    features: Float[Tensor, "k d"]


@dataclass(frozen=True)
class Tokens:
    """Token ids of n texts, padded on the right. `positions` replaces the usual 0..t-1 where a method shifts them.

    Where `kept` is False the embedding output is set to zero; one entry may stand for all tokens or all features.
    """

    ids: Int[Tensor, "n t"]
    mask: Bool[Tensor, "n t"]
    positions: Int[Tensor, "n t"] | None = None
    kept: Bool[Tensor, " n #t #d"] | None = None
    factors: Factors | None = None

    @property
    def position_ids(self) -> Int[Tensor, "n t"]:
        """The positions, or the usual ones where none are given."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.ids.shape[1], device=self.ids.device).expand_as(self.ids)


@dataclass(frozen=True)
class Batch:
    """One step's examples: their rows in the training table, a Tokens per column, and the step's own generator."""

    rows: Int[Tensor, " n"]
    columns: Mapping[str, Tokens]
    generator: torch.Generator

    def __getitem__(self, column: str) -> Tokens:
        return self.columns[column]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device; to a GPU from pinned memory, so that nobody waits for the copy."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@dataclass(frozen=True)
class Targets:
    """What is fixed before training: `rows` have an entry per training example, `shared` are handed over whole."""

    rows: Mapping[str, Tensor] = field(default_factory=dict)
    shared: Mapping[str, Tensor] = field(default_factory=dict)

    def at(self, rows: Int[Tensor, " n"], device: torch.device) -> dict[str, Tensor]:
        """The targets of a batch, under their names."""
        picked = {name: to_device(values[rows], device) for name, values in self.rows.items()}
        return picked | dict(self.shared)

    def on(self, device: torch.device) -> "Targets":
        """The same with all that is shared on the device, once and for all steps."""
        return Targets(self.rows, {name: values.to(device) for name, values in self.shared.items()})


@dataclass(frozen=True)
class Loss:
    """`total` is what is minimised; `terms` are logged under their names and need not add up to it.

    `views` are the two sides of the contrast after the head, for a method that adds a term to this one.
    """

    total: Float[Tensor, ""]
    terms: Mapping[str, Float[Tensor, ""]]
    views: tuple[Tensor, Tensor] | None = None


@runtime_checkable
class Encode(Protocol):
    """One training pass: any number of Tokens through the encoder at once, pooled, each given back by itself."""

    def __call__(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]: ...

    def states(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        """A training pass that gives every token's last state instead."""
        ...

    def still(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """Like a call, with gradient, but without dropout; it draws no random number."""
        ...


@runtime_checkable
class EncoderRef(Protocol):
    """What names a finished encoder: a Run or a Pretrained (run.py)."""

    @property
    def identity(self) -> str:
        """What tells its weights apart from others'."""
        ...


@runtime_checkable
class Source(Protocol):
    """Where targets come from: training examples and corpus as finished encoders see them, in eval mode."""

    def vectors(self, encoder: EncoderRef, *, select: str, column: str | None = None) -> Float[Tensor, "examples d"]:
        """Embeddings of every training example, from the same truncated ids of a column (else the first one)."""
        ...

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Float[Tensor, "size d"]:
        """Embeddings of `size` sentences drawn from the run's corpus without replacement, at their full length."""
        ...


@runtime_checkable
class Method(Protocol):
    """A training method. `version` enters the key: bump it with any change that could move a score."""

    name: ClassVar[str]
    version: ClassVar[int]

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """Columns of token ids, one entry an example; more or fewer examples than texts are allowed."""
        ...

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Everything trained or kept beside the encoder; saved for resume, dropped by export."""
        ...

    def targets(self, source: Source) -> Targets:
        """What is fixed per example or for the whole run."""
        ...

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the loss of one batch, from passes of its own through `encode`.

        It is called once a step, so it may also move what `modules` keep: a slow encoder, a queue of vectors.
        """
        ...


@dataclass(frozen=True)
class Recipe:
    """A method's settings for one backbone as somebody published them, and where they stand.

    `pooling` and `template` are the encoder's, in training and evaluation. `fixed` names the fields that no scale may
    replace, because with another value it would be another method.
    """

    method: Method
    batch_size: int = field(kw_only=True)
    learning_rate: float = field(kw_only=True)
    epochs: int = field(kw_only=True, default=1)
    warmup: float = field(kw_only=True, default=0.0)
    dropout: float = field(kw_only=True, default=0.1)
    max_length: int = field(kw_only=True, default=32)
    eval_steps: int = field(kw_only=True, default=125)
    weight_decay: float = field(kw_only=True, default=0.0)
    optimizer: str = field(kw_only=True, default="adamw")
    schedule: str = field(kw_only=True, default="linear")
    pooling: str = field(kw_only=True, default="cls")
    template: str = field(kw_only=True, default="")
    fixed: tuple[str, ...] = field(kw_only=True, default=())
    source: str = field(kw_only=True)

    def __post_init__(self) -> None:
        if unknown := set(self.fixed) - set(self.training):
            raise ValueError(f"fixed must name training fields, {', '.join(self.training)}; got {sorted(unknown)}")

    @property
    def training(self) -> dict[str, Any]:
        """The fields of a Run that the source states."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("method", "fixed", "source")}


def innermost(method: Method) -> Method:
    """The method that makes examples and contrast where others (RankEncoder, MLM) hold one as `inner` and add to it."""
    while (inner := getattr(method, "inner", None)) is not None:
        method = inner
    return method


def starting_encoder(method: Method) -> tuple[EncoderRef, str] | None:
    """A finished encoder, and its selection rule, whose weights training starts from; None: the run's backbone.

    A method that wants one (RankEncoder) says so in a property `starts_from`, as does one that holds it as `inner`.
    """
    found = getattr(method, "starts_from", None)
    inner = getattr(method, "inner", None)
    return starting_encoder(inner) if found is None and inner is not None else found


def with_fields(method: Method, **changes: Any) -> Method:
    """The method with some hyperparameters replaced."""
    return cast(Method, replace(cast(Any, method), **changes))


def single_column(
    self: object, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> dict[str, list[list[int]]]:
    """One column, `text`: the sentence, truncated. Both views of a sentence are the same ids."""
    return {"text": tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]}


def tanh_head(self: object, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
    """The train-only head tanh(W h + b), W normal with deviation 0.02, b zero: not the pre-trained pooler."""
    linear = nn.Linear(encoder.width, encoder.width)
    nn.init.normal_(linear.weight, std=0.02, generator=generator)
    nn.init.zeros_(linear.bias)
    return nn.ModuleDict({"head": nn.Sequential(linear, nn.Tanh())})


def no_targets(self: object, source: Source) -> Targets:
    """Nothing is fixed before training."""
    return Targets()


def check(name: str, value: int | float, ok: Callable[[Any], bool], wish: str) -> None:
    """Refuse a hyperparameter by name, wish and fact."""
    if not ok(value):
        raise ValueError(f"{name} must be {wish}, got {value}")
