"""Read a model and its tokenizer from a folder, and refuse what does not fit together.

By default, transformers does three things without an error: it fills missing tensors with random numbers, drops layers
that the config does not have, and makes a tokenizer of five tokens if there are no tokenizer files.
"""

import inspect
import json
import logging
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cse_core.models.pretrained import WEIGHTS
from cse_core.models.sentence_transformers_format import MODEL_TYPES, OFFSET_POSITIONS, REMEDY, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json")
TOKENIZER_FILES = "tokenizer.json, vocab.txt, or vocab.json with merges.txt"
PRETRAINING = {  # heads that released files hold besides the encoder, by the first part of the tensors' names
    *("cls", "lm_head", "discriminator", "generator", "vocab_transform", "vocab_layer_norm", "vocab_projector"),
    *("discriminator_predictions", "generator_predictions", "generator_lm_head", "decoder"),
}
HEADS = {"pooler", "mlp", "classifier", "qa_outputs"}  # heads trained for a task: a warning names them
OTHER_DROPOUT = ("classif", "qa_", "summary", "pooler", "layerdrop")  # rates in a config that aren't the encoder's
UNLIMITED = 2**20  # limit of tokens for a model without a table of positions
SHARDED = tuple(f"{name}.index.json" for name in WEIGHTS)
DATA_PARALLEL = {r"^module\.": ""}  # DataParallel's model is its `module`
LEAST_FILLED = 0.9  # share of embedding rows that have a token; padding of the matrix adds a few per cent


def load(
    folder: Path,
    dropout: float | None = None,
    *,
    pooler: bool = False,
    limit: int | None = None,
    lower_cases: bool = False,
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Return the model, in evaluation mode, in fp32 and by default without a pooling layer, and its tokenizer.

    `dropout` replaces the config's rates. `limit` and `lower_cases` change the tokenizer, as sentence-transformers
    does if its files say so.
    """
    config = read_config(folder)
    if dropout is not None:
        set_dropout(config, dropout, folder)
    model = _load_model(folder, config, pooler)
    tokenizer = _load_tokenizer(folder)
    check_tokenizer(folder, tokenizer, model)
    if limit is not None:
        tokenizer.model_max_length = limit
    if lower_cases and tokenizer("A")["input_ids"] != tokenizer("a")["input_ids"]:
        _lower_case(folder, tokenizer)
    return model.eval(), tokenizer


def read_config(folder: Path) -> "PreTrainedConfig":
    """Return a folder's configuration; refuse damaged files, and position embeddings that transformers has dropped."""
    import transformers  # lazy: slow import

    transformers.logging.set_verbosity_error()  # each load reports the unused MLM head of a backbone as a problem
    transformers.logging.disable_progress_bar()
    for name in JSON_FILES:
        if (folder / name).is_file():
            read_json(folder / name)
    # By default, transformers would ask whether to run a hub's code.
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if config.model_type in (*MODEL_TYPES, "albert") and positions != "absolute":
        raise ValueError(
            f"{folder / 'config.json'}: position_embedding_type is {positions!r}, which transformers no longer has for "
            f"{config.model_type}; expected 'absolute'"
        )
    return config


def set_dropout(config: "PreTrainedConfig", rate: float, folder: Path) -> None:
    """Set every dropout rate of states and attention in a configuration, whatever the family calls it."""
    names = [
        name
        for name, value in config.to_dict().items()
        if "drop" in name and isinstance(value, int | float) and not any(part in name for part in OTHER_DROPOUT)
    ]
    if rate and not names:
        raise ValueError(
            f"{folder}: the configuration of a {config.model_type} names no dropout, so it can't be set to {rate:g}; "
            "train it with dropout 0"
        )
    for name in names:
        setattr(config, name, rate)


def with_pooling_layer(model: Any, folder: Path) -> Any:
    """Return a model with its folder's pooling layer; refuse a model whose other weights differ from the folder's."""
    whole = _load_model(folder, read_config(folder), pooler=True).eval()
    state = whole.state_dict()
    if not all(torch.equal(state[name], value.cpu()) for name, value in model.state_dict().items()):
        raise ValueError(f"{folder}: the encoder's weights are no longer those there, so its pooling layer fits none")
    return whole


def _lower_case(folder: Path, tokenizer: Any) -> None:
    from tokenizers.normalizers import Lowercase, Sequence  # lazy: slow import

    if not tokenizer.is_fast:
        raise ValueError(f"{folder}: do_lower_case, but its tokenizer has no normalizer to add that to")
    present = tokenizer.backend_tokenizer.normalizer
    tokenizer.backend_tokenizer.normalizer = Sequence([Lowercase(), *([present] if present else [])])


def first_position(model: Any) -> int:
    """Return the position of a text's first token."""
    return model.embeddings.padding_idx + 1 if model.config.model_type in OFFSET_POSITIONS else 0


def positions_of(model: Any) -> int:
    """Return the largest number of tokens that a model has positions for."""
    table = getattr(model.config, "max_position_embeddings", None)
    return table - first_position(model) if table and table > 0 else UNLIMITED


def positions_in(folder: Path) -> int:
    """Return `positions_of` a folder's model, reading only its configuration."""
    config = read_config(folder)
    table = getattr(config, "max_position_embeddings", None)
    padding = 1 if config.model_type == "mpnet" else config.pad_token_id  # whatever its configuration says
    first = padding + 1 if config.model_type in OFFSET_POSITIONS else 0
    return table - first if table and table > 0 else UNLIMITED


def _model_class(folder: Path, config: "PreTrainedConfig") -> Any:
    """Return the model class of the encoder; of an encoder-decoder, only of the encoder."""
    import transformers  # lazy: slow import

    mapping: Any = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
    if type(config) not in mapping:
        mapping = transformers.MODEL_MAPPING
    if type(config) not in mapping or (
        mapping is transformers.MODEL_MAPPING and getattr(config, "is_encoder_decoder", False)
    ):
        raise ValueError(f"{folder}: transformers has no encoder of texts for the model type {config.model_type}")
    kinds = mapping[type(config)]
    return kinds[0] if isinstance(kinds, tuple) else kinds


def _load_model(folder: Path, config: "PreTrainedConfig", pooler: bool) -> "PreTrainedModel":
    path = next((folder / name for name in (*WEIGHTS, *SHARDED) if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{folder}: holds neither {' nor '.join(WEIGHTS)}, nor the index of their shards")
    kind = _model_class(folder, config)
    has_pooler = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    if pooler and (not has_pooler or config.model_type not in MODEL_TYPES):
        raise ValueError(f"{folder}: the pooling pooler_output needs a pooling layer, {config.model_type} has none")
    try:
        model, info = kind.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the error below names them
            weights_only=True,  # a pickle that would run code is refused
            key_mapping=DATA_PARALLEL,
            **({"add_pooling_layer": pooler} if has_pooler else {}),
        )
    except OSError:
        raise
    except Exception as error:  # a file that is neither safetensors nor a pickle raises errors of many kinds
        if blocked := re.search(r"unsupported (?:global|class) (\S+)", str(error), re.IGNORECASE):
            raise ValueError(
                f"{path}: refused, as reading it would run {blocked[1]}; expected only tensors, as in model.safetensors"
            ) from error
        first = str(error).partition("\n")[0]
        if "weights_only" in first:  # torch's message advises to load it anyway
            first = "no file of tensors"
        raise ValueError(f"{path}: cut short or damaged ({first}); {REMEDY}") from error
    check_weights(path, info, model)
    return model


def check_weights(path: Path, info: dict[str, Any], model: "PreTrainedModel") -> None:
    """Refuse weights that don't match the config or aren't finite; warn of heads that are left out."""
    base, layers = model.base_model_prefix, getattr(model.config, "num_hidden_layers", math.inf)
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    advice = "take config.json and weights from the same model, and " + REMEDY
    if missing and all(name.startswith("pooler.") for name in missing):
        raise ValueError(f"{path}: holds no pooling layer ({missing[0]}), which the pooling pooler_output reads")
    if missing:
        prefix = _prefix(missing, unexpected, base)
        if prefix:
            advice = f"its names begin with {prefix!r}: save them without it"
        raise ValueError(f"{path}: {_summary(missing)} missing, which config.json expects; {advice}")
    if info["mismatched_keys"]:
        name, actual, expected = min(info["mismatched_keys"])
        raise ValueError(f"{path}: {name} has shape {list(actual)}, config.json expects {list(expected)}; {advice}")
    others = {name: name.removeprefix(f"{base}.").partition(".")[0] for name in unexpected}
    others = {name: kind for name, kind in others.items() if kind not in PRETRAINING and ".position_ids" not in name}
    more = [name for name in others if any(int(n) >= layers for n in re.findall(r"\blayer\.(\d+)\.", name))]
    if more:
        raise ValueError(f"{path}: holds {_summary(more)}, but config.json has {layers} layers; {advice}")
    inside = [name for name, kind in others.items() if kind in dict(model.named_children()) and kind not in HEADS]
    if inside:
        raise ValueError(f"{path}: holds {_summary(inside)}, which a {model.config.model_type} does not use; {advice}")
    if "pooler" in others.values():
        logger.warning("%s: left out its pooling layer, which only the pooling pooler_output uses", path)
    if parts := sorted(set(others.values()) - {"pooler"}):
        logger.warning("%s: left out what is no part of the encoder: %s", path, ", ".join(parts))
    for name, value in model.named_parameters():
        if not bool(value.isfinite().all()):
            raise ValueError(f"{path}: {name} holds numbers that are not finite; {REMEDY}")


def _summary(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more tensors" if len(names) > 1 else "")


def _prefix(missing: list[str], unexpected: list[str], base: str) -> str:
    """Return the prefix that the file puts before tensors' names, if that is why tensors are missing."""
    match = next((name for name in unexpected if name.endswith(f".{missing[0]}")), "")
    return match.removesuffix(missing[0]).removesuffix(f"{base}.")


def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer  # lazy: slow import

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # tokenizers raises Exception itself
        first = str(error).partition("\n")[0]
        raise ValueError(f"{folder}: its tokenizer can't be read ({first}); {REMEDY}") from error


def check_tokenizer(folder: Path, tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel") -> None:
    """Refuse a tokenizer that doesn't match the embedding; for BERT's relatives, also one without [CLS] and [SEP]."""
    ids = tokenizer.get_vocab()
    embedding: Any = model.get_input_embeddings()
    rows = getattr(embedding, "num_embeddings", 0)  # 0: not a table of tokens
    advice = f"put the model's own tokenizer files ({TOKENIZER_FILES}) beside its weights"
    if rows and max(ids.values(), default=-1) >= rows:
        token = max(ids, key=ids.__getitem__)
        raise ValueError(
            f"{folder}: the tokenizer's token {json.dumps(token)} has id {ids[token]}, but the embedding has {rows:,} "
            f"rows; {advice}"
        )
    if len(ids) < LEAST_FILLED * rows:
        raise ValueError(
            f"{folder}: the tokenizer has {len(ids):,} tokens, but the embedding has {rows:,} rows; {advice}"
        )
    related = model.config.model_type in MODEL_TYPES
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad")}
    if missing := [name for name, number in special.items() if number is None and (related or name == "pad")]:
        raise ValueError(f"{folder}: the tokenizer has no {', '.join(missing)} token; {advice}")
    ids_of_a = tokenizer("a")["input_ids"]
    if related and (ids_of_a[:1], ids_of_a[-1:]) != ([special["cls"]], [special["sep"]]):
        raise ValueError(f"{folder}: the tokenizer does not put its cls and sep tokens around a text; {advice}")
