"""The studies that decide WhitenedCSE's and CompCSE's claims."""

from typing import Any

from cse_core.run import Run
from experiments.plan.pilots import COMPOSITION, WHITENING
from experiments.plan.planned_rows import planned_row, planned_simcse, planned_study, primary, printed, without_dropout
from experiments.schema.contrasts import must_help, must_not_help
from experiments.schema.recipes import RUNS, simcse_run
from experiments.schema.rows import BASE, with_dense_dev_scores
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

DEV = "stsb_dev"
WHOLE: dict[str, Any] = {"subsampling": "none", "dims": None}
COMPOSED = {"subsampling": "none"}


def whitening(scale: Scale) -> Study:
    """Declare WhitenedCSE's primaries on STS, as in its text: the views share one pass of the encoder."""

    def ours(label: str, table: str, variant: str, **fields: Any) -> Row:
        published = Published(f"whitenedcse_{table}", "BERT-base", "WhitenedCSE", variant) if table else None
        run = RUNS["whitenedcse"](scale, BASE, **fields)
        return planned_row(scale, label, run, WHITENING, published=published)

    table3 = "table3"
    full = ours("WhitenedCSE", table3, "Shuffled-Group-whitening")
    simcse = planned_simcse(
        scale, WHITENING, Published(f"whitenedcse_{table3}", "BERT-base", "WhitenedCSE", "none (SimCSE)")
    )
    pca = ours("PCA whitening", table3, "PCA-whitening", whitening="pca")
    plain = ours("groups not shuffled", table3, "Group-whitening", whitening="group")
    two = ours("two positives", "table5", "m=2 positives", positives=2)
    more_views = ours("three dropout views, no whitening", "", "", views="dropout", whitening="none", positives=3)
    inside = ours("sum inside the logarithm", "", "", objective="inside")
    channels = ours("batch norm of each channel", "", "", whitening="channel")
    rotated = ours("three dropout views, rotated at random", "", "", views="dropout", whitening="rotation", positives=3)
    still = without_dropout(scale, WHITENING)
    return planned_study(
        scale,
        "Which of WhitenedCSE's claims hold on STS?",
        [full, simcse, pca, plain, two, more_views, inside, channels, rotated, still],
        [
            must_help(simcse, still, WHITENING),
            must_not_help(rotated, more_views, WHITENING, paired=True),
            primary("W1", WHITENING, full, simcse),
            primary("W2", WHITENING, full, pca, paired=True),
            primary("W3", WHITENING, full, plain, paired=True),
            primary("W4", WHITENING, full, two, paired=True),
            # Extra positives help with whitening and not without: the difference of both gains.
            primary("W5", WHITENING, (full, simcse), (two, more_views), added=_printed_interaction()),
            primary("W7", WHITENING, full, inside, paired=True),
            primary("W9", WHITENING, full, channels, paired=True),
        ],
    )


def _printed_interaction() -> float:
    """Return what Table 6 prints for W5."""
    variants = ("WhitenedCSE (SGW, m=3)", "SimCSE", "SimCSE + SGW (m=2)", "SimCSE + multi-positive k=3 (dropout)")
    full, simcse, two, more_views = (printed("whitenedcse_table6", "WhitenedCSE", name, of="Avg") for name in variants)
    return round(full + simcse - two - more_views, 4)


def whitenedcse_space(scale: Scale) -> Study:
    """Declare WhitenedCSE's primary on uniformity, where lower is better."""
    simcse = planned_simcse(scale, WHITENING)
    ours = planned_row(scale, "WhitenedCSE", RUNS["whitenedcse"](scale, BASE), WHITENING)
    contrasts = [primary("W6", WHITENING, simcse, ours, column="uniformity", margin=0.1)]
    return planned_study(scale, "Is WhitenedCSE more uniform?", [simcse, ours], contrasts)


def _compcse_row(scale: Scale, label: str, published: Published | None = None, **fields: Any) -> Row:
    run = RUNS["compcse"](scale, BASE, **(COMPOSED | fields))
    return planned_row(scale, label, run, COMPOSITION, published=published)


def composition(scale: Scale) -> Study:
    """Declare CompCSE's primaries on STS, and the family's controls."""

    def of(method: str) -> Published:
        return Published("compcse_table1", "BERT-base", method)

    simcse = planned_simcse(scale, COMPOSITION, of("SimCSE"))
    ours = _compcse_row(scale, "CompCSE", of("SimCSE (w/ comp.)"))
    words = _compcse_row(scale, "halves of shuffled words", split_on="shuffled")
    crops = _compcse_row(scale, "two random crops", split_on="crops")
    still = without_dropout(scale, COMPOSITION)
    return planned_study(
        scale,
        "Is composition better than SimCSE, and is it composition?",
        [simcse, ours, words, crops, still],
        [
            must_help(simcse, still, COMPOSITION),
            must_not_help(words, simcse, COMPOSITION),
            primary("C1", COMPOSITION, ours, simcse),
            primary("C11", COMPOSITION, ours, crops, paired=True),
        ],
    )


def parts(scale: Scale) -> Study:
    """Declare the primaries on how a sentence is composed, by STS-B dev and at the whole width, as in the paper."""

    def ours(label: str, table: str, variant: str, **fields: Any) -> Row:
        return _compcse_row(
            scale, label, Published(f"compcse_{table}", "BERT-base", "CompCSE", variant), **WHOLE | fields
        )

    plain, subsumed = (
        ours("no phrases", "table2", "w/ composition"),
        ours("subsuming phrases too", "table2", "+subsuming", subsampling="subsuming"),
    )
    averaged = ours("averaged", "table3", "avg", compose="average")
    projected = ours("concatenated and projected", "table3", "concat + project", compose="concat_project")
    positive, anchor = (
        ours("positive composed", "table4", "compose z+"),
        ours("anchor composed", "table4", "compose z", side="anchor"),
    )
    two, three = (ours(f"{name} parts", "table5", f"{n} partitions", parts=n) for name, n in (("two", 2), ("three", 3)))
    third = ours("a third of the width", "table6", "d0=256", dims=round((scale.width or 768) / 3))
    whole = ours("whole width", "table6", "d0=768")
    pairs = {
        "C2": (plain, subsumed),
        "C3": (averaged, projected),
        "C4": (positive, anchor),
        "C5": (two, three),
        "C6": (third, whole),
    }
    return planned_study(
        scale,
        "How is a sentence best composed?",
        [line for pair in pairs.values() for line in pair],
        [primary(claim, COMPOSITION, *pair, column=DEV, paired=True) for claim, pair in pairs.items()],
    )


def compcse_space(scale: Scale) -> Study:
    """Declare the primaries on what composition does to the embedding space: uniformity, length, halves."""

    def ours(label: str, run: Run | None) -> Row:
        return planned_row(scale, label, run, COMPOSITION)

    simcse, full = planned_simcse(scale, COMPOSITION), ours("CompCSE", RUNS["compcse"](scale, BASE, **COMPOSED))
    plain = ours("no phrases", RUNS["compcse"](scale, BASE, **WHOLE))
    subsumed = ours("subsuming phrases too", RUNS["compcse"](scale, BASE, **WHOLE | {"subsampling": "subsuming"}))
    return planned_study(
        scale,
        "What does composition do to the space?",
        [simcse, full, plain, subsumed],
        [
            primary("C8", COMPOSITION, plain, subsumed, column="uniformity", paired=True, margin=0.1),
            # Correlations: a tenth of one is small by Cohen's convention.
            primary("C9", COMPOSITION, full, simcse, column="length_shortcut", margin=0.1),
            primary("C10", COMPOSITION, simcse, full, column="imbalance", margin=1.0),
        ],
    )


def convergence(scale: Scale) -> Study:
    """Declare the primary on speed: the first step within a point of the best dev score, scored every tenth step."""
    simcse = planned_row(scale, "SimCSE, fine curve", with_dense_dev_scores(simcse_run(scale, BASE)), COMPOSITION)
    ours = planned_row(
        scale, "CompCSE, fine curve", with_dense_dev_scores(RUNS["compcse"](scale, BASE, **COMPOSED)), COMPOSITION
    )
    # A tenth of the 256 steps.
    contrasts = [primary("C7", COMPOSITION, simcse, ours, column="near_best", margin=26.0)]
    return planned_study(scale, "Does CompCSE converge faster?", [simcse, ours], contrasts)


STUDIES: dict[str, StudyAt] = named(
    {
        "plan-whitening": whitening,
        "plan-whitened-space": whitenedcse_space,
        "plan-composition": composition,
        "plan-parts": parts,
        "plan-composed-space": compcse_space,
        "plan-convergence": convergence,
    }
)
