"""CompCSE's tables and figures as studies (Chanchani and Huang, ACL 2023)."""

from typing import Any

from cse_core.run import Run
from experiments.schema.columns import STS
from experiments.schema.hypotheses import Untested, beats, is_below, is_positive, varies_less
from experiments.schema.published_rows import rows_of
from experiments.schema.recipes import BACKBONES, RUNS, simcse_run
from experiments.schema.rows import BASE, LARGE, first_seed, row, with_dense_dev_scores
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

COMPOSED = RUNS["compcse"]
# Tables 2 to 5 use all dimensions; Table 6 reports that fewer are better on BERT-base.
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
DEV = "stsb_dev"


def table1(scale: Scale) -> Study:
    """STS, with the setting that Table 2 found best on STS-B dev for each backbone."""
    composed, subsampled = "SimCSE (w/ comp.)", "SimCSE (+ subsum.)"
    rows = rows_of(scale, "compcse_table1", dict.fromkeys((composed, subsampled), COMPOSED))
    return Study(
        question="Is composition better than SimCSE on three backbones, and worse on RoBERTa-large?",
        rows=tuple(rows.values()),
        columns=(*STS, "sts_avg"),
        contrasts=(
            beats(rows[composed, "BERT-base"], rows["SimCSE", "BERT-base"], claim="C1"),
            beats(rows[subsampled, "BERT-large"], rows["SimCSE", "BERT-large"], claim="C1"),
            beats(rows[composed, "RoBERTa-base"], rows["SimCSE", "RoBERTa-base"], claim="C1"),
            beats(rows["SimCSE", "RoBERTa-large"], rows[composed, "RoBERTa-large"], claim="C1"),
        ),
    )


def _composition_run(scale: Scale, backbone: str, **fields: Any) -> Run | None:
    return COMPOSED(scale, backbone, **({"subsampling": "none"} | WHOLE | fields))


def _published_row(table: str, backbone: str, variant: str, method: str = "CompCSE") -> Published:
    return Published(f"compcse_{table}", BACKBONES[backbone], method, variant)


def table2(scale: Scale) -> Study:
    """Subsampling: phrases of the sentences as additional examples."""
    rows, contrasts = [], []
    for backbone, title in BACKBONES.items():
        published = _published_row("table2", backbone, "SimCSE", "SimCSE")
        simcse = row(scale, f"SimCSE {title}", simcse_run(scale, backbone), backbone, published)
        plain = _subsampling_row(scale, backbone, "w/ composition", "none")
        subsampled = [_subsampling_row(scale, backbone, name, kind) for name, kind in SUBSAMPLED.items()]
        rows += [simcse, plain, *subsampled]
        if backbone == LARGE:
            contrasts += [beats(phrases, plain, claim="C2", column=DEV) for phrases in subsampled]
        if backbone == BASE:
            contrasts += [beats(plain, phrases, claim="C2", column=DEV) for phrases in subsampled]
    return Study(
        question="Does subsampling help the large BERT and harm the base one?",
        rows=tuple(rows),
        columns=(DEV,),
        contrasts=tuple(contrasts),
    )


def _subsampling_row(scale: Scale, backbone: str, name: str, subsampling: str) -> Row:
    run, title = _composition_run(scale, backbone, subsampling=subsampling), BACKBONES[backbone]
    published = _published_row("table2", backbone, name)
    return row(scale, f"{name} {title}", run, backbone, published, short=f"{name[:6]} {title[-4:]}")


def table3(scale: Scale) -> Study:
    """Ways to compose two parts; the caption says BERT-base, the rows have RoBERTa-base too."""

    def composed_row(name: str, backbone: str) -> Row:
        run, label = _composition_run(scale, backbone, compose=HOW[name]), f"{name} {BACKBONES[backbone]}"
        return row(scale, label, run, backbone, _published_row("table3", backbone, name), short=f"C {HOW[name][:10]}")

    rows = {(name, backbone): composed_row(name, backbone) for backbone in (BASE, "roberta-base") for name in HOW}
    summed, averaged, joined, projected, differences = (rows[name, BASE] for name in HOW)
    return Study(
        question="Which composition is best?",
        rows=tuple(rows.values()),
        columns=(DEV,),
        contrasts=(
            *(beats(good, joined, claim="C3", column=DEV) for good in (summed, averaged)),
            *(beats(good, lost, "C3", DEV) for good in (summed, averaged) for lost in (projected, differences)),
        ),
    )


def _variant_row(scale: Scale, table: str, name: str, **fields: Any) -> Row:
    run = _composition_run(scale, BASE, **fields)
    return row(scale, name, run, BASE, _published_row(table, BASE, name), short=f"C {name}")


def table4(scale: Scale) -> Study:
    """The composed side: anchor, positive or both."""
    anchor, positive, both = (_variant_row(scale, "table4", name, side=side) for name, side in SIDES.items())
    return Study(
        question="Is composing the positive best?",
        rows=(anchor, positive, both),
        columns=(DEV,),
        contrasts=tuple(beats(positive, other, claim="C4", column=DEV) for other in (anchor, both)),
    )


def table5(scale: Scale) -> Study:
    """The number of parts."""
    two, three, four = (_variant_row(scale, "table5", f"{n} partitions", parts=n) for n in (2, 3, 4))
    return Study(
        question="Are two parts best?",
        rows=(two, three, four),
        columns=(DEV,),
        contrasts=tuple(beats(two, more, claim="C5", column=DEV) for more in (three, four)),
    )


def table6(scale: Scale) -> Study:
    """The loss on the first d0 dimensions only; other widths use the same share of dimensions."""

    def cut(d0: int, backbone: str, whole: int) -> Row:
        dims = None if d0 == whole else round(d0 * (scale.width or whole) / whole)  # the same share as in the paper
        run = _composition_run(scale, backbone, dims=dims) if backbone in scale.backbones else None
        label = f"d0={d0} {BACKBONES[backbone]}"
        published = _published_row("table6", backbone, f"d0={d0}")
        return row(scale, label, run, backbone, published, short=f"C {label[:6]} {label[-4:]}")

    base = {d0: cut(d0, BASE, 768) for d0 in (192, 256, 384, 768)}
    large = {d0: cut(d0, LARGE, 1024) for d0 in (320, 384, 512, 1024)}
    return Study(
        question="Does a loss on part of the vector help the base, not the large backbone?",
        rows=(*base.values(), *large.values()),
        columns=(DEV,),
        contrasts=(
            beats(base[256], base[768], claim="C6", column=DEV),  # the one d0 that helps in the paper
            *(beats(large[1024], large[d0], claim="C6", column=DEV) for d0 in (320, 384, 512)),
        ),
    )


def _trajectory_row(scale: Scale, label: str, run: Run | None) -> Row:
    return row(scale, label, with_dense_dev_scores(run), BASE, None, short=f"{label[:7]} fine")


def figure2(scale: Scale) -> Study:
    """Alignment and uniformity over training."""
    simcse = _trajectory_row(scale, "SimCSE", simcse_run(scale, BASE))
    plain = _trajectory_row(scale, "w/ composition", _composition_run(scale, BASE))
    subsampled = [
        _trajectory_row(scale, name, _composition_run(scale, BASE, subsampling=kind))
        for name, kind in SUBSAMPLED.items()
    ]
    return Study(
        question="Does subsampling improve uniformity, and has the plain partition the best alignment?",
        rows=(simcse, plain, *subsampled),
        columns=("alignment", "uniformity"),
        contrasts=(
            *(is_below(phrases, plain, claim="C8", column="uniformity") for phrases in subsampled),
            *(is_below(plain, other, claim="C8", column="alignment") for other in (simcse, *subsampled)),
        ),
        view="paths",
        caption="Every tenth step to the end of training, which has more steps where phrases are further "
        "examples; the paper's first 500 of 15,625.",
    )


def figure3(scale: Scale) -> Study:
    """Dev scores over training."""
    simcse = _trajectory_row(scale, "SimCSE", simcse_run(scale, BASE))
    ours = _trajectory_row(scale, "w/ composition", _composition_run(scale, BASE))
    return Study(
        question="Does composition converge faster and more stably than SimCSE?",
        rows=(simcse, ours),
        columns=(DEV, "near_best", "below_best"),
        contrasts=(
            is_below(ours, simcse, claim="C7", column="near_best"),
            is_below(ours, simcse, claim="C7", column="below_best"),
            varies_less(ours, simcse, claim="C7", column=DEV),
        ),
        findings=(Untested("C7", "little cost", "the paper names no number; REPORT has the ratio of a step's time"),),
        view="curves",
    )


def _three_methods(scale: Scale) -> tuple[Row, Row, Row]:
    """Return rows of SimCSE, DiffCSE and CompCSE."""
    names = {"SimCSE": "simcse", "DiffCSE": "diffcse", "CompCSE": "compcse"}
    simcse, diffcse, ours = (row(scale, label, RUNS[name](scale, BASE), BASE, None) for label, name in names.items())
    return simcse, diffcse, ours


def figure4(scale: Scale) -> Study:
    """Cosines between a sentence, its halves and other sentences."""
    return Study(
        question="Does CompCSE weigh the two halves of a sentence more evenly?",
        rows=first_seed(_three_methods(scale), scale),
        columns=("phrases",),
        metric="cosine.mean",
        view="heat",
        caption="One seed. The study compcse-halves has the same question for all dev sentences and seeds.",
    )


def halves(scale: Scale) -> Study:
    """Figure 4's question, for all dev sentences."""
    simcse, diffcse, ours = _three_methods(scale)
    return Study(
        source="this project, after CompCSE, Figure 4",
        question="How unlike are a sentence's cosines with its two halves?",
        rows=(simcse, diffcse, ours),
        columns=("imbalance", "left_nearer"),
        contrasts=(
            is_positive(ours, claim="C10", column="left_nearer"),  # 50 if both halves weigh the same
            *(is_below(ours, other, "C10", "imbalance") for other in (simcse, diffcse)),
        ),
    )


def figure5(scale: Scale) -> Study:
    """Dev sentences in two dimensions, coloured by length, and the influence of length on scores as a number."""
    simcse, diffcse, ours = _three_methods(scale)
    return Study(
        question="Does CompCSE rely less on length than SimCSE? Length shortcut: 0 is none; below 0, unequal lengths "
        "read as unlike.",
        rows=(simcse, diffcse, ours),
        columns=("stsb_dev_projection", "length_shortcut", "uniformity"),
        metric="trustworthiness",
        contrasts=(beats(ours, simcse, claim="C9", column="length_shortcut"),),
        view="spaces",
    )


STUDIES: dict[str, StudyAt] = named(
    {
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
)
