"""The interface of a training method (Method, a Protocol) and the pieces that most methods share.

A method is a frozen dataclass of the paper's hyperparameters with a name, a version and five functions. Most functions
have an obvious default, written out as an assignment: `examples = single_column`, `modules = tanh_head`,
`targets = no_targets`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Factors:
    """Factors that scale the k lowest hidden states of a forward pass.

    Feature f of token j in state l is multiplied by (tokens[l, j] + features[l, f]) / 2.
    State 0 is the embedding output, state l the output of layer l. Ones change nothing. Both may require gradient.
    """

    tokens: Float[Tensor, "n k t"]
    features: Float[Tensor, "k d"]


@dataclass(frozen=True)
class Tokens:
    """Token ids of n texts, padded on the right. `positions` replaces the usual 0..t-1 where a method shifts them.

    Where `kept` is False the embedding output is set to zero; one entry may apply to all tokens or all features.
    """

    ids: Int[Tensor, "n t"]
    mask: Bool[Tensor, "n t"]
    positions: Int[Tensor, "n t"] | None = None
    kept: Bool[Tensor, " n #t #d"] | None = None
    factors: Factors | None = None

    @property
    def position_ids(self) -> Int[Tensor, "n t"]:
        """`positions`, or 0..t-1 where they are None."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.ids.shape[1], device=self.ids.device).expand_as(self.ids)


@dataclass(frozen=True)
class Batch:
    """One step's examples: their rows in the training table, a Tokens per column, and the step's own generator."""

    rows: Int[Tensor, " n"]
    columns: Mapping[str, Tokens]
    generator: torch.Generator
    leave_out_duplicates: bool = False

    def __getitem__(self, column: str) -> Tokens:
        return self.columns[column]

    @property
    def duplicates(self) -> Bool[Tensor, "n n"] | None:
        """True where another example has the same sentence (first column); None if duplicates count as negatives."""
        sentences = next(iter(self.columns.values()))
        return equal_texts(sentences, sentences).fill_diagonal_(False) if self.leave_out_duplicates else None


def equal_texts(a: Tokens, b: Tokens) -> Bool[Tensor, "n m"]:
    """Return whether each text of `a` has the same ids as each of `b`."""
    width = max(a.ids.shape[1], b.ids.shape[1])
    x, y = (
        F.pad(tokens.ids.masked_fill(~tokens.mask, -1), (0, width - tokens.ids.shape[1]), value=-1) for tokens in (a, b)
    )
    return (x.unsqueeze(1) == y).all(-1)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device; to a GPU from pinned memory, so that the copy is asynchronous."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@dataclass(frozen=True)
class Targets:
    """Tensors fixed before training: `rows` have an entry per training example, `shared` go whole to every step.

    `warnings` about them are saved with the run.
    """

    rows: Mapping[str, Tensor] = field(default_factory=dict)
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def at(self, rows: Int[Tensor, " n"], device: torch.device) -> dict[str, Tensor]:
        """Return the targets of a batch by name, on the device."""
        picked = {name: to_device(values[rows], device) for name, values in self.rows.items()}
        return picked | dict(self.shared)

    def on(self, device: torch.device) -> "Targets":
        """Return the same targets with the shared ones on the device, copied once for all steps."""
        return replace(self, shared={name: values.to(device) for name, values in self.shared.items()})


@dataclass(frozen=True)
class Loss:
    """`total` is minimised; `terms` are logged by name and need not add up to it.

    `views` are the two sides of the contrast after the head, for a method that adds a term to this one.
    """

    total: Float[Tensor, ""]
    terms: Mapping[str, Float[Tensor, ""]]
    views: tuple[Tensor, Tensor] | None = None


@runtime_checkable
class Encode(Protocol):
    """A training pass: encode any number of Tokens in one batch, and return the pooled vectors of each."""

    def __call__(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]: ...

    def states(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        """Return every token's last hidden state instead of one pooled vector per text."""

    def without_dropout(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """Encode with gradient but without dropout; no random number is drawn."""


@runtime_checkable
class EncoderRef(Protocol):
    """A reference to a finished encoder: a Run or a Pretrained (run.py)."""

    @property
    def identity(self) -> str:
        """A string that no encoder with other weights has."""


@runtime_checkable
class VectorScorer(Protocol):
    """A Scorer of cse_core.evaluation (a frozen dataclass) whose scores are the cosines of the vectors it returns."""

    def vectors(self, encoder: Any, sentences: Sequence[str], *, data: Path | None = None) -> Float[Tensor, "n d"]:
        """Return vectors of sentences, made with an encoder; `data` is the folder of the scorer's corpus."""


@runtime_checkable
class Source(Protocol):
    """Embeddings of the training examples and the corpus by finished encoders in eval mode, to make targets from."""

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> Float[Tensor, "examples d"]:
        """Return an embedding of every training example, from the truncated ids of a column (by default the first).

        With a scorer, return vectors whose cosines are its scores.
        """

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Float[Tensor, "size d"]:
        """Return embeddings of `size` sentences drawn from the run's corpus without replacement, at full length."""


@runtime_checkable
class Method(Protocol):
    """A training method. `version` enters the run's key: bump it with any change that could move a score."""

    name: ClassVar[str]
    version: ClassVar[int]

    @staticmethod
    def recipes() -> "Mapping[Any, Recipe]":
        """Return the published settings, if any, by the paper's name of a backbone or by a tuple that ends with it."""

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return columns of token ids, one entry per example; there may be more or fewer examples than texts."""

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return all modules other than the encoder; they are saved for resuming, and not exported with encoders."""

    def targets(self, source: Source) -> Targets:
        """Return the tensors that stay fixed in training, one entry per example or shared by the whole run."""

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the loss of one batch; the method makes its own passes through `encode`.

        It is called once a step, so it may also update what `modules` hold: a slow encoder, a queue of vectors.
        """


@dataclass(frozen=True)
class Recipe:
    """A method's published settings for one backbone, and where they were published.

    `pooling` and `template` are the encoder's, in training and evaluation. `fixed` names the fields that no scale may
    replace, because with another value it would be another method.
    """

    method: Method
    _: KW_ONLY
    batch_size: int
    learning_rate: float
    epochs: int = 1
    warmup: float = 0.0
    dropout: float = 0.1
    max_length: int = 32
    eval_steps: int = 125
    weight_decay: float = 0.0
    optimizer: str = "adamw"
    schedule: str = "linear"
    pooling: str = "cls"
    template: str = ""
    fixed: tuple[str, ...] = ()
    source: str

    def __post_init__(self) -> None:
        if unknown := set(self.fixed) - set(self.training):
            raise ValueError(f"fixed must name training fields, {', '.join(self.training)}; got {sorted(unknown)}")

    @property
    def training(self) -> dict[str, Any]:
        """The fields of a Run that the recipe sets."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("method", "fixed", "source")}

    def with_method(self, **changes: Any) -> "Recipe":
        """Return the recipe with fields of its method replaced, such as teachers, which are a study's own runs."""
        return replace(self, method=with_fields(self.method, **changes))


def innermost(method: Method) -> Method:
    """Return the method that makes examples and contrast: the innermost, if methods like MLM wrap one as `inner`."""
    return method_chain(method)[-1]


def method_chain(method: Method) -> tuple[Method, ...]:
    """Return a method, then its `inner` method, and so on to the innermost."""
    inner = getattr(method, "inner", None)
    return (method,) if inner is None else (method, *method_chain(inner))


def starting_encoder(method: Method) -> tuple[EncoderRef, str] | None:
    """Return the finished encoder whose weights training starts from, and its selection rule; None for the backbone.

    A method that starts from one (RankEncoder) has a property `starts_from`. Otherwise its `inner` decides.
    """
    start = getattr(method, "starts_from", None)
    inner = getattr(method, "inner", None)
    return starting_encoder(inner) if start is None and inner is not None else start


def with_fields(method: Method, **changes: Any) -> Method:
    """Return the method with some hyperparameters replaced."""
    return cast(Method, replace(cast(Any, method), **changes))


def single_column(
    self: object, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> dict[str, list[list[int]]]:
    """Return one column, `text`: the sentences, truncated. Both views of a sentence are the same ids."""
    return {"text": tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]}


COLUMNS = ("text", "positive", "negative")


def text_columns(
    self: object, texts: Sequence[Any], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> dict[str, list[list[int]]]:
    """Return `text`, and `positive` and `negative` if the texts are tuples of two or three, each truncated."""
    columns = (texts,) if not texts or isinstance(texts[0], str) else zip(*texts, strict=True)
    return {
        name: single_column(self, column, tokenizer, max_length)["text"]
        for name, column in zip(COLUMNS, columns, strict=False)
    }


def tanh_head(self: object, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
    """Return the train-only head tanh(W h + b), not the pre-trained pooler: W is normal with deviation 0.02, b is 0."""
    linear = nn.Linear(encoder.width, encoder.width)
    nn.init.normal_(linear.weight, std=0.02, generator=generator)
    nn.init.zeros_(linear.bias)
    return nn.ModuleDict({"head": nn.Sequential(linear, nn.Tanh())})


def no_targets(self: object, source: Source) -> Targets:
    """Return no targets: nothing is fixed before training."""
    return Targets()


def check(name: str, value: int | float, ok: Callable[[Any], bool], constraint: str) -> None:
    """Raise a ValueError that names the hyperparameter, the constraint and the value, unless the value is ok."""
    if not ok(value):
        raise ValueError(f"{name} must be {constraint}, got {value}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")


def check_surrounded(method: Method, tokenizer: "PreTrainedTokenizerBase") -> None:
    """Refuse a tokenizer without special tokens around a text, where a method edits what is between them."""
    ids = tokenizer("a")["input_ids"]
    if (ids[:1], ids[-1:]) != ([tokenizer.cls_token_id], [tokenizer.sep_token_id]):
        raise ValueError(
            f"method {method.name}: edits a text between its first and its last special token, but the tokenizer of "
            f"{tokenizer.name_or_path} does not put a cls and a sep token around it; take another backbone"
        )
