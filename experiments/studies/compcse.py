"""CompCSE's tables and figures as studies (Chanchani and Huang, ACL 2023)."""

from typing import Any

from cse_core.run import Run
from experiments.schema.columns import STS
from experiments.schema.hypotheses import LITTLE, Comparison, Cost
from experiments.schema.recipes import BACKBONES, RUNS, simcse_run
from experiments.schema.rows import BASE, LARGE, fine, first_seed, row, rows_of
from experiments.schema.study import Published, Row, Scale, Study, StudyAt

COMPOSED = RUNS["compcse"]
# Tables 2 to 5 take the whole width; Table 6 finds that less is better on BERT-base.
WHOLE: dict[str, Any] = {"dims": None}
SUBSAMPLED = {"+adjacent": "adjacent", "+overlapping": "overlapping", "+subsuming": "subsuming"}
HOW = {
    "sum": "sum",
    "avg": "average",
    "concat first & last half": "concat",
    "concat + project": "concat_project",
    "concat w/ abs. difference + project": "difference_project",
}
SIDES = {"compose z": "anchor", "compose z+": "positive", "compose both": "both"}
DEV = ("stsb_dev",)

COLLAPSE = 5.0  # points from which a composition is said to collapse; the paper's lose fifteen


def table1(scale: Scale) -> Study:
    """STS: on each backbone the setting that Table 2 found best on STS-B dev."""
    ours = dict.fromkeys(("SimCSE (w/ comp.)", "SimCSE (+ subsum.)"), COMPOSED)
    rows = rows_of(scale, "compcse_table1", ours)
    label = {b: f"SimCSE ({'+ subsum.' if b == 'BERT-large' else 'w/ comp.'}) {b}" for b in BACKBONES.values()}
    pairs = [(label[b], f"SimCSE {b}") for b in ("BERT-base", "BERT-large", "RoBERTa-base")]
    pairs += [("SimCSE RoBERTa-large", label["RoBERTa-large"])]
    return Study(
        name="compcse-table1",
        source="CompCSE, Table 1",
        question="Is composition better than SimCSE on three backbones, and worse on RoBERTa-large?",
        scale=scale,
        rows=tuple(rows),
        columns=(*STS, "sts_avg"),
        comparisons=tuple(Comparison("C1", *pair) for pair in pairs),
    )


def _composed(scale: Scale, backbone: str, **fields: Any) -> Run | None:
    return COMPOSED(scale, backbone, **({"subsampling": "none"} | WHOLE | fields))


def _published(table: str, backbone: str, variant: str, method: str = "CompCSE") -> Published:
    return Published(f"compcse_{table}", BACKBONES[backbone], method, variant)


def table2(scale: Scale) -> Study:
    """Subsampling: phrases of the sentences as further examples."""
    rows, comparisons = [], []
    for backbone, title in BACKBONES.items():
        published = _published("table2", backbone, "SimCSE", "SimCSE")
        rows.append(row(scale, f"SimCSE {title}", simcse_run(scale, backbone), backbone, published))
        plain = f"w/ composition {title}"
        for name, kind in {"w/ composition": "none", **SUBSAMPLED}.items():
            run = _composed(scale, backbone, subsampling=kind)
            published = _published("table2", backbone, name)
            rows.append(row(scale, f"{name} {title}", run, backbone, published, short=f"{name[:6]} {title[-4:]}"))
        better = [(f"{name} {title}", plain) for name in SUBSAMPLED]
        if backbone in (BASE, LARGE):
            comparisons += [Comparison("C2", *(pair if backbone == LARGE else pair[::-1]), *DEV) for pair in better]
    return Study(
        name="compcse-table2",
        source="CompCSE, Table 2",
        question="Does subsampling help the large BERT and harm the base one?",
        scale=scale,
        rows=tuple(rows),
        columns=DEV,
        comparisons=tuple(comparisons),
    )


def table3(scale: Scale) -> Study:
    """How two parts become one; the caption says BERT-base, the rows have RoBERTa-base too."""
    rows = []
    for backbone in (BASE, "roberta-base"):
        for name, how in HOW.items():
            run = _composed(scale, backbone, compose=how)
            label = f"{name} {BACKBONES[backbone]}"
            rows.append(row(scale, label, run, backbone, _published("table3", backbone, name), short=f"C {how[:10]}"))
    good, collapsed = ("sum", "avg"), tuple(HOW)[3:]
    return Study(
        name="compcse-table3",
        source="CompCSE, Table 3",
        question="Which composition is best?",
        scale=scale,
        rows=tuple(rows),
        columns=DEV,
        comparisons=(
            *(Comparison("C3", f"{a} BERT-base", "concat first & last half BERT-base", *DEV) for a in good),
            *(
                Comparison("C3", f"{a} BERT-base", f"{b} BERT-base", *DEV, kind="beyond", margin=COLLAPSE)
                for a in good
                for b in collapsed
            ),
        ),
    )


def _variants(scale: Scale, table: str, field: str, values: dict[str, Any]) -> list[Row]:
    return [
        row(
            scale,
            name,
            _composed(scale, BASE, **{field: value}),
            BASE,
            _published(table, BASE, name),
            short=f"C {name}",
        )
        for name, value in values.items()
    ]


def table4(scale: Scale) -> Study:
    """Which side is composed."""
    return Study(
        name="compcse-table4",
        source="CompCSE, Table 4",
        question="Is composing the positive best?",
        scale=scale,
        rows=tuple(_variants(scale, "table4", "side", SIDES)),
        columns=DEV,
        comparisons=tuple(Comparison("C4", "compose z+", other, *DEV) for other in ("compose z", "compose both")),
    )


def table5(scale: Scale) -> Study:
    """How many parts."""
    return Study(
        name="compcse-table5",
        source="CompCSE, Table 5",
        question="Are two parts best?",
        scale=scale,
        rows=tuple(_variants(scale, "table5", "parts", {f"{n} partitions": n for n in (2, 3, 4)})),
        columns=DEV,
        comparisons=tuple(Comparison("C5", "2 partitions", f"{n} partitions", *DEV) for n in (3, 4)),
    )


def table6(scale: Scale) -> Study:
    """The loss on the first coordinates only; at another width the same shares of it."""
    widths = {BASE: (768, (192, 256, 384, 768)), LARGE: (1024, (320, 384, 512, 1024))}
    rows, labels = [], {}
    for backbone, (whole, found) in widths.items():
        title = BACKBONES[backbone]
        labels[backbone] = [f"d0={d0} {title}" for d0 in found]
        for d0, label in zip(found, labels[backbone], strict=True):
            dims = None if d0 == whole else _share(scale, d0, whole)
            run = _composed(scale, backbone, dims=dims) if backbone in scale.backbones else None
            published = _published("table6", backbone, f"d0={d0}")
            rows.append(row(scale, label, run, backbone, published, short=f"C {label[:6]} {title[-4:]}"))
    comparisons = [Comparison("C6", labels[BASE][1], labels[BASE][-1], *DEV)]  # the one d0 that helps in the paper
    comparisons += [Comparison("C6", labels[LARGE][-1], labels[LARGE][i], *DEV) for i in range(3)]
    return Study(
        name="compcse-table6",
        source="CompCSE, Table 6",
        question="Does a loss on part of the vector help the base, not the large backbone?",
        scale=scale,
        rows=tuple(rows),
        columns=DEV,
        comparisons=tuple(comparisons),
    )


def _share(scale: Scale, d0: int, whole: int) -> int:
    """d0 of the papers' width as the same share of this scale's."""
    return round(d0 * (scale.width or whole) / whole)


def _trajectories(scale: Scale) -> list[Row]:
    made = {"SimCSE": simcse_run(scale, BASE), "w/ composition": _composed(scale, BASE)}
    made |= {name: _composed(scale, BASE, subsampling=kind) for name, kind in SUBSAMPLED.items()}
    return [row(scale, label, fine(run), BASE, None, short=f"{label[:7]} fine") for label, run in made.items()]


def figure2(scale: Scale) -> Study:
    """Alignment and uniformity as training goes on."""
    subsampled, plain = tuple(SUBSAMPLED), "w/ composition"
    return Study(
        name="compcse-figure2",
        source="CompCSE, Figure 2",
        question="Does subsampling improve uniformity, and has the plain partition the best alignment?",
        scale=scale,
        rows=tuple(_trajectories(scale)),
        columns=("alignment", "uniformity"),
        comparisons=tuple(
            [Comparison("C8", plain, name, "uniformity") for name in subsampled]
            + [Comparison("C8", other, plain, "alignment") for other in ("SimCSE", *subsampled)]
        ),
        view="paths",
        caption="Every tenth step to the end of training, which has more steps where phrases are further "
        "examples; the paper's first 500 of 15,625.",
    )


def figure3(scale: Scale) -> Study:
    """Dev scores as training goes on."""
    rows = _trajectories(scale)[:2]
    return Study(
        name="compcse-figure3",
        source="CompCSE, Figure 3",
        question="Does composition converge faster and more stably than SimCSE?",
        scale=scale,
        rows=tuple(rows),
        columns=(*DEV, "near_best", "below_best"),
        comparisons=(
            Comparison("C7", "SimCSE", "w/ composition", "near_best"),
            Comparison("C7", "SimCSE", "w/ composition", "below_best"),
            Comparison("C7", "w/ composition", "SimCSE", *DEV, kind="spread"),
        ),
        findings=(Cost("C7", "CompCSE, step", LITTLE, at_most=True),),
        view="curves",
    )


def _three(scale: Scale) -> list[Row]:
    made = {
        "SimCSE": simcse_run(scale, BASE),
        "DiffCSE": RUNS["diffcse"](scale, BASE),
        "CompCSE": COMPOSED(scale, BASE),
    }
    return [row(scale, label, run, BASE, None) for label, run in made.items()]


def figure4(scale: Scale) -> Study:
    """Cosines of a sentence, its halves and others."""
    return Study(
        name="compcse-figure4",
        source="CompCSE, Figure 4",
        question="Does CompCSE weigh the two halves of a sentence more evenly?",
        scale=scale,
        rows=first_seed(_three(scale), scale),
        columns=("phrases",),
        metric="cosine.mean",
        view="heat",
        caption="One seed. The study compcse-halves has the same question for all dev sentences and seeds.",
    )


def halves(scale: Scale) -> Study:
    """Figure 4's question on all dev sentences."""
    return Study(
        name="compcse-halves",
        source="this project, after CompCSE, Figure 4",
        question="How unlike are a sentence's cosines with its two halves?",
        scale=scale,
        rows=tuple(_three(scale)),
        columns=("imbalance", "left_nearer"),
        comparisons=tuple(Comparison("C10", other, "CompCSE", "imbalance") for other in ("SimCSE", "DiffCSE")),
    )


def figure5(scale: Scale) -> Study:
    """Dev sentences in two dimensions, coloured by length; as a number, the pull of length on scores."""
    return Study(
        name="compcse-figure5",
        source="CompCSE, Figure 5",
        question="Does CompCSE rely less on length than SimCSE? Length shortcut: 0 is none; below 0, unequal lengths "
        "read as unlike.",
        scale=scale,
        rows=tuple(_three(scale)),
        columns=("stsb_dev_projection", "length_shortcut"),
        metric="trustworthiness",
        comparisons=(Comparison("C9", "CompCSE", "SimCSE", "length_shortcut"),),
        view="spaces",
        caption="UMAP, cosine distance, one seed.",
    )


STUDIES: dict[str, StudyAt] = {
    "compcse-table1": table1,
    "compcse-table2": table2,
    "compcse-table3": table3,
    "compcse-table4": table4,
    "compcse-table5": table5,
    "compcse-table6": table6,
    "compcse-figure2": figure2,
    "compcse-figure3": figure3,
    "compcse-figure4": figure4,
    "compcse-halves": halves,
    "compcse-figure5": figure5,
}
