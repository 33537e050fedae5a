"""WhitenedCSE's tables and figures as studies (Zhuo et al., ACL 2023).

In the paper's text, one pass of the encoder is whitened several times (shared views). The released code encodes a
sentence once for each view (dropout views). Every table shows both; the published numbers are next to shared views.
"""

from itertools import pairwise
from typing import Any

from experiments.schema.columns import STS, TRANSFER
from experiments.schema.contrasts import Contrast
from experiments.schema.hypotheses import beats, equals, is_below
from experiments.schema.published_rows import lines_of, rows_of
from experiments.schema.recipes import BACKBONES, RUNS, simcse_run
from experiments.schema.rows import BASE, LARGE, TRANSFER_AVG, row, untrained_row, with_dense_dev_scores
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

WHITENED = RUNS["whitenedcse"]
DROPOUT = ", dropout views"
VIEWS = {"": "shared", DROPOUT: "dropout"}
CHANNELS = (2, 3, 4, 6, 8, 12, 16, 24)  # in each group at 768 dimensions, for k of 384 down to 32
NO_GROUPS = "not run: {} dimensions have no groups of {}"


def _both_readings(scale: Scale, label: str, published: Published | None, short: str, **fields: Any) -> dict[str, Row]:
    """Return a row for each reading of the paper, by its kind of views."""
    rows = {}
    for suffix, views in VIEWS.items():
        run = WHITENED(scale, BASE, views=views, **fields)
        about = published if views == "shared" else None
        rows[views] = row(scale, label + suffix, run, BASE, about, short=f"W {short}{' d' if suffix else ''}")
    return rows


def _with_dropout_views(scale: Scale, rows: dict[tuple[str, str], Row], *backbones: str) -> dict[tuple[str, str], Row]:
    """Add rows of WhitenedCSE with dropout views to a published table's rows."""
    for name in backbones:
        if name in scale.backbones:
            run, title = WHITENED(scale, name, views="dropout"), BACKBONES[name]
            rows["dropout", title] = row(scale, f"WhitenedCSE {title}{DROPOUT}", run, name, None)
    return rows


def _against_simcse(rows: dict[tuple[str, str], Row], column: str, titles: tuple[str, ...]) -> tuple[Contrast, ...]:
    """Declare for both readings that WhitenedCSE beats SimCSE."""
    ours = {"shared": "WhitenedCSE", "dropout": "dropout"}
    return tuple(
        beats(rows[ours[views], title], rows["SimCSE", title], claim="W1", column=column)
        for title in titles
        for views in VIEWS.values()
    )


def table1(scale: Scale) -> Study:
    """STS; the paper's text announces RoBERTa-large, but its table has no such row."""
    rows = rows_of(scale, "whitenedcse_table1", {"WhitenedCSE": WHITENED})
    rows = _with_dropout_views(scale, rows, *BACKBONES)
    titles = tuple(BACKBONES[name] for name in (BASE, LARGE, "roberta-base") if name in scale.backbones)
    return Study(
        question="Is WhitenedCSE better than SimCSE on STS?",
        rows=tuple(rows.values()),
        columns=(*STS, "sts_avg"),
        contrasts=_against_simcse(rows, "sts_avg", titles),
    )


def table2(scale: Scale) -> Study:
    """Transfer."""
    rows = rows_of(scale, "whitenedcse_table2", {"WhitenedCSE": WHITENED}, TRANSFER_AVG)
    rows = _with_dropout_views(scale, rows, BASE, LARGE)
    return Study(
        question="Is WhitenedCSE better than SimCSE on transfer?",
        rows=tuple(rows.values()),
        columns=(*TRANSFER, "transfer_avg"),
        contrasts=_against_simcse(rows, "transfer_avg", ("BERT-base", "BERT-large")),
    )


KINDS = {
    "PCA-whitening": "pca",
    "ZCA-whitening": "zca",
    "Group-whitening": "group",
    "Shuffled-Group-whitening": "shuffled_group",
}


def table3(scale: Scale) -> Study:
    """Kinds of whitening, three views each."""
    table, none = "whitenedcse_table3", "none (SimCSE)"
    simcse = row(scale, none, simcse_run(scale, BASE), BASE, Published(table, "BERT-base", "WhitenedCSE", none))
    pca, zca, group, shuffled = (
        _both_readings(scale, name, Published(table, "BERT-base", "WhitenedCSE", name), kind[:6], whitening=kind)
        for name, kind in KINDS.items()
    )
    return Study(
        question="Which kind of whitening is best?",
        rows=(simcse, *pca.values(), *zca.values(), *group.values(), *shuffled.values()),
        contrasts=tuple(
            beats(better, worse, claim="W2")
            for views in VIEWS.values()
            for better, worse in pairwise((shuffled[views], group[views], simcse, zca[views], pca[views]))
        ),
    )


def table4(scale: Scale) -> Study:
    """The number of groups (the paper's k, given here as channels a group), with and without shuffling."""
    width = scale.width or 768
    rows, contrasts = [], []
    for channels in (*CHANNELS, *([32] if width < 768 else [])):
        shuffled, plain = (_group_rows(scale, channels, shuffle=shuffle) for shuffle in (True, False))
        rows += [*shuffled.values(), *plain.values()]
        if width % channels == 0:
            contrasts += [beats(shuffled[views], plain[views], claim="W3") for views in VIEWS.values()]
    return Study(
        question="Does shuffling help at every number of groups?",
        rows=tuple(rows),
        contrasts=tuple(contrasts),
    )


def _group_rows(scale: Scale, channels: int, *, shuffle: bool) -> dict[str, Row]:
    """Return the rows of a group size, by reading; one row without a run if the width is not a multiple of it."""
    width, how = scale.width or 768, "shuffled" if shuffle else "not shuffled"
    label, kind = f"{channels} channels a group, {how}", "shuffled_group" if shuffle else "group"
    published, short = None, f"{channels} {kind[:2]}"
    if channels in CHANNELS:
        published = Published("whitenedcse_table4", "BERT-base", "WhitenedCSE", f"k={768 // channels} {how}")
        short = f"{channels} {how[:2]}"
    if width % channels:
        why = NO_GROUPS.format(width, channels)
        return {"": Row(label=label, encoder=None, backbone=BASE, published=published, why=why)}
    return _both_readings(scale, label, published, short, whitening=kind, groups=width // channels)


def table5(scale: Scale) -> Study:
    """The number of positives, including the anchor."""

    def rows_with(positives: int) -> dict[str, Row]:
        label = f"m={positives} positives"
        published = Published("whitenedcse_table5", "BERT-base", "WhitenedCSE", label)
        return _both_readings(scale, label, published, f"m{positives}", positives=positives)

    two, three, four, five = map(rows_with, (2, 3, 4, 5))
    return Study(
        question="Are more than two positives better than two?",
        rows=tuple(row for rows in (two, three, four, five) for row in rows.values()),
        contrasts=tuple(
            beats(more[views], two[views], claim="W4") for views in VIEWS.values() for more in (three, four, five)
        ),
    )


def table6(scale: Scale) -> Study:
    """Ablation of the modules."""
    variants = [variant for _, _, variant in lines_of("whitenedcse_table6")]
    published = {name: Published("whitenedcse_table6", "BERT-base", "WhitenedCSE", name) for name in variants}

    def more_views(label: str, positives: int) -> Row:
        run = WHITENED(scale, BASE, whitening="none", views="dropout", positives=positives)
        return row(scale, label, run, BASE, published[label], short=f"W drop m{positives}")

    base_label, whitened_label, three_label, four_label, full_label = variants
    simcse = row(scale, base_label, simcse_run(scale, BASE), BASE, published[base_label])
    whitened = _both_readings(scale, whitened_label, published[whitened_label], "m2", positives=2)
    three, four = more_views(three_label, 3), more_views(four_label, 4)
    full = _both_readings(scale, full_label, published[full_label], "full")
    return Study(
        question="Do extra positives help only with shuffled group whitening?",
        rows=(simcse, *whitened.values(), three, four, *full.values()),
        contrasts=(
            *(equals(more, simcse, claim="W5") for more in (three, four)),
            *(beats(full[views], whitened[views], claim="W5") for views in VIEWS.values()),
        ),
    )


def objectives(scale: Scale) -> Study:
    """Section 3.3: the sum over positives outside or inside the logarithm."""
    kinds = {"outside (Eq. 7)": "outside", "inside (Eq. 8 as meant)": "inside", "Eq. 8 as printed": "inside_printed"}
    outside, inside, printed = (
        _both_readings(scale, name, None, kind[:9], objective=kind) for name, kind in kinds.items()
    )
    return Study(
        source="WhitenedCSE, Section 3.3",
        question="Is the sum outside the logarithm better than inside?",
        rows=tuple(row for rows in (outside, inside, printed) for row in rows.values()),
        # As printed, Eq. 8 pushes positives apart: a misprint, which no claim is about.
        contrasts=tuple(beats(outside[views], inside[views], claim="W7") for views in VIEWS.values()),
    )


def figure1(scale: Scale) -> Study:
    """Dev sentences in two dimensions, the density on the sphere at each, and the positives of a few sentences."""
    rows = [untrained_row(scale, "untrained, mean", "last avg", BASE)]
    rows += [row(scale, "SimCSE", simcse_run(scale, BASE), BASE, None)]
    rows += _both_readings(scale, "WhitenedCSE", None, "full").values()
    return Study(
        question="How evenly do sentences lie, how near are pairs that people call the same, and how far apart are the "
        "positives of one sentence?",
        rows=tuple(rows),
        columns=(
            "stsb_dev_projection",
            *("stsb_dev_uniformity", "stsb_dev_pair_mean", "stsb_dev_pair_sd"),
            *("spread_dropout", "spread_whitened", "spread_both"),
        ),
        metric="trustworthiness",
        view="spaces",
        caption="The paper names neither its projection, nor its sentences, nor where it takes the positives.",
    )


def figure3(scale: Scale) -> Study:
    """Alignment and uniformity over steps."""
    simcse = row(scale, "SimCSE", with_dense_dev_scores(simcse_run(scale, BASE)), BASE, None)
    ours = {
        views: row(scale, f"WhitenedCSE{suffix}", with_dense_dev_scores(WHITENED(scale, BASE, views=views)), BASE, None)
        for suffix, views in VIEWS.items()
    }
    return Study(
        question="Has WhitenedCSE better alignment and uniformity than SimCSE, uniformity from the start?",
        rows=(simcse, *ours.values()),
        columns=("alignment", "uniformity"),
        contrasts=tuple(
            # By curves, at equal steps: checkpoints are chosen at different ones.
            is_below(ours[views], simcse, claim="W6", column=column)
            for column in ("last_alignment", "last_uniformity", "first_uniformity")
            for views in VIEWS.values()
        ),
        view="curves",
    )


STUDIES: dict[str, StudyAt] = named(
    {
        "whitenedcse-table1": table1,
        "whitenedcse-table2": table2,
        "whitenedcse-table3": table3,
        "whitenedcse-table4": table4,
        "whitenedcse-table5": table5,
        "whitenedcse-table6": table6,
        "whitenedcse-objective": objectives,
        "whitenedcse-figure1": figure1,
        "whitenedcse-figure3": figure3,
    }
)
