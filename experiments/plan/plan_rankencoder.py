"""The studies that decide RankEncoder's claims."""

from typing import Any

from cse_core.evaluation.scorers import Whitened
from experiments.plan.pilots import MINILM, RANKS, SCORING, balanced_rankencoder
from experiments.plan.planned_rows import planned_row, planned_simcse, planned_study, primary, printed
from experiments.schema.contrasts import must_help, must_not_help
from experiments.schema.recipes import rankencoder_run, simcse_run
from experiments.schema.rows import BASE, rank_scorer
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

SIMILAR = "stsb_similar"
HEADING = "STS-B similar pairs (0.67-1.0) spearman"
LOWER_THRESHOLD = 0.17  # points that filtering dissimilar pairs adds (E8), by footnote 3


def _similar(way: str) -> Published:
    return Published("rankencoder_table5", "BERT-base", "SimCSE", way, {SIMILAR: HEADING})


def _table4(variant: str) -> Published:
    return Published("rankencoder_table4", "BERT-base", "SimCSE", variant)


def training(scale: Scale) -> Study:
    """Declare the primaries on training with ranks; the losses are of equal size, as in the paper's Figure 8."""

    def by_ranks(label: str, published: Published | None = None, **fields: Any) -> Row:
        run = balanced_rankencoder(scale, **fields)
        return planned_row(scale, label, run, RANKS, vary="all", scorer=rank_scorer(scale), published=published)

    def control(label: str, base: Any) -> Row:
        return planned_row(scale, label, balanced_rankencoder(scale, base), RANKS)

    simcse = planned_simcse(scale, RANKS, _table4("base"))
    ours = by_ranks("RankEncoder", _table4("+RankEncoder"))
    no_lower = by_ranks("RankEncoder, no lower threshold", lower=-1.0)
    from_base, centred = by_ranks("RankEncoder from its base", start="base"), by_ranks("centred", similarity="centred")
    minilm, ignorant = control("MiniLM ranks", MINILM), control("the untrained backbone ranks", scale.backbones[BASE])
    return planned_study(
        scale,
        "Which of RankEncoder's claims about training hold?",
        [simcse, ours, no_lower, from_base, centred, minilm, ignorant],
        [
            must_help(minilm, simcse, RANKS),
            must_not_help(ignorant, simcse, RANKS),
            primary("E3", RANKS, ours, simcse, paired=True),
            primary("E8", RANKS, ours, no_lower, paired=True, added=LOWER_THRESHOLD),
            primary("E12", RANKS, ours, from_base, paired=True),
            primary("E13", RANKS, ours, centred, paired=True),
        ],
    )


def similar_pairs(scale: Scale) -> Study:
    """Declare the primary on retraining, on STS-B's similar pairs, scored by plain cosine."""
    about: dict[str, Any] = {"vary": "all", "published": _similar("retrain (Eq5)")}
    retrained = planned_row(scale, "RankEncoder by cosine", balanced_rankencoder(scale), RANKS, **about)
    base = planned_row(scale, "SimCSE by ranks", simcse_run(scale, BASE), RANKS, scorer=rank_scorer(scale, 1.0))
    ways = ("retrain (Eq5)", "RankEncoder_E1 (Eq2)")
    ours, ranks = (printed("rankencoder_table5", "SimCSE", way, of=HEADING) for way in ways)
    contrasts = [primary("E2", RANKS, retrained, base, column=SIMILAR, paired=True, added=round(ours - ranks, 4))]
    return planned_study(scale, "Does retraining help similar pairs?", [retrained, base], contrasts)


def balance(scale: Scale) -> Study:
    """Declare the primary on lambda_train: the share of steps at which the rank loss counts with the paper's 0.05."""
    published_weight = planned_row(
        scale, "RankEncoder, lambda_train 0.05", rankencoder_run(scale, BASE), RANKS, vary="all"
    )
    # At least a tenth of the steps counts as a balance.
    contrasts = [primary("E6", RANKS, published_weight, column="rank_larger", margin=10.0)]
    question = "Does lambda_train 0.05 balance the losses?"
    return planned_study(scale, question, [published_weight], contrasts)


def scoring(scale: Scale) -> Study:
    """Declare the primaries on ranks at inference, with checkpoints of SimCSE."""

    def by(label: str, scorer: Any = None, published: Published | None = None) -> Row:
        more = {"scorer": scorer} if scorer else {}
        return planned_row(scale, f"SimCSE, {label}", simcse_run(scale, BASE), SCORING, published=published, **more)

    cosine = by("cosine", published=_similar("E1"))
    ranks = by("ranks", rank_scorer(scale, 1.0), _similar("RankEncoder_E1 (Eq2)"))
    few = by("ranks of 1,000 sentences", rank_scorer(scale, 1.0, size=1_000))
    on_test = by("whitened on the test sentences", Whitened(pooling="cls", dims=64))
    on_corpus = by("whitened on the training sentences", Whitened(pooling="cls", dims=64, corpus=scale.corpus))
    return planned_study(
        scale,
        "Which of RankEncoder's claims about scoring hold?",
        [cosine, ranks, few, on_test, on_corpus],
        [
            must_help(on_test, cosine, SCORING, paired=True),
            must_not_help(on_corpus, cosine, SCORING, paired=True),
            primary("E1", SCORING, ranks, cosine, column=SIMILAR, paired=True),
            primary("E7", SCORING, ranks, few, paired=True),
        ],
    )


def spaces(scale: Scale) -> Study:
    """Declare the primary on rank vectors' uniformity, where lower is better."""

    def of(variant: str) -> Published:
        return Published("rankencoder_table2", "BERT-base", "SimCSE", variant)

    run, scorer = simcse_run(scale, BASE), rank_scorer(scale, 1.0)
    vectors = planned_row(scale, "SimCSE, vectors", run, SCORING, published=of("base"))
    ranks = planned_row(scale, "SimCSE, rank vectors", run, SCORING, scorer=scorer, published=of("rank vectors (Eq2)"))
    # The paper's gain on SimCSE is 0.81; an eighth of that counts as no gain.
    contrasts = [primary("E5", SCORING, vectors, ranks, column="uniformity", paired=True, margin=0.1)]
    return planned_study(scale, "Are rank vectors more uniform?", [vectors, ranks], contrasts)


STUDIES: dict[str, StudyAt] = named(
    {
        "plan-ranks": training,
        "plan-similar": similar_pairs,
        "plan-balance": balance,
        "plan-scoring": scoring,
        "plan-uniformity": spaces,
    }
)
