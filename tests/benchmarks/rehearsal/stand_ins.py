"""Make encoders of the papers' exact shapes: random weights, real tokenizers.

They have their own names, such as `stand-in/bert-base-uncased`, because no run on random weights may have a published
run's key. Only DiffCSE's generators have the hub's names: methods name them, and nothing is recorded of them.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cse_core.data.corpora import sentences
from cse_core.models.pretrained import TOKENIZER, resolve
from cse_core.run import Corpus
from cse_core.seeding import seed_for

OWNER, SEED = "stand-in", 42
WORDPIECES = "all-MiniLM-L6-v2"  # has the tokenizer of bert-base-uncased
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
DONE = "stand-in.json"  # written last
logger = logging.getLogger(__name__)

BASE: Mapping[str, int] = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
LARGE: Mapping[str, int] = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
WIDE = {"intermediate_size": 4 * LARGE["hidden_size"]}
ROBERTA = {"vocab_size": 50_265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTILBERT = {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}


@dataclass(frozen=True)
class StandIn:
    """An encoder's name, its kind, and the fields of its configuration that differ from the kind's defaults."""

    name: str
    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> int:
        """The number of entries of the vocabulary."""
        return self.config.get("vocab_size", 30_522)


PUBLISHED_SHAPES = {
    "bert-base-uncased": StandIn(f"{OWNER}/bert-base-uncased", "bert", BASE),
    "bert-large-uncased": StandIn(f"{OWNER}/bert-large-uncased", "bert", {**LARGE, **WIDE}),
    "roberta-base": StandIn(f"{OWNER}/roberta-base", "roberta", {**BASE, **ROBERTA}),
    "roberta-large": StandIn(f"{OWNER}/roberta-large", "roberta", {**LARGE, **WIDE, **ROBERTA}),
}
GENERATORS = (
    StandIn("distilbert-base-uncased", "distilbert", DISTILBERT),
    StandIn("distilroberta-base", "roberta", {**BASE, "num_hidden_layers": 6, **ROBERTA}),
)


def shapes(layers: int = 0) -> dict[str, StandIn]:
    """Return the stand-ins by the papers' names; with `layers`, of that depth and with names that say so."""
    if not layers:
        return dict(PUBLISHED_SHAPES)
    return {
        name: StandIn(f"{OWNER}-{layers}-layers/{name}", shape.kind, {**shape.config, "num_hidden_layers": layers})
        for name, shape in PUBLISHED_SHAPES.items()
    }


def make_stand_ins(folder: Path, corpus: Corpus, chosen: Iterable[StandIn], data: Path | None = None) -> None:
    """Make those of the encoders that are not in the folder; refuse a folder whose encoders have other shapes.

    Byte-level pieces are learnt from `corpus`.
    """
    for shape in chosen:
        target, content = folder / shape.name, {"kind": shape.kind, "seed": SEED, **shape.config}
        if (target / DONE).is_file():
            if json.loads((target / DONE).read_text()) != content:
                raise ValueError(f"{target}: a stand-in of another shape or seed; name another folder")
            continue
        logger.info("making %s", target)
        target.mkdir(parents=True, exist_ok=True)
        _save_tokenizer(shape, target, folder, corpus, data)
        _save_weights(shape, target)
        (target / DONE).write_text(json.dumps(content))


def _save_weights(shape: StandIn, target: Path) -> None:
    """Save a masked-language model, as the hub does: DiffCSE's generators and MLM read the head too."""
    import transformers  # lazy: slow import

    transformers.logging.disable_progress_bar()
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2} if shape.kind == "roberta" else {}
    config = transformers.AutoConfig.for_model(shape.kind, **ids, **shape.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(SEED, shape.name))
        transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(target)


def _save_tokenizer(shape: StandIn, target: Path, folder: Path, corpus: Corpus, data: Path | None) -> None:
    """Save a tokenizer as in the hub's folders, with the model's maximum length."""
    roberta = shape.kind == "roberta"
    source = _byte_level(folder, shape.words, corpus, data) if roberta else resolve(WORDPIECES, only_tokenizer=True)
    for name in TOKENIZER:
        if (source / name).is_file():
            (target / name).write_bytes((source / name).read_bytes())
    settings = target / "tokenizer_config.json"
    about = {"tokenizer_class": "RobertaTokenizer"} if roberta else json.loads(settings.read_text())
    settings.write_text(json.dumps(about | {"model_max_length": 512}))


def _byte_level(folder: Path, words: int, corpus: Corpus, data: Path | None) -> Path:
    """Train a byte-level vocabulary of RoBERTa's size once, as no package has RoBERTa's own; return its folder."""
    from tokenizers import ByteLevelBPETokenizer  # lazy: slow import

    target = folder / f"byte-level-{words}"
    if target.is_dir():
        return target
    learner = ByteLevelBPETokenizer()
    texts = (line["text"] for line in sentences(corpus, data))
    learner.train_from_iterator(
        texts, vocab_size=words, min_frequency=1, special_tokens=list(ROBERTA_SPECIALS), show_progress=False
    )
    if (size := learner.get_vocab_size()) != words:
        raise ValueError(f"{corpus}: holds {size:,} byte-level pieces, expected {words:,}; name a longer corpus")
    with TemporaryDirectory(dir=folder) as temporary:
        (made := Path(temporary) / target.name).mkdir()
        learner.save_model(str(made))
        made.rename(target)
    return target
