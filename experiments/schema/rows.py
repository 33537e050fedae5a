"""Build rows of studies, from a run or from an untrained backbone."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Scorer, Whitened
from cse_core.run import Pretrained, Run
from experiments.schema.recipes import BACKBONES
from experiments.schema.study import Published, Row, Scale, Study

BASE, LARGE = "bert-base-uncased", "bert-large-uncased"
AS_IS = "as is"  # the `select` of an encoder that was not trained here
NO_BACKBONE = "not run: this scale has no stand-in for {}"
CORPUS_TEXTS = "fitted on the training corpus, where the published row was fitted on NLI sentences"
TRANSFER_AVG = {"transfer_avg": "Avg"}
RANK_CORPUS = 100_000  # sentences, RankEncoder's number; a scale may have fewer

# Untrained baselines by the papers' names: how the backbone is scored.
UNTRAINED: Mapping[str, Scorer] = {
    "first-last avg": Cosine("first_last_mean"),
    "last avg": Cosine("mean"),
    "[CLS]": Cosine("cls"),
}
# Those that are fitted: on the scale's corpus, or without one on each task's own sentences.
FITTED: Mapping[str, Whitened | Flowed] = {
    "whitening": Whitened(),
    "flow": Flowed(pooling="first_last_mean"),
}


def row(scale: Scale, label: str, run: Run | None, backbone: str, published: Published | None, **more: Any) -> Row:
    """Return a row of a run, or only of published numbers if the scale has no such backbone."""
    about: dict[str, Any] = {"seeds": scale.seeds_for(backbone), "select": scale.dev} | more
    if run is None:
        about["why"] = NO_BACKBONE.format(BACKBONES[backbone])
    return Row(label=label, encoder=run, backbone=backbone, published=published, **about)


def untrained_row(scale: Scale, label: str, how: str, backbone: str, published: Published | None = None) -> Row:
    """Return a row of the untrained backbone; a fitted scorer is fitted on the scale's corpus."""
    fitted = how in FITTED
    scorer = replace(FITTED[how], corpus=scale.corpus) if fitted else UNTRAINED[how]
    encoder: Pretrained | None = scale.backbones.get(backbone)
    why = (CORPUS_TEXTS if fitted else "") if encoder else NO_BACKBONE.format(BACKBONES[backbone])
    return Row(
        label=label, encoder=encoder, backbone=backbone, scorer=scorer, select=AS_IS, published=published, why=why
    )


def figure(study: Study, table: str, view: str, **changes: Any) -> Study:
    """Return a figure that draws the rows and columns of a study, named `table`; it compares nothing."""
    return replace(study, view=view, twin=table, contrasts=(), **changes)


def first_seed(rows: Iterable[Row], scale: Scale) -> tuple[Row, ...]:
    """Return the rows with the first seed only, for figures that show single vectors."""
    return tuple(replace(each, seeds=scale.seeds[:1]) for each in rows)


def with_dense_dev_scores(run: Run | None) -> Run | None:
    """Return the run with a dev score every tenth step, as in the papers' figures over steps."""
    return replace(run, eval_steps=10) if run else None


def rank_scorer(scale: Scale, weight: float = 0.1, **fields: Any) -> Ranked:
    """Return RankEncoder's scorer against this scale's corpus: with cosine (Eq. 7), or ranks only (weight 1, Eq. 2)."""
    small = scale.rescaled.get("rankencoder", {}).get(BASE, {}).get("corpus_size", RANK_CORPUS)
    about: dict[str, Any] = {"corpus": scale.corpus, "size": min(small, scale.corpus.lines), "weight": weight}
    return Ranked(**(about | fields))
