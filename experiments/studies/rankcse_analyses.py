"""RankCSE's analyses, as tables and figures: example rankings, data, settings, costs, embedding spaces."""

from cse_core.methods import rankcse
from cse_core.run import Run
from experiments.schema.columns import EXAMPLE_COLUMNS, STS, TRANSFER
from experiments.schema.hypotheses import Cost, Untested, beats, is_below
from experiments.schema.published_rows import baseline_row, rows_of
from experiments.schema.recipes import BACKBONES, RUNS, rankcse_run, recipe_for, simcse_run
from experiments.schema.rows import AS_IS, BASE, LARGE, TRANSFER_AVG, figure, first_seed, row, untrained_row
from experiments.schema.scales import SCALES
from experiments.schema.study import BY_TRANSFER, Published, Row, Scale, Study, StudyAt, named, published_lines
from experiments.studies.rankcse_tables import MLE, NET, OURS, RANKS

GOLD = "imported: gold scores of the data set"


def _example_rankings(table: str) -> StudyAt:
    """Return the study of example queries, with the human label and the encoders' cosines of each target."""

    def study(scale: Scale) -> Study:
        columns = {task: target for task, (_, target) in zip(EXAMPLE_COLUMNS[table], _targets(table), strict=True)}
        human = Published(table, "BERT-base", "human label", columns=columns)
        rows = [Row(label="human label", encoder=None, published=human, why=GOLD)]
        for label, run in _compared_runs(scale).items():
            method = {NET: None, MLE: "RankCSE", "DiffCSE": None}.get(label, label)
            published = Published(table, "BERT-base", method, columns=columns) if method else None
            rows.append(row(scale, label, run, BASE, published))
        return Study(
            source=f"RankCSE, Table {table.removeprefix('rankcse_table')}",
            question="How do the encoders rank the targets of a query? One seed.",
            rows=first_seed(rows, scale),
            columns=tuple(columns),
            view="examples",
        )

    return study


def _targets(table: str) -> list[tuple[str, str]]:
    """Return each distinct pair of query and target of a published table."""
    return list(dict.fromkeys((line["variant"], line["task"]) for line in published_lines(table)))


def _compared_runs(scale: Scale) -> dict[str, Run | None]:
    """Return the runs that the paper's analyses compare, RankCSE with both losses, as the paper does not name one."""
    return {
        "SimCSE": simcse_run(scale, BASE),
        "DiffCSE": RUNS["diffcse"](scale, BASE),
        NET: rankcse_run(scale, BASE),
        MLE: rankcse_run(scale, BASE, "list_mle"),
    }


def _measure_rows(scale: Scale, name: str, metric: str) -> dict[str, Row]:
    """Return the rows of one measure of Table 13, by method."""
    rows = {}
    for label, run in _compared_runs(scale).items():
        method = {NET: None, MLE: "RankCSE"}.get(label, label)
        published = Published("rankcse_table13", "BERT-base", method, name) if method else None
        rows[label] = row(scale, f"{label}, {name}", run, BASE, published, metric=metric, short=label)
    return rows


def table13(scale: Scale) -> Study:
    """Kendall's correlation and NDCG of sentences that occur in several pairs of a set."""
    measures = _measure_rows(scale, "KCC", "kendall"), _measure_rows(scale, "NDCG", "ndcg.linear")
    return Study(
        question="Does RankCSE rank better? The published row RankCSE, whose loss is not named, stands beside ListMLE.",
        rows=tuple(row for rows in measures for row in rows.values()),
        columns=(*(f"{task}_groups" for task in STS), "groups_avg"),
        contrasts=tuple(
            beats(rows[ours], rows[other], claim="R11", column="groups_avg")
            for rows in measures
            for ours in OURS
            for other in ("SimCSE", "DiffCSE")
        ),
    )


def figure1(scale: Scale) -> Study:
    """Table 13's averages as bars."""
    return figure(table13(scale), "rankcse-table13", "dots", columns=("groups_avg",))


def _split_sizes(scale: Scale, table: str, tasks: tuple[str, ...]) -> Study:
    rows = [
        Row(
            label=split,
            encoder=scale.backbones[BASE],
            backbone=BASE,
            select=AS_IS,
            metric=split,
            published=Published(table, "none", "dataset", split),
        )
        for split in ("train", "dev", "test")
    ]
    return Study(
        source=f"RankCSE, Table {table.removeprefix('rankcse_table')}",
        question="Are the data what the paper says?",
        rows=tuple(rows),
        columns=tuple(f"{task}_sizes" for task in tasks),
    )


def table7(scale: Scale) -> Study:
    """Pairs of each split of the STS sets."""
    return _split_sizes(scale, "rankcse_table7", STS)


def table8(scale: Scale) -> Study:
    """Labelled sentences of each split of the transfer sets."""
    return _split_sizes(scale, "rankcse_table8", TRANSFER)


def table9(scale: Scale) -> Study:
    """Published settings as cse_core has them; a scale may override them."""
    rows = []
    for backbone, title in BACKBONES.items():
        for rank, method in RANKS.items():
            recipe = recipe_for(rankcse.PUBLISHED, (rank, backbone))
            run = SCALES["paper"].run(recipe, backbone)
            rows.append(
                row(SCALES["paper"], f"{method} {title}", run, backbone, Published("rankcse_table9", title, method))
            )
    return Study(
        question="Are the published settings those that the core has?",
        rows=tuple(rows),
        columns=("batch_size", "learning_rate", "tau1", "tau2", "tau3"),
    )


def table11(scale: Scale) -> Study:
    """Recorded minutes of training; a teacher's time counts for the run that first embedded its corpus."""
    rows = []
    for backbone, size in ((BASE, "base"), (LARGE, "large")):
        made = {"SimCSE": simcse_run(scale, backbone), NET: rankcse_run(scale, backbone)}
        for label, run in made.items():
            published = Published("rankcse_table11", size, label.split("-")[0], "A100-40GB", columns={})
            rows.append(row(scale, f"{label} {BACKBONES[backbone]}", run, backbone, published))
    return Study(
        question="What does an epoch of RankCSE cost? APPENDIX's section on speed has the ratio measured by turns.",
        rows=tuple(rows),
        columns=("batch_size", "epochs", "time_min", "time_per_epoch_min"),
        caption="Minutes of a machine that had other work beside each run: rows can't be compared.",
        findings=(
            Cost("R14", "RankCSE epoch, base and large teacher, cold", 1.5),  # cold, as the paper's teachers embed too
            Untested("R14", "an epoch on the large backbone takes 1.2", "no benchmark trains one"),
        ),
    )


def figure4(scale: Scale) -> Study:
    """Alignment against uniformity, coloured by STS."""
    rows = {"untrained": untrained_row(scale, "untrained, mean", "last avg", BASE)}
    rows |= {label: row(scale, label, run, BASE, None) for label, run in _compared_runs(scale).items()}
    rows["PCL"] = baseline_row(scale, "PCL", "PCL", BASE)
    return Study(
        question="Does RankCSE trade alignment and uniformity better?",
        rows=tuple(rows.values()),
        columns=("alignment", "uniformity", "sts_avg"),
        contrasts=tuple(is_below(rows[ours], rows["SimCSE"], claim="R12", column="alignment") for ours in OURS),
        view="scatter",
    )


def figure5(scale: Scale) -> Study:
    """Cosines of dev pairs by gold score."""
    rows = [row(scale, label, run, BASE, None) for label, run in _compared_runs(scale).items()]
    return Study(
        question="How are cosines spread within each band of gold scores?",
        rows=first_seed(rows, scale),
        columns=("alignment",),
        view="ridges",
        caption="One seed.",
    )


def table10(scale: Scale) -> Study:
    """Transfer scores of the snapshot that is best on the transfer tasks' dev sets."""
    rows = rows_of(scale, "rankcse_table10", OURS, TRANSFER_AVG, select=BY_TRANSFER)
    return Study(
        question="Does RankCSE improve transfer when selected on transfer dev sets? One seed, four snapshots of a run.",
        rows=first_seed(rows.values(), scale),
        columns=(*TRANSFER, "transfer_avg"),
        contrasts=tuple(
            beats(rows[ours, b], rows["DiffCSE", b], claim="R13", column="transfer_avg")
            for b in ("BERT-base", "RoBERTa-base")
            for ours in OURS
        ),
    )


STUDIES: dict[str, StudyAt] = named(
    {
        "rankcse-table1": _example_rankings("rankcse_table1"),
        "rankcse-table7": table7,
        "rankcse-table8": table8,
        "rankcse-table9": table9,
        "rankcse-table10": table10,
        "rankcse-table11": table11,
        "rankcse-table12": _example_rankings("rankcse_table12"),
        "rankcse-table13": table13,
        "rankcse-figure1": figure1,
        "rankcse-figure4": figure4,
        "rankcse-figure5": figure5,
    }
)
