"""Rows of studies: of a run, of an untrained backbone, and all rows of a published table."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Scorer, Whitened
from cse_core.run import Pretrained, Run
from experiments.schema.recipes import BACKBONES, RUNS, MakeRun
from experiments.schema.study import Published, Row, Scale, Study, published_lines

BASE, LARGE = "bert-base-uncased", "bert-large-uncased"
AS_IS = "as is"  # the `select` of an encoder that was not trained here
NO_BACKBONE = "not run: this scale has no stand-in for {}"
IMPORTED = "imported: the paper took this row from elsewhere"
TARGET_TEXTS = "fitted on the task's own sentences, where the published row was fitted on NLI sentences"
TRANSFER_AVG = {"transfer_avg": "Avg"}
RANK_CORPUS = 100_000  # sentences, RankEncoder's number; a scale may have fewer

# Untrained baselines by the papers' names: how the backbone is scored, and what is substituted for the paper's set-up.
UNTRAINED: Mapping[str, tuple[Scorer, str]] = {
    "first-last avg": (Cosine("first_last_mean"), ""),
    "last avg": (Cosine("mean"), ""),
    "[CLS]": (Cosine("cls"), ""),
    "whitening": (Whitened(), TARGET_TEXTS),
    "flow": (Flowed(pooling="first_last_mean"), TARGET_TEXTS),
}
TRAINED: Mapping[str, MakeRun] = {
    title: RUNS[name]
    for title, name in {"SimCSE": "simcse", "DiffCSE": "diffcse", "PromptBERT": "promptbert", "SNCSE": "sncse"}.items()
}


def row(scale: Scale, label: str, run: Run | None, backbone: str, published: Published | None, **more: Any) -> Row:
    """Return a row of a run, or of the published numbers only where the scale lacks the backbone."""
    about: dict[str, Any] = {"seeds": scale.seeds_for(backbone), "select": scale.dev} | more
    if run is None:
        about["why"] = NO_BACKBONE.format(BACKBONES[backbone])
    return Row(label=label, encoder=run, backbone=backbone, published=published, **about)


def untrained_row(scale: Scale, label: str, how: str, backbone: str, published: Published | None = None) -> Row:
    """Return a row of the untrained backbone."""
    scorer, substitute = UNTRAINED[how]
    encoder: Pretrained | None = scale.backbones.get(backbone)
    why = substitute if encoder else NO_BACKBONE.format(BACKBONES[backbone])
    return Row(
        label=label, encoder=encoder, backbone=backbone, scorer=scorer, select=AS_IS, published=published, why=why
    )


def rows_of(
    scale: Scale, table: str, ours: Mapping[str, MakeRun], columns: Mapping[str, str] | None = None, **more: Any
) -> dict[tuple[str, str], Row]:
    """Return every row of a published table by its method and backbone, as the table spells them.

    A row is run if its method is one of `ours` or another that the core has, and the scale has its backbone.
    """
    makers = {**TRAINED, **ours}
    rows: dict[tuple[str, str], Row] = {}
    for backbone, method, variant in lines_of(table):
        published = Published(table, backbone, method, variant, columns or {})
        name = next((name for name, title in BACKBONES.items() if title == backbone), "")
        label = f"{method} {backbone}" if name else method
        if name and method in UNTRAINED:
            made = untrained_row(scale, label, method, name, published)
        elif name and method in makers and name in scale.backbones:
            made = row(scale, label, makers[method](scale, name), name, published, **more)
        elif name and method in makers:
            made = row(scale, label, None, name, published)
        else:
            made = Row(label=label, encoder=None, backbone=name, published=published, why=IMPORTED)
        rows[method, backbone] = made
    return rows


def lines_of(table: str) -> Iterable[tuple[str, str, str]]:
    """Return the backbone, method and variant of each row of a published table, in its order."""
    return dict.fromkeys((line["backbone"], line["method"], line["variant"]) for line in published_lines(table))


def figure(study: Study, name: str, source: str, view: str, **changes: Any) -> Study:
    """Return a figure that draws the rows and columns of a table; it adds no comparisons."""
    return replace(study, name=name, source=source, view=view, twin=study.name, comparisons=(), **changes)


def first_seed(rows: Iterable[Row], scale: Scale) -> tuple[Row, ...]:
    """Return the rows with the first seed only, for figures that show single vectors."""
    return tuple(replace(each, seeds=scale.seeds[:1]) for each in rows)


def with_dense_dev_scores(run: Run | None) -> Run | None:
    """Return the run with a dev score every tenth step, as in the papers' figures over steps."""
    return replace(run, eval_steps=10) if run else None


def rank_scorer(scale: Scale, weight: float = 0.1, **fields: Any) -> Ranked:
    """Return RankEncoder's scorer against this scale's corpus: with cosine (Eq. 7), or ranks only (weight 1, Eq. 2)."""
    small = scale.rescaled.get("rankencoder", {}).get(BASE, {}).get("corpus_size", RANK_CORPUS)
    about: dict[str, Any] = {"corpus": scale.corpus, "size": small, "weight": weight}
    return Ranked(**(about | fields))
