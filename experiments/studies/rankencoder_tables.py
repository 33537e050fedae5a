"""RankEncoder's tables, and their figures, as studies (Seonwoo et al., ACL 2023)."""

from dataclasses import replace
from typing import Any

from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.run import Run
from experiments.schema.columns import STS, TRANSFER
from experiments.schema.hypotheses import beats, equals, is_below
from experiments.schema.published_rows import rows_of
from experiments.schema.recipes import RUNS, mlm_run, rankencoder_run, simcse_run
from experiments.schema.rows import BASE, TRANSFER_AVG, figure, rank_scorer, row
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

BASES = {"SimCSE": "simcse", "PromptBERT": "promptbert", "SNCSE": "sncse"}
PLUS = "+RankEncoder"
RETRAINED = "+RankEncoder, retrained, cosine"


def rankencoder_on(scale: Scale, base: str, **fields: Any) -> Run | None:
    """Return a RankEncoder run on a base method, by the base's name in the paper."""
    return rankencoder_run(scale, BASE, BASES[base], **fields)


def table1(scale: Scale) -> Study:
    """STS; the published row is a single run, better than Table 4's mean of three.

    RankEncoder is trained on SNCSE here, so only SNCSE is a fair comparison: the gain over any other row is partly
    SNCSE's.
    """
    ours = {"RankEncoder": lambda scale, backbone: rankencoder_run(scale, backbone, "sncse")}
    rows = rows_of(scale, "rankencoder_table1", ours)
    ours_on_bert = "RankEncoder", "BERT-base"
    rows[ours_on_bert] = replace(rows[ours_on_bert], scorer=rank_scorer(scale), vary="all")
    return Study(
        question="Is RankEncoder, on SNCSE, better than its base?",
        rows=tuple(rows.values()),
        columns=(*STS, "sts_avg"),
        contrasts=(beats(rows[ours_on_bert], rows["SNCSE", "BERT-base"], claim="E3"),),
    )


def table2(scale: Scale) -> Study:
    """Alignment and uniformity of three base methods' embeddings and of their rank vectors."""

    def row_scored_by(base: str, label: str, scorer: Scorer) -> Row:
        published = Published("rankencoder_table2", "BERT-base", base, label)
        run = RUNS[BASES[base]](scale, BASE)
        return row(scale, f"{base}, {label}", run, BASE, published, scorer=scorer, short=base)

    vectors = {base: row_scored_by(base, "base", Cosine()) for base in BASES}
    ranks = {base: row_scored_by(base, "rank vectors (Eq2)", rank_scorer(scale, 1.0)) for base in BASES}
    return Study(
        question="Do rank vectors improve uniformity much and worsen alignment little?",
        rows=tuple(by_base[base] for base in BASES for by_base in (vectors, ranks)),
        columns=("uniformity", "alignment"),
        contrasts=(
            *(is_below(ranks[base], vectors[base], claim="E5", column="uniformity") for base in BASES),
            *(equals(ranks[base], vectors[base], claim="E5", column="alignment") for base in BASES),
        ),
    )


def table3(scale: Scale) -> Study:
    """Transfer with the masked-language loss added."""

    def as_published(label: str, run: Run | None) -> Row:
        published = Published("rankencoder_table3", "BERT-base", label, columns=TRANSFER_AVG)
        return row(scale, label, run, BASE, published)

    base = RUNS["rankencoder"](scale, BASE, "simcse")
    simcse = as_published("SimCSE", simcse_run(scale, BASE))
    with_mlm = as_published("SimCSE w/ MLM", mlm_run(scale, BASE))
    both = as_published("RankEncoder-SimCSE w/ MLM", mlm_run(scale, BASE, "rankencoder") if base else None)
    return Study(
        question="Does RankEncoder with the MLM loss improve transfer slightly?",
        rows=(simcse, with_mlm, both),
        columns=(*TRANSFER, "transfer_avg"),
        contrasts=tuple(beats(both, other, claim="E10", column="transfer_avg") for other in (simcse, with_mlm)),
    )


def table4(scale: Scale) -> Study:
    """Three base methods with and without RankEncoder; each run has a base of the same seed."""
    rows, contrasts = [], []
    for base, name in BASES.items():
        published = {v: Published("rankencoder_table4", "BERT-base", base, v) for v in ("base", PLUS)}
        plain = RUNS[name](scale, BASE)
        without = row(scale, f"{base}, base", plain, BASE, published["base"], published_runs=3, short=base)
        about: dict[str, Any] = {"vary": "all", "published_runs": 3, "short": f"RE {base}"}
        run = rankencoder_on(scale, base)
        with_ranks = row(scale, f"{base}, {PLUS}", run, BASE, published[PLUS], scorer=rank_scorer(scale), **about)
        cosine = row(scale, f"{base}, {RETRAINED}", run, BASE, None, scorer=Cosine(), **about)
        rows += [without, with_ranks, cosine]
        contrasts.append(beats(with_ranks, without, claim="E3"))
    return Study(
        question="Does RankEncoder improve SimCSE, PromptBERT and SNCSE?",
        rows=tuple(rows),
        columns=(*STS, "sts_avg"),
        contrasts=tuple(contrasts),
    )


def figure4(scale: Scale) -> Study:
    """Table 4's averages as bars."""
    return figure(table4(scale), "rankencoder-table4", "dots", columns=("sts_avg",))


def table5(scale: Scale) -> Study:
    """The most similar pairs of STS-B, scored in four ways."""
    rows, contrasts = [], []
    for base, name in BASES.items():
        plain, run = RUNS[name](scale, BASE), rankencoder_on(scale, base)
        first = _similar_pairs_row(scale, base, "E1", plain, Cosine())
        ranks = _similar_pairs_row(scale, base, "RankEncoder_E1 (Eq2)", plain, rank_scorer(scale, 1.0))
        retrained = _similar_pairs_row(scale, base, "retrain (Eq5)", run, Cosine(), vary="all")
        both = _similar_pairs_row(scale, base, "retrain+inf (Eq7)", run, rank_scorer(scale), vary="all")
        rows += [first, ranks, retrained, both]
        contrasts.append(beats(ranks, first, claim="E1", column="stsb_similar"))
        contrasts += [
            beats(better, worse, claim="E2", column="stsb_similar")
            for better, worse in ((retrained, ranks), (both, retrained))
        ]
    return Study(
        question="Do ranks order similar pairs better, and do retraining and interpolation add to it?",
        rows=tuple(rows),
        columns=("stsb_similar",),
        contrasts=tuple(contrasts),
    )


def _similar_pairs_row(
    scale: Scale, base: str, way: str, run: Run | None, scorer: Scorer, vary: str = "student"
) -> Row:
    heading = {"stsb_similar": "STS-B similar pairs (0.67-1.0) spearman"}
    published = Published("rankencoder_table5", "BERT-base", base, way, heading)
    return row(scale, f"{base}, {way}", run, BASE, published, scorer=scorer, vary=vary, short=f"RE {base}")


def figure5(scale: Scale) -> Study:
    """Table 5 as bars."""
    return figure(table5(scale), "rankencoder-table5", "dots")


STUDIES: dict[str, StudyAt] = named(
    {
        "rankencoder-table1": table1,
        "rankencoder-table2": table2,
        "rankencoder-table3": table3,
        "rankencoder-table4": table4,
        "rankencoder-table5": table5,
        "rankencoder-figure4": figure4,
        "rankencoder-figure5": figure5,
    }
)
