"""Unsupervised sentence embeddings: methods, training and evaluation, without sweeps, tracking or plots.

Usual axis letters of tensors: n batch, d embedding, t tokens, k list, v views, g groups, p positives, N corpus.
Similarities are cosines unless said otherwise; losses are means over the batch; scores lie in [0, 1].

`from cse_core import Encoder, evaluate, train` is what a notebook needs; docs/api.md shows it. A name's module is
imported when the name is first used, so `import cse_core` loads neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in EXPORTS, for editors and type checkers
    from cse_core.api import Trained, evaluate, export, make_batch, train
    from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Whitened
    from cse_core.functional.contrastive import cosine_matrix, info_nce
    from cse_core.methods import (
        METHODS,
        MLM,
        SNCSE,
        CompCSE,
        DiffCSE,
        PromptBERT,
        RankCSE,
        RankEncoder,
        SimCSE,
        WhitenedCSE,
    )
    from cse_core.methods.rankcse import Teacher, consistency, list_mle, list_net
    from cse_core.models.encoder import Encoder
    from cse_core.run import Corpus, Pretrained, Run

__version__ = "0.3.0"  # pyproject.toml reads it here
EXPORTS = {
    "cse_core.api": ("Trained", "evaluate", "export", "make_batch", "train"),
    "cse_core.evaluation.scorers": ("Cosine", "Flowed", "Ranked", "Whitened"),
    "cse_core.functional.contrastive": ("cosine_matrix", "info_nce"),
    "cse_core.methods": (
        *("METHODS", "CompCSE", "DiffCSE", "MLM", "PromptBERT", "RankCSE", "RankEncoder", "SimCSE", "SNCSE"),
        "WhitenedCSE",
    ),
    "cse_core.methods.rankcse": ("Teacher", "consistency", "list_mle", "list_net"),
    "cse_core.models.encoder": ("Encoder",),
    "cse_core.run": ("Corpus", "Pretrained", "Run"),
}
_MODULES = {name: module for module, names in EXPORTS.items() for name in names}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
