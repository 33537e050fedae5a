"""Encoders of other libraries: folders that only sentence-transformers can open, and any object with its `encode`."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.models.encoder import Encoder
from cse_core.models.loading import UNLIMITED, check_tokenizer, check_weights, read_config
from cse_core.models.pretrained import CONFIG, resolve
from cse_core.models.sentence_transformers_format import MODEL_TYPES, Description, describe, read_json


@runtime_checkable
class HasEncode(Protocol):
    """A model whose `encode` returns a vector per sentence, as an array or a tensor: sentence-transformers' models."""

    def encode(self, sentences: Any, /) -> Any:
        """Return the vectors of a list of sentences."""


class ForeignEncoder:
    """Another library's model as a SentenceEncoder: its vectors in fp32 on the CPU."""

    def __init__(self, model: HasEncode, name: str = "") -> None:
        self.model, self.name = model, name or type(model).__name__

    @property
    def max_length(self) -> int:
        """The number of tokens to which a sentence-transformers model cuts a text."""
        return getattr(self.model, "max_seq_length", None) or UNLIMITED

    def tokenise(self, sentences: Sequence[str], limit: int | None = None) -> Sequence[str] | Sequence[list[int]]:
        """Return the ids that a sentence-transformers model's tokenizer gives; without such a tokenizer, the texts.

        Texts count as equal if these are. They are cut to `limit` tokens, by default to `max_length`.
        """
        from transformers import PreTrainedTokenizerBase  # lazy: slow import

        tokenizer, limit = getattr(self.model, "tokenizer", None), limit or self.max_length
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            return sentences
        if not sentences:
            return []
        cut = {"truncation": True, "max_length": limit} if limit < UNLIMITED else {}
        return tokenizer(list(sentences), verbose=False, **cut)["input_ids"]

    def encode(
        self, sentences: Sequence[str], *, progress: Callable[[int], object] | None = None
    ) -> Float[Tensor, "n d"]:
        """Return the model's vectors; CachedEncoder checks that there is one per sentence."""
        vectors = self.model.encode(list(sentences))
        tensor = vectors.detach() if isinstance(vectors, Tensor) else torch.from_numpy(np.asarray(vectors))
        if not tensor.is_floating_point():
            raise ValueError(
                f"{self.name}: encode returned {str(tensor.dtype).removeprefix('torch.')}, expected floating-point "
                "vectors: bits and other codes have no cosine (with sentence-transformers, precision='float32')"
            )
        if progress:
            progress(len(tensor))
        return tensor.float().cpu()


def open_encoder(name_or_path: str | Path, device: str | torch.device = "cpu") -> Encoder | ForeignEncoder:
    """Open an encoder for scoring, by folder or name: as an Encoder if that gives the vectors the folder asks for.

    Otherwise sentence-transformers opens it, and its `encode` is called. That is the case for modules besides
    Transformer, Pooling and Normalize, other poolings, a default prompt, and families that are not in `MODEL_TYPES`.
    """
    folder = resolve(str(name_or_path))
    about = describe(folder)
    if about.is_ours and read_json(folder / about.transformer / CONFIG).get("model_type") in MODEL_TYPES:
        return Encoder.from_pretrained(name_or_path).to(device)
    return ForeignEncoder(_open_by_sentence_transformers(folder, about, device), str(name_or_path))


def _open_by_sentence_transformers(folder: Path, about: Description, device: str | torch.device) -> Any:
    from sentence_transformers import SentenceTransformer  # lazy: slow import
    from transformers import PreTrainedModel  # lazy: slow import

    places = [folder / path for path in about.transformers if (folder / path / CONFIG).is_file()]
    for path in places:
        read_config(path)
    with _errors_of_its_modules(folder):
        model = SentenceTransformer(
            str(folder),
            device=str(device),
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"dtype": torch.float32},
        ).eval()
    holders = [each for each in model.modules() if isinstance(getattr(each, "model", None), PreTrainedModel)]
    holders = [each for each in holders if not isinstance(each, PreTrainedModel)]  # some have a part named `model`
    if len(holders) != len(places):
        raise ValueError(f"{folder}: has {len(places)} models of transformers, but its modules hold {len(holders)}")
    for path, holder in zip(places, holders, strict=True):
        _check_transformer(path, holder.model, model.tokenizer)
    for name, value in model.named_parameters():
        if not bool(value.isfinite().all()):
            raise ValueError(f"{folder}: {name} holds numbers that are not finite; copy or fetch the folder again")
    with _errors_of_its_modules(folder):
        model.encode(["a"], show_progress_bar=False)
    return model


@contextmanager
def _errors_of_its_modules(folder: Path) -> Generator[None]:
    try:
        yield
    except Exception as error:  # of many kinds
        first = str(error).partition("\n")[0]
        raise ValueError(f"{folder}: sentence-transformers can't open it: {type(error).__name__}: {first}") from error


def _check_transformer(path: Path, backbone: Any, tokenizer: Any) -> None:
    """Refuse random weights in place of missing ones, and a tokenizer of another model."""
    _, info = type(backbone).from_pretrained(  # on the device "meta" nothing but names and shapes is read
        path, config=backbone.config, device_map="meta", output_loading_info=True, local_files_only=True
    )
    # Modules read token states, so a pooling layer that is missing in the file is random but unused.
    info["missing_keys"] = [name for name in info["missing_keys"] if not name.startswith("pooler.")]
    check_weights(path, info, backbone)
    check_tokenizer(path, tokenizer, backbone)
