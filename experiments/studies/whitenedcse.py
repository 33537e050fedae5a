"""WhitenedCSE's tables and figures as studies (Zhuo et al., ACL 2023).

The paper's text whitens one pass of the encoder several times (shared views); its released code encodes a sentence
once for each view (dropout views). Every table shows both; the published numbers stand beside the text's.
"""

from itertools import pairwise
from typing import Any

from experiments.schema.columns import STS, TRANSFER
from experiments.schema.hypotheses import Comparison, Untested
from experiments.schema.recipes import BACKBONES, RUNS, simcse_run
from experiments.schema.rows import BASE, LARGE, TRANSFER_AVG, fine, first_seed, lines_of, row, rows_of, untrained
from experiments.schema.study import Published, Row, Scale, Study, StudyAt

WHITENED = RUNS["whitenedcse"]
DROPOUT = ", dropout views"
VIEWS = {"": "shared", DROPOUT: "dropout"}
READINGS = {"": "shared views, as the text says", DROPOUT: "dropout views, as the released code does"}
CHANNELS = (2, 3, 4, 6, 8, 12, 16, 24)  # a group at 768 dimensions, for k of 384 down to 32
NO_GROUPS = "not run: {} dimensions have no groups of {}"


def _both(scale: Scale, label: str, published: Published | None, short: str, **fields: Any) -> list[Row]:
    """A row for each reading of the views."""
    rows = []
    for suffix, views in VIEWS.items():
        run = WHITENED(scale, BASE, views=views, **fields)
        about = published if views == "shared" else None
        rows.append(row(scale, label + suffix, run, BASE, about, short=f"W {short}{' d' if suffix else ''}"))
    return rows


def _dropout_rows(scale: Scale) -> list[Row]:
    made = {name: WHITENED(scale, name, views="dropout") for name in BACKBONES if name in scale.backbones}
    return [row(scale, f"WhitenedCSE {BACKBONES[name]}{DROPOUT}", run, name, None) for name, run in made.items()]


def _against_simcse(task: str, titles: tuple[str, ...]) -> tuple[Comparison, ...]:
    return tuple(
        Comparison("W1", f"WhitenedCSE {b}{views}", f"SimCSE {b}", task, reading=reading)
        for b in titles
        for views, reading in READINGS.items()
    )


def table1(scale: Scale) -> Study:
    """STS; RoBERTa-large is announced in the paper's text and has no row."""
    rows = rows_of(scale, "whitenedcse_table1", {"WhitenedCSE": WHITENED}) + _dropout_rows(scale)
    titles = tuple(BACKBONES[name] for name in (BASE, LARGE, "roberta-base") if name in scale.backbones)
    return Study(
        name="whitenedcse-table1",
        source="WhitenedCSE, Table 1",
        question="Is WhitenedCSE better than SimCSE on STS?",
        scale=scale,
        rows=tuple(rows),
        columns=(*STS, "sts_avg"),
        comparisons=_against_simcse("sts_avg", titles),
    )


def table2(scale: Scale) -> Study:
    """Transfer."""
    rows = rows_of(scale, "whitenedcse_table2", {"WhitenedCSE": WHITENED}, TRANSFER_AVG)
    rows += [one for one in _dropout_rows(scale) if one.backbone in (BASE, LARGE)]
    return Study(
        name="whitenedcse-table2",
        source="WhitenedCSE, Table 2",
        question="Is WhitenedCSE better than SimCSE on transfer?",
        scale=scale,
        rows=tuple(rows),
        columns=(*TRANSFER, "transfer_avg"),
        comparisons=_against_simcse("transfer_avg", ("BERT-base", "BERT-large")),
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
    rows = [row(scale, none, simcse_run(scale, BASE), BASE, Published(table, "BERT-base", "WhitenedCSE", none))]
    for name, kind in KINDS.items():
        rows += _both(scale, name, Published(table, "BERT-base", "WhitenedCSE", name), kind[:6], whitening=kind)
    order = ["Shuffled-Group-whitening", "Group-whitening", none, "ZCA-whitening", "PCA-whitening"]
    labels = {views: [name if name == none else name + views for name in order] for views in VIEWS}
    return Study(
        name="whitenedcse-table3",
        source="WhitenedCSE, Table 3",
        question="Which kind of whitening is best?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        comparisons=tuple(
            Comparison("W2", better, worse, reading=reading)
            for views, reading in READINGS.items()
            for better, worse in pairwise(labels[views])
        ),
    )


def table4(scale: Scale) -> Study:
    """How many groups (the paper's k, here by the channels of each), with and without shuffling."""
    width = scale.width or 768
    rows, compared = [], []
    for channels in CHANNELS:
        labels = {how: f"{channels} channels a group, {how}" for how in ("shuffled", "not shuffled")}
        for (how, label), kind in zip(labels.items(), ("shuffled_group", "group"), strict=True):
            published = Published("whitenedcse_table4", "BERT-base", "WhitenedCSE", f"k={768 // channels} {how}")
            if width % channels:
                why = NO_GROUPS.format(width, channels)
                rows.append(Row(label=label, encoder=None, backbone=BASE, published=published, why=why))
                continue
            short = f"{channels} {'sh' if how == 'shuffled' else 'no'}"
            rows += _both(scale, label, published, short, whitening=kind, groups=width // channels)
        if width % channels == 0:
            compared.append(labels)
    if width < 768:
        labels = {how: f"32 channels a group, {how}" for how in ("shuffled", "not shuffled")}
        for label, kind in zip(labels.values(), ("shuffled_group", "group"), strict=True):
            rows += _both(scale, label, None, f"32 {kind[:2]}", whitening=kind, groups=width // 32)
        compared.append(labels)
    return Study(
        name="whitenedcse-table4",
        source="WhitenedCSE, Table 4",
        question="Does shuffling help at every number of groups?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        comparisons=tuple(
            Comparison("W3", labels["shuffled"] + views, labels["not shuffled"] + views, reading=reading)
            for labels in compared
            for views, reading in READINGS.items()
        ),
    )


def table5(scale: Scale) -> Study:
    """How many positives, the anchor counted."""
    rows: list[Row] = []
    label = "m={} positives"
    for m in (2, 3, 4, 5):
        published = Published("whitenedcse_table5", "BERT-base", "WhitenedCSE", label.format(m))
        rows += _both(scale, label.format(m), published, f"m{m}", positives=m)
    return Study(
        name="whitenedcse-table5",
        source="WhitenedCSE, Table 5",
        question="Are more than two positives better than two?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        comparisons=tuple(
            Comparison("W4", label.format(m) + views, label.format(2) + views, reading=reading)
            for views, reading in READINGS.items()
            for m in (3, 4, 5)
        ),
    )


def table6(scale: Scale) -> Study:
    """Which module brings the gain."""
    variants = [variant for _, _, variant in lines_of("whitenedcse_table6")]
    simcse, sgw, three, four, full = variants
    published = {name: Published("whitenedcse_table6", "BERT-base", "WhitenedCSE", name) for name in variants}
    rows = [row(scale, simcse, simcse_run(scale, BASE), BASE, published[simcse])]
    rows += _both(scale, sgw, published[sgw], "m2", positives=2)
    for name, m in ((three, 3), (four, 4)):
        run = WHITENED(scale, BASE, whitening="none", views="dropout", positives=m)
        rows.append(row(scale, name, run, BASE, published[name], short=f"W drop m{m}"))
    rows += _both(scale, full, published[full], "full")
    compared = [Comparison("W5", more, simcse, kind="same") for more in (three, four)]
    compared += [Comparison("W5", full + views, sgw + views, reading=reading) for views, reading in READINGS.items()]
    return Study(
        name="whitenedcse-table6",
        source="WhitenedCSE, Table 6",
        question="Do extra positives help only with shuffled group whitening?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        comparisons=tuple(compared),
    )


def objectives(scale: Scale) -> Study:
    """Section 3.3: where the sum over positives stands."""
    kinds = {"outside (Eq. 7)": "outside", "inside (Eq. 8 as meant)": "inside", "Eq. 8 as printed": "inside_printed"}
    rows = [one for name, kind in kinds.items() for one in _both(scale, name, None, kind[:9], objective=kind)]
    names = list(kinds)
    return Study(
        name="whitenedcse-objective",
        source="WhitenedCSE, Section 3.3",
        question="Is the sum outside the logarithm better than inside?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        # As printed, Eq. 8 draws positives apart: a slip, which no claim is about.
        comparisons=tuple(
            Comparison("W7", names[0] + views, names[1] + views, reading=reading) for views, reading in READINGS.items()
        ),
    )


def figure1(scale: Scale) -> Study:
    """Dev sentences in two dimensions."""
    rows = [untrained(scale, "untrained, mean", "last avg", BASE)]
    rows += [row(scale, "SimCSE", simcse_run(scale, BASE), BASE, None), *_both(scale, "WhitenedCSE", None, "full")]
    return Study(
        name="whitenedcse-figure1",
        source="WhitenedCSE, Figure 1",
        question="How do features lie, and how near are pairs that people call the same?",
        scale=scale,
        rows=first_seed(rows, scale),
        columns=("stsb_dev_projection",),
        metric="trustworthiness",
        view="spaces",
        caption="UMAP of all dev sentences; the paper names neither its projection nor its sentences. One seed.",
    )


def figure3(scale: Scale) -> Study:
    """Alignment and uniformity over steps."""
    rows = [row(scale, "SimCSE", fine(simcse_run(scale, BASE)), BASE, None)]
    for suffix, views in VIEWS.items():
        rows.append(row(scale, f"WhitenedCSE{suffix}", fine(WHITENED(scale, BASE, views=views)), BASE, None))
    return Study(
        name="whitenedcse-figure3",
        source="WhitenedCSE, Figure 3",
        question="Has WhitenedCSE better alignment and uniformity than SimCSE, uniformity from the start?",
        scale=scale,
        rows=tuple(rows),
        columns=("alignment", "uniformity"),
        comparisons=tuple(
            Comparison("W6", "SimCSE", f"WhitenedCSE{views}", task, reading=reading)
            for task in ("alignment", "uniformity")
            for views, reading in READINGS.items()
        ),
        findings=(Untested("W6", "better uniformity from the start", "the figure shows it, nothing tests it"),),
        view="curves",
    )


STUDIES: dict[str, StudyAt] = {
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
