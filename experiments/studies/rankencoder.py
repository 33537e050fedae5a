"""RankEncoder's tables, and their figures, as studies (Seonwoo et al., ACL 2023)."""

from dataclasses import replace
from typing import Any

from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.run import Run
from experiments.schema.columns import STS, TRANSFER
from experiments.schema.hypotheses import Comparison
from experiments.schema.recipes import RUNS, mlm_run, rankencoder_run, simcse_run
from experiments.schema.rows import BASE, TRANSFER_AVG, figure, row, rows_of
from experiments.schema.study import Published, Scale, Study, StudyAt

BASES = {"SimCSE": "simcse", "PromptBERT": "promptbert", "SNCSE": "sncse"}
PLUS = "+RankEncoder"
RETRAINED = "+RankEncoder, retrained, cosine"
MOST = 100_000  # corpus sentences, the paper's number; a scale may have fewer


def ranked(scale: Scale, weight: float = 0.1, **fields: Any) -> Ranked:
    """Interpolated with cosine (Eq. 7), or by ranks alone (weight 1, Eq. 2), against this scale's corpus."""
    small = scale.rescaled.get("rankencoder", {}).get(BASE, {}).get("corpus_size", MOST)
    about: dict[str, Any] = {"corpus": scale.corpus, "size": small, "weight": weight}
    return Ranked(**(about | fields))


def plus(scale: Scale, base: str, **fields: Any) -> Run | None:
    return rankencoder_run(scale, BASE, BASES[base], **fields)


def table1(scale: Scale) -> Study:
    """STS; the published row is one run, which Table 4's mean of three does not reach.

    It stands on SNCSE and is judged against that alone: against another base it would be SNCSE that is compared.
    """
    ours = {"RankEncoder": lambda scale, backbone: rankencoder_run(scale, backbone, "sncse")}
    rows = rows_of(scale, "rankencoder_table1", ours)
    rows = [
        replace(one, scorer=ranked(scale), vary="all") if one.label.startswith("RankEncoder") else one for one in rows
    ]
    return Study(
        name="rankencoder-table1",
        source="RankEncoder, Table 1",
        question="Is RankEncoder, on SNCSE, better than its base?",
        scale=scale,
        rows=tuple(rows),
        columns=(*STS, "sts_avg"),
        comparisons=(Comparison("E3", "RankEncoder BERT-base", "SNCSE BERT-base"),),
    )


def table2(scale: Scale) -> Study:
    """Alignment and uniformity of three bases' vectors and of their rank vectors."""
    rows = []
    for base, name in BASES.items():
        run = RUNS[name](scale, BASE)
        for label, scorer in {"base": Cosine(), "rank vectors (Eq2)": ranked(scale, 1.0)}.items():
            published = Published("rankencoder_table2", "BERT-base", base, label)
            rows.append(row(scale, f"{base}, {label}", run, BASE, published, scorer=scorer, short=base))
    pairs = [(f"{base}, base", f"{base}, rank vectors (Eq2)") for base in BASES]
    # "Little" is what the paper's own rank vectors lose on the same base.
    own = [[row.published.value("alignment") for row in rows if row.label in pair and row.published] for pair in pairs]
    little = [(ranks or 0.0) - (base or 0.0) for base, ranks in own]
    return Study(
        name="rankencoder-table2",
        source="RankEncoder, Table 2",
        question="Do rank vectors improve uniformity much and worsen alignment little?",
        scale=scale,
        rows=tuple(rows),
        columns=("uniformity", "alignment"),
        comparisons=tuple(
            [Comparison("E5", *pair, "uniformity") for pair in pairs]
            + [
                Comparison("E5", *pair[::-1], "alignment", "same", margin=round(lost, 3))
                for pair, lost in zip(pairs, little, strict=True)
            ]
        ),
    )


def table3(scale: Scale) -> Study:
    """Transfer with the masked-language loss added."""
    base = RUNS["rankencoder"](scale, BASE, "simcse")
    made = {
        "SimCSE": simcse_run(scale, BASE),
        "SimCSE w/ MLM": mlm_run(scale, BASE),
        "RankEncoder-SimCSE w/ MLM": mlm_run(scale, BASE, "rankencoder") if base else None,
    }
    rows = [
        row(scale, label, run, BASE, Published("rankencoder_table3", "BERT-base", label, columns=TRANSFER_AVG))
        for label, run in made.items()
    ]
    return Study(
        name="rankencoder-table3",
        source="RankEncoder, Table 3",
        question="Does RankEncoder with the MLM loss improve transfer slightly?",
        scale=scale,
        rows=tuple(rows),
        columns=(*TRANSFER, "transfer_avg"),
        comparisons=tuple(
            Comparison("E10", list(made)[2], other, "transfer_avg", acts=(list(made)[2], list(made)[1]))
            for other in list(made)[:2]
        ),
    )


def table4(scale: Scale) -> Study:
    """Three bases with and without RankEncoder; each run has a base of its own seed."""
    rows, comparisons = [], []
    for base, name in BASES.items():
        published = {v: Published("rankencoder_table4", "BERT-base", base, v) for v in ("base", PLUS)}
        plain, run = RUNS[name](scale, BASE), plus(scale, base)
        rows.append(row(scale, f"{base}, base", plain, BASE, published["base"], published_runs=3, short=base))
        for label, scorer in {PLUS: ranked(scale), RETRAINED: Cosine()}.items():
            about: dict[str, Any] = {"vary": "all", "published_runs": 3, "scorer": scorer, "short": f"RE {base}"}
            rows.append(row(scale, f"{base}, {label}", run, BASE, published.get(label), **about))
        comparisons.append(Comparison("E3", f"{base}, {PLUS}", f"{base}, base"))
    return Study(
        name="rankencoder-table4",
        source="RankEncoder, Table 4",
        question="Does RankEncoder improve SimCSE, PromptBERT and SNCSE?",
        scale=scale,
        rows=tuple(rows),
        columns=(*STS, "sts_avg"),
        comparisons=tuple(comparisons),
    )


def figure4(scale: Scale) -> Study:
    """Table 4's averages as bars."""
    return figure(table4(scale), "rankencoder-figure4", "RankEncoder, Figure 4", "bars", columns=("sts_avg",))


def table5(scale: Scale) -> Study:
    """The most similar pairs of STS-B: four ways to score them."""
    column = {"stsb_similar": "STS-B similar pairs (0.67-1.0) spearman"}
    rows, comparisons = [], []
    for base, name in BASES.items():
        plain, run = RUNS[name](scale, BASE), plus(scale, base)
        ways: dict[str, tuple[Run | None, Scorer, str]] = {
            "E1": (plain, Cosine(), "student"),
            "RankEncoder_E1 (Eq2)": (plain, ranked(scale, 1.0), "student"),
            "retrain (Eq5)": (run, Cosine(), "all"),
            "retrain+inf (Eq7)": (run, ranked(scale), "all"),
        }
        for label, (encoder, scorer, vary) in ways.items():
            published = Published("rankencoder_table5", "BERT-base", base, label, column)
            rows.append(
                row(scale, f"{base}, {label}", encoder, BASE, published, scorer=scorer, vary=vary, short=f"RE {base}")
            )
        first, ranks, retrain, both = (f"{base}, {label}" for label in ways)
        comparisons.append(Comparison("E1", ranks, first, "stsb_similar"))
        comparisons += [
            Comparison("E2", a, b, "stsb_similar", acts=(retrain, first))
            for a, b in ((retrain, ranks), (both, retrain))
        ]
    return Study(
        name="rankencoder-table5",
        source="RankEncoder, Table 5",
        question="Do ranks order similar pairs better, and do retraining and interpolation add to it?",
        scale=scale,
        rows=tuple(rows),
        columns=("stsb_similar",),
        comparisons=tuple(comparisons),
    )


def figure5(scale: Scale) -> Study:
    """Table 5 as bars."""
    return figure(table5(scale), "rankencoder-figure5", "RankEncoder, Figure 5", "bars")


STUDIES: dict[str, StudyAt] = {
    "rankencoder-table1": table1,
    "rankencoder-table2": table2,
    "rankencoder-table3": table3,
    "rankencoder-table4": table4,
    "rankencoder-table5": table5,
    "rankencoder-figure4": figure4,
    "rankencoder-figure5": figure5,
}
