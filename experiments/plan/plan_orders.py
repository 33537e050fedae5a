"""The studies of claims that are not contrasts of means: spreads, orders, trends, costs; and of this study's own."""

from dataclasses import replace
from typing import Any

from experiments.plan.pilots import SCORING, TEACHERS, balanced_rankencoder
from experiments.plan.planned_rows import contrasts_at, planned_row, planned_simcse, primary
from experiments.schema.columns import STS
from experiments.schema.hypotheses import (
    NEGLIGIBLE_COST_RATIO,
    Cost,
    Order,
    Trend,
    Untested,
    rises_over_bins,
    varies_less,
)
from experiments.schema.recipes import RUNS, rankcse_run, simcse_run
from experiments.schema.rows import AS_IS, BASE, rank_scorer, row
from experiments.schema.study import Row, Scale, Study, StudyAt, named

SOURCE = "this project, PLAN.md"
# The family whose controls say whether a claim can be judged; costs are measured by benchmarks and have none.
FAMILY_OF = {"R10": TEACHERS} | dict.fromkeys(("E4", "E9", "S1", "S3", "S4"), SCORING)


def orders(scale: Scale) -> Study:
    """Declare this study's own claims: the order of methods by other averages and checkpoints, gains over SimCSE."""
    runs = {
        "ListNet": rankcse_run(scale, BASE),
        "ListMLE": rankcse_run(scale, BASE, "list_mle"),
        "WhitenedCSE": RUNS["whitenedcse"](scale, BASE),
        "CompCSE": RUNS["compcse"](scale, BASE),
        "PromptBERT": RUNS["promptbert"](scale, BASE),
    }
    rows = {"SimCSE": planned_simcse(scale, SCORING)}
    rows |= {label: planned_row(scale, label, run, SCORING) for label, run in runs.items()}
    about: dict[str, Any] = {"vary": "all", "scorer": rank_scorer(scale)}
    rows["RankEncoder"] = planned_row(scale, "RankEncoder", balanced_rankencoder(scale), SCORING, **about)
    last = [replace(line, label=f"{line.label}, last", select="last") for line in rows.values()]
    labels = tuple(line.label for line in rows.values())
    columns = {"S1": "sts_disjoint_avg", "S4": "sts_avg_wmean"}
    papers = [rows[name] for name in ("ListNet", "RankEncoder", "WhitenedCSE", "CompCSE")]
    return Study(
        source=SOURCE,
        question="Is the order of methods the same by every way to look, and do gains exceed what seeds do?",
        rows=(*rows.values(), *last),
        columns=("sts_avg", *columns.values()),
        contrasts=contrasts_at(scale, [primary("S2", SCORING, papers, [rows["SimCSE"]] * 4, over=4)]),
        findings=(
            *(Order(claim, labels, "sts_avg", column) for claim, column in columns.items()),
            Order("S3", labels, "sts_avg", "sts_avg", suffix=", last"),
        ),
    )


def spread(scale: Scale) -> Study:
    """Declare the test of RankCSE's variation over seeds, with fixed teachers as in the paper."""
    simcse, net = planned_simcse(scale, TEACHERS), planned_row(scale, "ListNet", rankcse_run(scale, BASE), TEACHERS)
    return Study(
        source=SOURCE,
        question="Does RankCSE vary less over seeds than SimCSE?",
        rows=(simcse, net),
        contrasts=(varies_less(net, simcse, claim="R10"),),
    )


def neighbours(scale: Scale) -> Study:
    """Declare the test of whether ranks gain more with more shared neighbours."""
    ranks = _simcse_by_ranks(scale)
    return Study(
        source=SOURCE,
        question="Do ranks gain more for pairs with shared neighbours?",
        rows=(ranks,),
        columns=("gain_trend",),
        contrasts=(rises_over_bins(ranks, claim="E4", column="gain_trend"),),
    )


def trends(scale: Scale) -> Study:
    """Declare the test of whether ranks gain more on sets with many similar pairs."""
    cosine, ranks = planned_row(scale, "SimCSE, cosine", simcse_run(scale, BASE), SCORING), _simcse_by_ranks(scale)
    data = Row(label="data", encoder=scale.backbones[BASE], backbone=BASE, select=AS_IS, metric="similar")
    gold = tuple(f"{task}_gold" for task in STS)
    return Study(
        source=SOURCE,
        question="Do ranks gain more on sets with many similar pairs?",
        rows=(data, cosine, ranks),
        columns=(*gold, *STS),
        findings=(Trend("E9", ranks.label, cosine.label, STS, "data", gold),),
    )


def _simcse_by_ranks(scale: Scale) -> Row:
    return planned_row(scale, "SimCSE, ranks", simcse_run(scale, BASE), SCORING, scorer=rank_scorer(scale, 1.0))


def costs(scale: Scale) -> Study:
    """Declare the claims about costs; benchmarks measure them by running both sides in turns."""
    simcse = row(scale, "SimCSE", simcse_run(scale, BASE), BASE, None, seeds=scale.seeds[:1])
    return Study(
        source=SOURCE,
        question="What do the methods cost?",
        rows=(simcse,),
        columns=("time_min",),
        findings=(
            Cost("R14", "RankCSE epoch, base and large teacher, cold", 1.5),
            Cost("W8", "WhitenedCSE shared, step", NEGLIGIBLE_COST_RATIO, at_most=True),
            Untested("E11", "three times SimCSE's training", "no benchmark trains with the paper's 100,000 sentences"),
        ),
    )


STUDIES: dict[str, StudyAt] = named(
    {
        "plan-orders": orders,
        "plan-spread": spread,
        "plan-neighbours": neighbours,
        "plan-trends": trends,
        "plan-costs": costs,
    }
)
