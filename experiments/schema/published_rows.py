"""Build all rows of a published table: the paper's methods, baselines that cse_core has, and rows left as printed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.methods import METHODS
from cse_core.run import Corpus, Pretrained
from experiments.schema.recipes import BACKBONES, RUNS, MakeRun, simcse_run
from experiments.schema.rows import AS_IS, FITTED, NO_BACKBONE, UNTRAINED, row, untrained_row
from experiments.schema.study import Published, Row, Scale, published_lines

IMPORTED = "imported: the paper took this row from elsewhere"
TRAINED: Mapping[str, MakeRun] = {
    title: RUNS[name]
    for title, name in {"SimCSE": "simcse", "DiffCSE": "diffcse", "PromptBERT": "promptbert", "SNCSE": "sncse"}.items()
}
BASELINES = {  # names in the tables and in cse_core
    "ESimCSE": "esimcse",
    "MoCoSE": "mocose",
    "ConSERT": "consert",
    "CT-BERT": "ct",
    "IS-BERT": "isbert",
    "DCLR": "dclr",
    "PCL": "pcl",
    "ArcCSE": "arccse",
    "L2P-CSR": "l2pcsr",
    "MixCSE": "mixcse",  # which no table prints
}
# DCLR's complement and L2P-CSR's start get the row's seed, so that seeds vary all of a method.
SCORING: Mapping[str, Mapping[str, Any]] = {
    "consert": {"scorer": Cosine("top2_mean")},
    "dclr": {"vary": "all"},
    "l2pcsr": {"vary": "all"},
}
NOTES = {
    "esimcse": "in the published runs the slow encoder started from random weights, by a slip of the released code",
    "mocose": "the published checkpoint was chosen on the test sets; its transfer scores are of dev sets",
    "consert": "trained on sentences of the test sets, in the paper and here",
}
NO_RECIPE = "not run: no source states settings of {} for {}"
# Rows that stay as printed, each with its reason.
NOT_BUILT = {
    "PaSeR": "the rule that picks its phrases is in neither paper nor code",
    "DeCLUTR": "trained on spans of documents; this project has only sentences",
    "USE": "trained on web texts that are not public, and on labels",
    "Skip-thought": "trained on books that are no longer distributed",
}
TRANSDUCTIVE = ", transductive"
KNOWS_TESTS = "fitted on the test sentences of each task, without gold scores; outside every comparison of methods"
ON_CORPUS = "fitted on the training corpus"
GLOVE = Pretrained("glove-6b-50d", "e5fa03ea3cd4ecfdace4444e0da43d314af2945f8da95b3e48ab064f3cc688fd")
GLOVE_INSTEAD = "GloVe 6B in 50 dimensions, which are not the published row's vectors"


def rows_of(
    scale: Scale, table: str, ours: Mapping[str, MakeRun], columns: Mapping[str, str] | None = None, **more: Any
) -> dict[tuple[str, str], Row]:
    """Return every row of a published table by its method and backbone, as the table spells them.

    A row is run if its method is one of `ours` or another one in cse_core, and the scale has its backbone.
    """
    makers = {**TRAINED, **ours}
    rows: dict[tuple[str, str], Row] = {}
    for backbone, method, variant in lines_of(table):
        published = Published(table, backbone, method, variant, columns or {})
        name = next((name for name, title in BACKBONES.items() if title == backbone), "")
        label = f"{method} {backbone}" if name else method
        if name and method in {**UNTRAINED, **FITTED}:
            made = untrained_row(scale, label, method, name, published)
        elif name and method in makers and name in scale.backbones:
            made = row(scale, label, makers[method](scale, name), name, published, **more)
        elif name and method in makers:
            made = row(scale, label, None, name, published)
        elif name and method in BASELINES:
            made = baseline_row(scale, label, method, name, published)
        elif method == "GloVe avg":
            made = glove_row(label, published)
        else:
            why = f"imported: {NOT_BUILT[method]}" if method in NOT_BUILT else IMPORTED
            made = Row(label=label, encoder=None, backbone=name, published=published, why=why)
        rows[method, backbone] = made
    return rows | _other_fits(scale, rows)


def _other_fits(scale: Scale, rows: Mapping[tuple[str, str], Row]) -> dict[tuple[str, str], Row]:
    """Return, for each fitted baseline that is run, its fit on the test sentences, and both fits on top of SimCSE.

    No comparison of methods includes them: a fit on test sentences uses data that no other row uses.
    """
    more: dict[tuple[str, str], Row] = {}
    for (how, title), line in rows.items():
        if how not in FITTED or line.encoder is None:
            continue
        simcse = simcse_run(scale, line.backbone)
        untrained = Row(label=f"{line.label}{TRANSDUCTIVE}", encoder=line.encoder, backbone=line.backbone, select=AS_IS)
        more[f"{how}{TRANSDUCTIVE}", title] = replace(untrained, scorer=FITTED[how], note=KNOWS_TESTS)
        for suffix, corpus, note in (("", scale.corpus, ON_CORPUS), (TRANSDUCTIVE, None, KNOWS_TESTS)):
            label, scorer = f"SimCSE {title}, {how}{suffix}", _on_cls(scale, how, corpus)
            trained = row(scale, label, simcse, line.backbone, None, scorer=scorer, note=note)
            more[f"SimCSE, {how}{suffix}", title] = trained
    return more


def _on_cls(scale: Scale, how: str, corpus: Corpus | None) -> Scorer:
    """Return a fitted scorer of trained [CLS] vectors; their last directions hold too little to be whitened."""
    half = {"dims": (scale.width or 768) // 2} if how == "whitening" else {}
    return replace(FITTED[how], pooling="cls", corpus=corpus, **half)


def lines_of(table: str) -> Iterable[tuple[str, str, str]]:
    """Return the backbone, method and variant of each row of a published table, in its order."""
    return dict.fromkeys((line["backbone"], line["method"], line["variant"]) for line in published_lines(table))


def baseline_row(
    scale: Scale, label: str, title: str, backbone: str, published: Published | None = None, **more: Any
) -> Row:
    """Return the row of a baseline's run, by its name in the tables; without a run, only of its published numbers.

    There is no run if the scale does not have the backbone, or if no source states the settings.
    """
    name = BASELINES[title]
    about: dict[str, Any] = {"backbone": backbone, "published": published, "select": scale.dev}
    about |= {"seeds": scale.seeds_for(backbone), "note": NOTES.get(name, ""), **SCORING.get(name, {})} | more
    if backbone not in METHODS[name].recipes():
        return Row(label=label, encoder=None, **about, why=NO_RECIPE.format(title, BACKBONES[backbone]))
    run = RUNS[name](scale, backbone)
    if run is None:
        about["why"] = NO_BACKBONE.format(BACKBONES[backbone])
    return Row(label=label, encoder=run, **about)


def glove_row(label: str, published: Published | None) -> Row:
    """Return the row of averaged word vectors, which need no training."""
    return Row(label=label, encoder=GLOVE, select=AS_IS, published=published, why=GLOVE_INSTEAD)
