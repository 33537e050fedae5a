"""RankEncoder's figures, and claims in its text: lambda, corpus size, cost."""

from cse_core.evaluation.scorers import Cosine
from experiments.plan.pilots import BALANCED_WEIGHT
from experiments.schema.columns import STS
from experiments.schema.hypotheses import Trend, Untested, beats, equals, is_positive, rises_over_bins
from experiments.schema.recipes import RUNS, simcse_run
from experiments.schema.rows import AS_IS, BASE, RANK_CORPUS, first_seed, rank_scorer, row
from experiments.schema.study import Row, Scale, Study, StudyAt, named
from experiments.studies.rankencoder_tables import PLUS, rankencoder_on

WEIGHTS = (0.01, 0.05, 0.1, 0.5)  # of lambda_train; 0.05 is the published one, at which both losses are equally large


def matched_weights(scale: Scale) -> tuple[float, ...]:
    """Return WEIGHTS scaled so that 0.05 becomes the weight of equal losses here; none where that is not known."""
    if scale.name != "small":
        return ()
    return tuple(round(BALANCED_WEIGHT * weight / 0.05, 9) for weight in WEIGHTS)


def figure6(scale: Scale) -> Study:
    """The gain of ranks over cosines against the number of neighbours that a pair shares."""
    simcse = row(scale, "SimCSE", simcse_run(scale, BASE), BASE, None, scorer=rank_scorer(scale, 1.0))
    return Study(
        question="Does the gain grow with the number of shared neighbours?",
        rows=(simcse,),
        columns=("shared_neighbours", "gain_trend"),
        contrasts=(rises_over_bins(simcse, claim="E4", column="gain_trend"),),
        view="neighbours",
        caption="Bins of equal width over SimCSE's cosine, those under twenty pairs merged with a neighbour.",
    )


def figure7(scale: Scale) -> Study:
    """A thousand sentences in two dimensions, as base vectors and as rank vectors."""
    run = RUNS["promptbert"](scale, BASE)
    ways = {"PromptBERT": Cosine(), "rank vectors": rank_scorer(scale, 1.0)}
    rows = [row(scale, label, run, BASE, None, scorer=scorer) for label, scorer in ways.items()]
    return Study(
        question="Do rank vectors lie more evenly than base vectors?",
        rows=tuple(rows),
        columns=("stsb_sample_projection", *("stsb_sample_uniformity", "stsb_sample_pair_mean", "stsb_sample_pair_sd")),
        metric="trustworthiness",
        view="spaces",
        caption="The paper does not name its projection.",
    )


def figure8(scale: Scale) -> Study:
    """The contrastive and the weighted rank loss over training, with published weights and with balanced ones."""

    def with_weight(weight: float, label: str = "") -> Row:
        run = rankencoder_on(scale, "SimCSE", rank_weight=weight)
        return row(scale, label or f"RankEncoder-SimCSE, lambda_train {weight:g}", run, BASE, None, vary="all")

    simcse = row(scale, "SimCSE", simcse_run(scale, BASE), BASE, None)
    ours, more = with_weight(0.05, "RankEncoder-SimCSE"), with_weight(0.5)
    matched = [with_weight(weight) for weight in matched_weights(scale)[1::2]]  # the published weight and tenfold
    tested = [beats(more, ours, claim="E6", column="last_contrastive"), is_positive(ours, "E6", "last_rank_larger")]
    if matched:
        balanced, ten_times = matched
        tested += [
            beats(ten_times, balanced, claim="E6", column="last_contrastive"),
            is_positive(balanced, "E6", "last_rank_larger"),
        ]
    return Study(
        question="Does lambda_train = 0.05 balance the two losses?",
        rows=(simcse, ours, more, *matched),
        columns=("stsb_dev", "last_contrastive", "last_rank", "last_rank_larger"),
        contrasts=tuple(tested),
        view="losses",
        caption="The paper's supervised SimCSE is not run: it needs NLI, which no scale here has.",
    )


def figure9(scale: Scale) -> Study:
    """The distribution of gold scores in each set."""
    gold = tuple(f"{task}_gold" for task in STS)
    rows = [
        Row(label="data", encoder=scale.backbones[BASE], backbone=BASE, select=AS_IS, metric="similar"),
        row(scale, "SimCSE", simcse_run(scale, BASE), BASE, None),
        row(scale, PLUS, rankencoder_on(scale, "SimCSE"), BASE, None, vary="all", scorer=rank_scorer(scale)),
    ]
    return Study(
        question="Which sets have many similar pairs (gold / 5 of at least 0.67), and are gains larger on those?",
        rows=tuple(rows),
        columns=(*gold, *STS),
        findings=(Trend("E9", PLUS, "SimCSE", STS, "data", gold),),
        view="densities",
        caption="Gold scores divided by 5.",
    )


def lambdas(scale: Scale) -> Study:
    """A grid of lambda_train and lambda_inf; the second needs no training.

    The values of lambda_train are the published ones, and those scaled to balance both losses here.
    """
    rows = []
    for train in sorted({*WEIGHTS, *matched_weights(scale)}):
        run = rankencoder_on(scale, "SimCSE", rank_weight=train)
        for inference in (0.0, 0.05, 0.1, 0.2, 0.5):
            scorer = rank_scorer(scale, inference) if inference else Cosine()
            label = f"lambda_train {train:g}, lambda_inf {inference:g}"
            rows.append(row(scale, label, run, BASE, None, scorer=scorer, short=f"RE {train:g}"))
    return Study(
        source="RankEncoder, A.2",
        question="How much rank in training, how much at inference? One seed.",
        rows=first_seed(rows, scale),
        view="grid",
    )


def cost(scale: Scale) -> Study:
    """Appendix A.7: training time with its preparation; the 1.8 % at inference is not measured."""
    rows = [
        row(scale, "SimCSE", simcse_run(scale, BASE), BASE, None),
        row(scale, "RankEncoder", rankencoder_on(scale, "SimCSE"), BASE, None),
    ]
    return Study(
        source="RankEncoder, A.7",
        question="Does training take three times SimCSE's?",
        rows=tuple(rows),
        columns=("time_min",),
        findings=(
            Untested(
                "E11", "training takes three times SimCSE's", "no benchmark trains its base and 100,000 sentences"
            ),
            Untested("E11", "inference takes 1.8 % more", "no benchmark of inference"),
        ),
    )


def corpus_sizes(scale: Scale) -> Study:
    """Footnote 5: ranks against corpora of increasing size, without training."""
    run, most = simcse_run(scale, BASE), scale.corpus.lines
    sizes = sorted({size for size in (1_000, 3_000, 10_000, 30_000, 100_000, min(most, RANK_CORPUS)) if size <= most})
    cosine = row(scale, "cosine", run, BASE, None)
    ranks = {
        size: row(scale, f"{size:,} corpus sentences", run, BASE, None, scorer=rank_scorer(scale, 1.0, size=size))
        for size in sizes
    }
    small, middle, large = ranks[sizes[0]], ranks[10_000], ranks[sizes[-1]]
    return Study(
        source="RankEncoder, footnote 5",
        question="Do gains rise with the corpus up to 10,000 sentences and stay there?",
        rows=(cosine, *ranks.values()),
        columns=("sts_avg", "stsb_similar"),
        contrasts=(beats(middle, small, claim="E7"), equals(large, middle, claim="E7")),
        view="lines",
    )


STUDIES: dict[str, StudyAt] = named(
    {
        "rankencoder-figure6": figure6,
        "rankencoder-figure7": figure7,
        "rankencoder-figure8": figure8,
        "rankencoder-figure9": figure9,
        "rankencoder-lambda": lambdas,
        "rankencoder-corpus": corpus_sizes,
        "rankencoder-cost": cost,
    }
)
