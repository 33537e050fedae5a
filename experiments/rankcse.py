"""RankCSE's tables as studies (Liu et al., ACL 2023). Declared so far: Tables 2, 4 and 6."""

from typing import Any

from cse_core.run import Run
from experiments.columns import STS
from experiments.runs import BACKBONES, rankcse_run, ranked, simcse_run
from experiments.study import Comparison, Published, Row, Scale, Study, StudyAt, published_rows

SHORT = {"bert-base-uncased": "", "bert-large-uncased": " large", "roberta-base": " rob", "roberta-large": " rob-l"}
SHORT_METHODS = {"SimCSE": "SimCSE", "RankCSE-listNet": "Net", "RankCSE-listMLE": "MLE"}
RANKS = {"list_net": "RankCSE-listNet", "list_mle": "RankCSE-listMLE"}
NO_BACKBONE = "not run: this scale has no stand-in for {}"
IMPORTED = "imported: the paper took this row from elsewhere"


def row(scale: Scale, label: str, run: Run | None, backbone: str, published: Published, **more: Any) -> Row:
    """A row of a run, or of the published numbers alone where the scale has no such backbone."""
    why = "" if run else NO_BACKBONE.format(BACKBONES[backbone])
    seeds = scale.seeds_for(backbone)
    return Row(
        label=label, encoder=run, backbone=backbone, seeds=seeds, select=scale.dev, published=published, why=why, **more
    )


def table2(scale: Scale) -> Study:
    """STS of all backbones; rows that the paper imported and that the core has no method for stay imported."""
    rows = []
    for backbone, method, variant in dict.fromkeys(
        (line["backbone"], line["method"], line["variant"]) for line in published_rows("rankcse_table2")
    ):
        published = Published("rankcse_table2", backbone, method, variant)
        name = next((name for name, title in BACKBONES.items() if title == backbone), "")
        label = f"{method} {backbone}" if name else method
        ours = {"SimCSE": simcse_run} | {title: ranked(rank) for rank, title in RANKS.items()}
        if name and method in ours:
            short = SHORT_METHODS[method] + SHORT[name]
            rows.append(row(scale, label, ours[method](scale, name), name, published, short=short))
        else:
            rows.append(Row(label=label, encoder=None, backbone=name, published=published, why=IMPORTED))
    comparisons = [
        Comparison("R1", f"{title} {backbone}", f"SimCSE {backbone}")
        for backbone in BACKBONES.values()
        for title in RANKS.values()
    ]
    comparisons += [
        Comparison("R2", f"{RANKS['list_mle']} {b}", f"{RANKS['list_net']} {b}") for b in BACKBONES.values()
    ]
    comparisons += [Comparison("R15", f"{title} BERT-base", "SimCSE BERT-large") for title in RANKS.values()]
    return Study(
        name="rankcse-table2",
        source="RankCSE, Table 2",
        question="Is RankCSE better than SimCSE on every backbone?",
        scale=scale,
        rows=tuple(rows),
        columns=(*STS, "sts_avg"),
        comparisons=tuple(comparisons),
    )


VARIED = ", teachers vary"
ABLATIONS = {
    "full": {},
    "w/o consistency": {"consistency_weight": 0.0},
    "w/o infoNCE": {"contrastive_weight": 0.0},
    "w/o consistency,infoNCE": {"consistency_weight": 0.0, "contrastive_weight": 0.0},
}
SHORT_ABLATIONS = dict(zip(ABLATIONS, ("", " -cons", " -nce", " alone"), strict=True))
TEACHER = "second teacher: SimCSE BERT-large"  # not a row of the paper's table, but its claim is about both teachers
TABLE4_COLUMNS = {"sts_avg": "STS Avg", "transfer_avg": "TR Avg"}


def table4(scale: Scale) -> Study:
    """Which of the three losses matters, on BERT-base."""
    base = "bert-base-uncased"

    def published(method: str) -> Published:
        return Published("rankcse_table4", "BERT-base", method, columns=TABLE4_COLUMNS)

    rows = [row(scale, "SimCSE", simcse_run(scale, base), base, published("SimCSE"))]
    for rank, title in RANKS.items():
        for name, changes in ABLATIONS.items():
            label = f"{title} {name}"
            short = SHORT_METHODS[title] + SHORT_ABLATIONS[name]
            rows.append(
                row(scale, label, rankcse_run(scale, base, rank, **changes), base, published(label), short=short)
            )
    large, second = "bert-large-uncased", Published("rankcse_table2", "BERT-large", "SimCSE")
    rows.append(row(scale, TEACHER, simcse_run(scale, large), large, second))
    for name, contrastive, short in (
        ("RankCSE w/o rank", 1.0, "no rank"),
        ("RankCSE w/o infoNCE,rank", 0.0, "cons alone"),
    ):
        run = rankcse_run(scale, base, distillation_weight=0.0, contrastive_weight=contrastive)
        rows.append(row(scale, name, run, base, published(name), short=short))
    return Study(
        name="rankcse-table4",
        source="RankCSE, Table 4",
        question="Which of the three losses matters?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg", "transfer_avg"),
        comparisons=_table4_comparisons(),
    )


def _table4_comparisons() -> tuple[Comparison, ...]:
    full = [f"{title} full" for title in RANKS.values()]
    less = ("w/o consistency", "w/o infoNCE", "w/o consistency,infoNCE")
    alone = [f"{title} w/o consistency,infoNCE" for title in RANKS.values()]
    found = [Comparison("R1", f, "SimCSE") for f in full]
    found += [Comparison("R2", full[1], full[0]), Comparison("R2", full[0], full[1], task="transfer_avg")]
    found += [Comparison("R3", f"{t} full", f"{t} {part}") for t in RANKS.values() for part in less]
    found += [Comparison("R4", f"{t} {part}", "RankCSE w/o rank") for t in RANKS.values() for part in less[:2]]
    found += [Comparison("R5", a, teacher) for a in alone for teacher in ("SimCSE", TEACHER)]
    found += [Comparison("R6", "SimCSE", "RankCSE w/o infoNCE,rank")]
    return tuple(found)


def table6(scale: Scale) -> Study:
    """Mean and deviation over seeds; RankCSE once with fixed teachers and once with teachers of the same seed."""
    rows, comparisons = [], []
    for backbone, title in BACKBONES.items():
        make = {"SimCSE": simcse_run} | {name: ranked(rank) for rank, name in RANKS.items()}
        for method, vary in [*((name, "student") for name in make), *((name, "all") for name in RANKS.values())]:
            label = f"{method} {title}{VARIED if vary == 'all' else ''}"
            published = Published("rankcse_table6", title, method, columns=TABLE4_COLUMNS)
            run = make[method](scale, backbone)
            short = SHORT_METHODS[method] + SHORT[backbone] + (" tv" if vary == "all" else "")
            rows.append(row(scale, label, run, backbone, published, published_runs=5, vary=vary, short=short))
        comparisons += _table6_comparisons(title)
    return Study(
        name="rankcse-table6",
        source="RankCSE, Table 6",
        question="How much do the methods vary over seeds, with teachers fixed and with teachers varied?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg", "transfer_avg"),
        comparisons=tuple(comparisons),
    )


def _table6_comparisons(title: str) -> list[Comparison]:
    base, (net, mle) = f"SimCSE {title}", (f"{name} {title}" for name in RANKS.values())
    found = [Comparison("R10", f"{m}{how}", base, kind="spread") for m in (net, mle) for how in ("", VARIED)]
    found += [Comparison("R10", f"{mle}{how}", f"{net}{how}", kind="spread") for how in ("", VARIED)]
    found += [Comparison("R2", mle, net), Comparison("R2", net, mle, task="transfer_avg")]
    return found + [Comparison("R1", method, base) for method in (net, mle)]


STUDIES: dict[str, StudyAt] = {"rankcse-table2": table2, "rankcse-table4": table4, "rankcse-table6": table6}
