"""Tiny encoders of many families with random weights and wiki-tiny's tokenizer, in folders of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import normalizers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    T5EncoderModel,
)

from cse_core.models.pretrained import ASSETS

PACKED = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
PADDED = ("mpnet", "distilbert")
OTHERS = ("albert", "deberta-v2", "modernbert", "t5")
FAMILIES = (*PACKED, *PADDED, *OTHERS)
WIDTH, POSITIONS = 32, 48


def tokenizer(*, cased: bool = False) -> Any:
    loaded: Any = AutoTokenizer.from_pretrained(ASSETS / "wiki-tiny")
    if cased:  # not a BertTokenizer, which would set its own normalizer again
        special = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}
        loaded.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
        loaded = PreTrainedTokenizerFast(tokenizer_object=loaded.backend_tokenizer, **special)
    loaded.model_max_length = POSITIONS
    return loaded


def model(family: str, seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    size = {"vocab_size": 16_384, "pad_token_id": 0, "intermediate_size": 48, "max_position_embeddings": POSITIONS}
    layers = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}
    special: dict[str, dict[str, Any]] = {
        "distilbert": {"dim": WIDTH, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
        "electra": {"embedding_size": 16},
        "albert": {"embedding_size": 16},
        "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        "modernbert": {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        "t5": {"d_model": WIDTH, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2, "eos_token_id": 2},
    }
    # Positions start after the padding's index, which is always 1 in MPNet.
    size["max_position_embeddings"] += {"mpnet": 2}.get(family, int(family in ("roberta", "xlm-roberta", "camembert")))
    if family in ("distilbert", "t5"):
        layers = {}
        size = {name: size[name] for name in ("vocab_size", "pad_token_id")}
        if family == "distilbert":
            size["max_position_embeddings"] = POSITIONS
    config: Any = AutoConfig.for_model(family, **(size | layers | special.get(family, {}) | changes))
    made = T5EncoderModel(config) if family == "t5" else AutoModel.from_config(config)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.mul_(3)  # so that vectors differ
    return made.eval()


def plain_folder(path: Path, family: str, *, cased: bool = False, **changes: Any) -> Path:
    """A folder that transformers can open, without sentence-transformers' modules."""
    model(family, **changes).save_pretrained(path)
    tokenizer(cased=cased).save_pretrained(path)
    return path


def modules_folder(path: Path, plain: Path, pooling: Any, *more: Any, width: int = WIDTH) -> Path:
    """A plain folder's model with a Pooling and more modules, as sentence-transformers saves them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    parts = [Transformer(str(plain)), Pooling(width, pooling_mode=pooling), *more]
    SentenceTransformer(modules=parts, device="cpu").save(str(path), create_model_card=False)
    return path


def change(path: Path, **fields: Any) -> None:
    """Change fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
