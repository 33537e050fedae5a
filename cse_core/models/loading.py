"""Read a model and its tokenizer from a folder, and refuse what does not fit together.

By default, transformers fills tensors that a file lacks with random numbers, drops layers that the config does not
have, and makes a tokenizer of five tokens where there are no tokenizer files: each without an error.
"""

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cse_core.models.pretrained import WEIGHTS
from cse_core.models.sentence_transformers_format import REMEDY, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")  # positions start after the padding's index
WITHOUT_POOLER = ("distilbert", "electra")  # have no pooling layer that could be left out
MODEL_TYPES = ("bert", *OFFSET_POSITIONS, *WITHOUT_POOLER)
JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json")
TOKENIZER_FILES = "tokenizer.json, vocab.txt, or vocab.json with merges.txt"
HEADS = {  # what released files hold besides the encoder, by the first part of the tensors' names
    *("cls", "lm_head", "mlp", "pooler", "classifier", "qa_outputs", "discriminator", "generator"),
    *("vocab_transform", "vocab_layer_norm", "vocab_projector", "discriminator_predictions", "generator_predictions"),
    "generator_lm_head",
}
DATA_PARALLEL = {r"^module\.": ""}  # DataParallel's model is its `module`
LEAST_FILLED = 0.9  # share of embedding rows that have a token; padding of the matrix adds a few per cent


def load(folder: Path, dropout: float | None = None) -> "tuple[PreTrainedModel, PreTrainedTokenizerFast]":
    """Return the model in evaluation mode, in fp32 and without a pooling layer, and its tokenizer.

    `dropout` replaces the config's rates.
    """
    import transformers  # lazy: slow import

    transformers.logging.set_verbosity_error()  # each load reports the unused MLM head of a backbone as a problem
    transformers.logging.disable_progress_bar()
    for name in JSON_FILES:
        if (folder / name).is_file():
            read_json(folder / name)
    # By default, transformers would ask whether to run a hub's code.
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if config.model_type not in MODEL_TYPES:
        raise ValueError(f"{folder}: expected a model type among {', '.join(MODEL_TYPES)}, found {config.model_type}")
    if dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    model = _load_model(folder, config)
    tokenizer = _load_tokenizer(folder)
    embedding: Any = model.get_input_embeddings()
    _check_tokenizer(folder, tokenizer, embedding.num_embeddings)
    return model.eval(), tokenizer


def _load_model(folder: Path, config: "PreTrainedConfig") -> "PreTrainedModel":
    from transformers import AutoModel  # lazy: slow import

    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{folder}: holds neither {' nor '.join(WEIGHTS)}; sharded weights are not read")
    pooler = {"add_pooling_layer": False} if config.model_type not in WITHOUT_POOLER else {}
    try:
        model, info = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the error below names them
            weights_only=True,  # a pickle that would run code is refused
            key_mapping=DATA_PARALLEL,
            **pooler,
        )
    except OSError:
        raise
    except Exception as error:  # what is no safetensors file or pickle raises errors of many kinds
        if blocked := re.search(r"unsupported (?:global|class) (\S+)", str(error), re.IGNORECASE):
            raise ValueError(
                f"{path}: refused, as reading it would run {blocked[1]}; expected only tensors, as in model.safetensors"
            ) from error
        first = str(error).partition("\n")[0]
        if "weights_only" in first:  # torch advises to read it all the same
            first = "no file of tensors"
        raise ValueError(f"{path}: cut short or damaged ({first}); {REMEDY}") from error
    _check_weights(path, info, config.num_hidden_layers, model.base_model_prefix)
    return model


def _check_weights(path: Path, info: dict[str, Any], layers: int, base: str) -> None:
    """Refuse weights that are not those of the config; unused heads and poolers are allowed, others with a warning."""
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    advice = "take config.json and weights from the same model, and " + REMEDY
    if missing:
        prefix = _prefix(missing, unexpected, base)
        if prefix:
            advice = f"its names begin with {prefix!r}: save them without it"
        raise ValueError(f"{path}: {_summary(missing)} missing, which config.json expects; {advice}")
    if info["mismatched_keys"]:
        name, actual, expected = min(info["mismatched_keys"])
        raise ValueError(f"{path}: {name} has shape {list(actual)}, config.json expects {list(expected)}; {advice}")
    others = {name: name.removeprefix(f"{base}.").partition(".")[0] for name in unexpected}
    others = {name: part for name, part in others.items() if part not in HEADS and not name.endswith(".position_ids")}
    more = [name for name in others if any(int(n) >= layers for n in re.findall(r"\blayer\.(\d+)\.", name))]
    if more:
        raise ValueError(f"{path}: holds {_summary(more)}, but config.json has {layers} layers; {advice}")
    if others:
        parts = ", ".join(sorted(set(others.values())))
        logger.warning("%s: left out what is no part of the encoder: %s", path, parts)


def _summary(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more tensors" if len(names) > 1 else "")


def _prefix(missing: list[str], unexpected: list[str], base: str) -> str:
    """Return what precedes a missing tensor's name in the file, if that is why it is missing."""
    match = next((name for name in unexpected if name.endswith(f".{missing[0]}")), "")
    return match.removesuffix(missing[0]).removesuffix(f"{base}.")


def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer  # lazy: slow import

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # tokenizers raises Exception itself
        first = str(error).partition("\n")[0]
        raise ValueError(f"{folder}: its tokenizer can't be read ({first}); {REMEDY}") from error


def _check_tokenizer(folder: Path, tokenizer: "PreTrainedTokenizerFast", rows: int) -> None:
    """Refuse a tokenizer that is not the embedding's, or that does not put [CLS] and [SEP] around a text."""
    ids = tokenizer.get_vocab()
    advice = f"put the model's own tokenizer files ({TOKENIZER_FILES}) beside its weights"
    if max(ids.values(), default=-1) >= rows:
        token = max(ids, key=ids.__getitem__)
        raise ValueError(
            f"{folder}: the tokenizer's token {json.dumps(token)} has id {ids[token]}, but the embedding has {rows:,} "
            f"rows; {advice}"
        )
    if len(ids) < LEAST_FILLED * rows:
        raise ValueError(
            f"{folder}: the tokenizer has {len(ids):,} tokens, but the embedding has {rows:,} rows; {advice}"
        )
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad")}
    missing = [name for name, number in special.items() if number is None]
    if missing:
        raise ValueError(f"{folder}: the tokenizer has no {', '.join(missing)} token; {advice}")
    ids_of_a = tokenizer("a")["input_ids"]
    if (ids_of_a[:1], ids_of_a[-1:]) != ([special["cls"]], [special["sep"]]):
        raise ValueError(f"{folder}: the tokenizer does not put its cls and sep tokens around a text; {advice}")
