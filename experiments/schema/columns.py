"""What each column of a table shows. A task's name is also the name of its column; COLUMNS has all other columns."""

from dataclasses import dataclass

from cse_core.data.senteval import STS_TEST as STS
from cse_core.data.senteval import TRANSFER

# The headings of the papers' tables, as in the CSVs of published numbers. STS and transfer tables both have an "Avg",
# so rows of a transfer table name that heading themselves (Published.columns).
PUBLISHED_NAMES = {
    **{f"sts{year}": f"STS{year}" for year in range(12, 17)},
    "stsb": "STS-B",
    "sickr": "SICK-R",
    "stsb_dev": "STS-B dev",
    **{task: task.upper() for task in TRANSFER},
    "sst2": "SST",
}
PUBLISHED_NAMES |= {f"{task}_{kind}": PUBLISHED_NAMES[task] for task in STS for kind in ("groups", "sizes")}
PUBLISHED_NAMES |= {f"{task}_sizes": PUBLISHED_NAMES[task] for task in TRANSFER}
PUBLISHED_NAMES |= dict.fromkeys(("sts_avg", "groups_avg"), "Avg")

CURVE_FACTS = ("first ", "last ", "mean ", "near ", "below ")


@dataclass(frozen=True, kw_only=True)
class Column:
    """The unweighted mean of a metric over tasks, times `factor`.

    A column without tasks shows a `fact` about the row's run: the path of a setting ("method.temperature"), a cost of
    training ("seconds", "seconds_per_epoch"), or a word and a curve ("last loss/rank"). "first" and "last" are the
    curve's end values, "mean" is its mean over all steps, "near" the first step within a point of its best, and "below"
    its mean distance below its best so far. If the metric is empty, the row's is used, or the study's.
    """

    heading: str
    tasks: tuple[str, ...] = ()
    metric: str = ""
    factor: float = 100.0
    digits: int | None = 2  # after the decimal point; None: as many as the number needs
    fact: str = ""

    @property
    def is_of_curve(self) -> bool:
        """Whether the column shows a fact about a training curve, so that its runs must be trained."""
        return self.fact.startswith(CURVE_FACTS)


def _setting_column(heading: str, path: str) -> Column:
    return Column(heading=heading, fact=path, factor=1.0, digits=None)


def _minutes_column(heading: str, cost: str) -> Column:
    return Column(heading=heading, fact=cost, factor=1 / 60)


def _space_column(heading: str, task: str, metric: str) -> Column:
    return Column(heading=heading, tasks=(task,), metric=metric, factor=1.0, digits=3)


def _geometry_column(heading: str, metric: str) -> Column:
    return _space_column(heading, "stsb_dev_geometry", metric)


def _sample_columns(sample: str) -> dict[str, Column]:
    """Return the columns about a sample's distinct sentences: their projection, and all pairs of them."""
    return {
        f"{sample}_projection": _space_column("trustworthiness of UMAP", f"{sample}_projection", "trustworthiness"),
        f"{sample}_uniformity": _space_column("uniformity", f"{sample}_density", "uniformity"),
        f"{sample}_pair_mean": _space_column("cosine of two sentences, mean", f"{sample}_density", "cosine.mean"),
        f"{sample}_pair_sd": _space_column("its SD", f"{sample}_density", "cosine.sd"),
    }


def _spread_column(heading: str, kind: str) -> Column:
    return _space_column(f"spread of positives by {heading}", "stsb_dev_positives", f"spread.{kind}")


def _curve_end_column(end: str, name: str) -> Column:
    return Column(heading=f"{name} at the {end} dev score", fact=f"{end} {name}/stsb_dev", factor=1.0, digits=3)


def _average_column(heading: str, suffix: str, tasks: tuple[str, ...] = STS, metric: str = "") -> Column:
    return Column(heading=heading, tasks=tuple(f"{task}{suffix}" for task in tasks), metric=metric)


def _count_column(task: str, counts: str) -> Column:
    return Column(heading=PUBLISHED_NAMES[task], tasks=(f"{task}_{counts}",), factor=1.0, digits=0)


COLUMNS = {
    **{f"{task}_shared": _count_column(task, "gold") for task in STS},
    **{f"{task}_sizes": _count_column(task, "sizes") for task in (*STS, *TRANSFER)},
    "sts_avg": _average_column("STS avg", ""),
    "sts_avg_mean": _average_column("STS avg, mean of parts", "", metric="spearman.mean"),
    "sts_avg_wmean": _average_column("STS avg, weighted mean of parts", "", metric="spearman.wmean"),
    "sts_disjoint_avg": _average_column("STS avg without pairs of STS-B dev or train", "_disjoint"),
    "transfer_avg": _average_column("Transfer avg", "", TRANSFER),
    "transfer_fast_avg": _average_column("Transfer avg, fast setting", "_fast", TRANSFER),
    "groups_avg": _average_column("Avg", "_groups"),
    "kcc_avg": _average_column("KCC avg", "_groups", metric="kendall"),
    "ndcg_avg": _average_column("NDCG avg", "_groups", metric="ndcg.linear"),
    "alignment": _geometry_column("alignment", "alignment"),
    "uniformity": _geometry_column("uniformity", "uniformity"),
    "length_shortcut": _geometry_column("length shortcut", "length_shortcut"),
    **_sample_columns("stsb_dev"),
    **_sample_columns("stsb_sample"),
    "spread_dropout": _spread_column("dropout", "dropout"),
    "spread_whitened": _spread_column("whitening one pass", "whitened"),
    "spread_both": _spread_column("dropout and whitening", "both"),
    "start_weights": Column(heading="distance from the start, weights, %", tasks=("stsb_dev_start",), metric="weights"),
    "start_vectors": _space_column("distance from the start, vectors", "stsb_dev_start", "vectors"),
    "imbalance": Column(heading="imbalance of halves", tasks=("stsb_dev_halves",), metric="imbalance"),
    "left_nearer": Column(heading="first half nearer, %", tasks=("stsb_dev_halves",), metric="left"),
    "stsb_similar": Column(heading="STS-B test, similar pairs", tasks=("stsb_similar",)),
    "first_uniformity": _curve_end_column("first", "uniformity"),
    "last_uniformity": _curve_end_column("last", "uniformity"),
    "last_alignment": _curve_end_column("last", "alignment"),
    "shared_neighbours": Column(heading="shared of 100", tasks=("stsb_neighbours",), metric="shared", factor=1.0),
    "batch_size": _setting_column("batch", "batch_size"),
    "epochs": _setting_column("epochs", "epochs"),
    "learning_rate": _setting_column("learning rate", "learning_rate"),
    "tau1": _setting_column("tau1", "method.temperature"),
    "tau2": _setting_column("tau2", "method.student_temperature"),
    "tau3": _setting_column("tau3", "method.teacher_temperature"),
    "near_best": Column(
        heading="first step within a point of the best", fact="near dev/stsb_dev", factor=1.0, digits=1
    ),
    "below_best": Column(heading="below the best so far", fact="below dev/stsb_dev"),
    "last_contrastive": Column(
        heading="contrastive loss at the end", fact="last loss/contrastive", factor=1.0, digits=4
    ),
    "last_rank": Column(heading="rank loss at the end", fact="last loss/rank", factor=1.0, digits=4),
    "rank_larger": Column(heading="steps where the rank loss counts, %", fact="mean loss/share_rank_larger"),
    "last_rank_larger": Column(
        heading="steps where the rank loss counts, at the end, %", fact="last loss/share_rank_larger"
    ),
    "gain_trend": Column(
        heading="gain by shared neighbours", tasks=("stsb_neighbours",), metric="gain_trend", factor=1.0
    ),
    "time_min": _minutes_column("minutes", "seconds"),
    "time_per_epoch_min": _minutes_column("minutes an epoch", "seconds_per_epoch"),
}


LOW_IS_GOOD = {"alignment", "uniformity", "first_uniformity", "last_uniformity", "last_alignment"}
LOW_IS_GOOD |= {"stsb_dev_uniformity", "stsb_sample_uniformity"}
LOW_IS_GOOD |= {"length_shortcut", "imbalance", "time_min", "time_per_epoch_min"}


def _add_example_columns(task: str, count: int) -> tuple[str, ...]:
    """Add a column for each target of a query, as the published table names them; return the columns' names."""
    names = tuple(f"{task}.{i}" for i in range(1, count + 1))
    COLUMNS.update({n: Column(heading=n, tasks=(task,), metric=f"cosine.{n.split('.')[1]}", factor=1.0) for n in names})
    return names


# By published table: one column for each target of its queries, in the table's order.
EXAMPLE_COLUMNS = {
    "rankcse_table1": _add_example_columns("examples_eggs", 5) + _add_example_columns("examples_broccoli", 7),
    "rankcse_table12": _add_example_columns("examples_closed_path", 5) + _add_example_columns("examples_voltage", 5),
}


def column(name: str) -> Column:
    """Return a column by its name, which may be a task's."""
    return COLUMNS.get(name) or Column(heading=PUBLISHED_NAMES.get(name, name), tasks=(name,))
