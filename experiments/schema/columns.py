"""What a table's columns show. Every task is a column by its own name; the others are here by theirs."""

from dataclasses import dataclass

from cse_core.data.senteval import STS_TEST as STS
from cse_core.data.senteval import TRANSFER

# How the papers head their columns; the CSVs keep their words. STS and transfer tables both say "Avg", so a row of a
# transfer table names that column itself (Published.columns).
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


@dataclass(frozen=True, kw_only=True)
class Column:
    """The unweighted mean of a metric over tasks, times `factor`.

    Without tasks it is a fact of the row's run: a field by its path ("method.temperature"), what training it cost
    ("seconds", "seconds_per_epoch"), the end of a curve ("last loss/rank"), the first step within a point of a dev
    curve's best ("near dev/stsb_dev"), or how far the curve lies below its best so far in the mean ("below
    dev/stsb_dev"). The metric is the row's or the study's where it is empty.
    """

    heading: str
    tasks: tuple[str, ...] = ()
    metric: str = ""
    factor: float = 100.0
    digits: int | None = 2  # behind the point; None for as many as it takes
    fact: str = ""


def _setting(heading: str, path: str) -> Column:
    return Column(heading=heading, fact=path, factor=1.0, digits=None)


def _minutes(heading: str, cost: str) -> Column:
    return Column(heading=heading, fact=cost, factor=1 / 60)


def _space(heading: str, metric: str) -> Column:
    return Column(heading=heading, tasks=("stsb_dev_geometry",), metric=metric, factor=1.0, digits=3)


def _of_all(heading: str, suffix: str, tasks: tuple[str, ...] = STS, metric: str = "") -> Column:
    return Column(heading=heading, tasks=tuple(f"{task}{suffix}" for task in tasks), metric=metric)


def _sizes(task: str) -> Column:
    return Column(heading=PUBLISHED_NAMES[task], tasks=(f"{task}_sizes",), factor=1.0, digits=0)


def _shared(task: str) -> Column:
    return Column(heading=PUBLISHED_NAMES[task], tasks=(f"{task}_gold",), factor=1.0, digits=0)


COLUMNS = {
    **{f"{task}_shared": _shared(task) for task in STS},
    **{f"{task}_sizes": _sizes(task) for task in (*STS, *TRANSFER)},
    "sts_avg": _of_all("STS avg", ""),
    "sts_avg_mean": _of_all("STS avg, mean of parts", "", metric="spearman.mean"),
    "sts_avg_wmean": _of_all("STS avg, weighted mean of parts", "", metric="spearman.wmean"),
    "sts_disjoint_avg": _of_all("STS avg without pairs of STS-B dev or train", "_disjoint"),
    "transfer_avg": _of_all("Transfer avg", "", TRANSFER),
    "transfer_fast_avg": _of_all("Transfer avg, fast setting", "_fast", TRANSFER),
    "groups_avg": _of_all("Avg", "_groups"),
    "kcc_avg": _of_all("KCC avg", "_groups", metric="kendall"),
    "ndcg_avg": _of_all("NDCG avg", "_groups", metric="ndcg.linear"),
    "alignment": _space("alignment", "alignment"),
    "uniformity": _space("uniformity", "uniformity"),
    "length_shortcut": _space("length shortcut", "length_shortcut"),
    "imbalance": Column(heading="imbalance of halves", tasks=("stsb_dev_halves",), metric="imbalance"),
    "left_nearer": Column(heading="first half nearer, %", tasks=("stsb_dev_halves",), metric="left"),
    "stsb_similar": Column(heading="STS-B test, similar pairs", tasks=("stsb_similar",)),
    "shared_neighbours": Column(heading="shared of 100", tasks=("stsb_neighbours",), metric="shared", factor=1.0),
    "batch_size": _setting("batch", "batch_size"),
    "epochs": _setting("epochs", "epochs"),
    "learning_rate": _setting("learning rate", "learning_rate"),
    "tau1": _setting("tau1", "method.temperature"),
    "tau2": _setting("tau2", "method.student_temperature"),
    "tau3": _setting("tau3", "method.teacher_temperature"),
    "near_best": Column(
        heading="first step within a point of the best", fact="near dev/stsb_dev", factor=1.0, digits=1
    ),
    "below_best": Column(heading="below the best so far", fact="below dev/stsb_dev"),
    "last_contrastive": Column(
        heading="contrastive loss at the end", fact="last loss/contrastive", factor=1.0, digits=4
    ),
    "last_rank": Column(heading="rank loss at the end", fact="last loss/rank", factor=1.0, digits=4),
    "rank_larger": Column(heading="steps where the rank loss counts, %", fact="last loss/share_rank_larger"),
    "gain_trend": Column(
        heading="gain by shared neighbours", tasks=("stsb_neighbours",), metric="gain_trend", factor=1.0
    ),
    "time_min": _minutes("minutes", "seconds"),
    "time_per_epoch_min": _minutes("minutes an epoch", "seconds_per_epoch"),
}


def _examples(task: str, count: int) -> tuple[str, ...]:
    """A query's targets: the published table names each."""
    names = tuple(f"{task}.{i}" for i in range(1, count + 1))
    COLUMNS.update({n: Column(heading=n, tasks=(task,), metric=f"cosine.{n.split('.')[1]}", factor=1.0) for n in names})
    return names


# By the published table, one name a target of its queries, in its order.
EXAMPLE_COLUMNS = {
    "rankcse_table1": _examples("examples_eggs", 5) + _examples("examples_broccoli", 7),
    "rankcse_table12": _examples("examples_closed_path", 5) + _examples("examples_voltage", 5),
}


def column(name: str) -> Column:
    """The column of a name; a task is a column of its own."""
    return COLUMNS.get(name) or Column(heading=PUBLISHED_NAMES.get(name, name), tasks=(name,))
