"""RankCSE's tables and figures as studies (Liu et al., ACL 2023)."""

from dataclasses import replace

from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from experiments.schema.columns import STS, TRANSFER
from experiments.schema.hypotheses import Comparison
from experiments.schema.recipes import BACKBONES, RUNS, rankcse_run, ranked, simcse_run
from experiments.schema.rows import BASE, LARGE, TRANSFER_AVG, row, rows_of
from experiments.schema.study import Published, Row, Scale, Study, StudyAt

SHORT = {"bert-base-uncased": "", "bert-large-uncased": " large", "roberta-base": " rob", "roberta-large": " rob-l"}
SHORT_METHODS = {"SimCSE": "SimCSE", "RankCSE-listNet": "Net", "RankCSE-listMLE": "MLE"}
RANKS = {"list_net": "RankCSE-listNet", "list_mle": "RankCSE-listMLE"}
NET, MLE = RANKS.values()
OURS = {title: ranked(rank) for rank, title in RANKS.items()}


def table2(scale: Scale) -> Study:
    """STS of all backbones."""
    titles = tuple(BACKBONES.values())
    comparisons = [Comparison("R1", f"{m} {b}", f"SimCSE {b}") for b in titles for m in OURS]
    comparisons += [Comparison("R2", f"{MLE} {b}", f"{NET} {b}") for b in titles]
    comparisons += [Comparison("R15", f"{m} BERT-base", "SimCSE BERT-large") for m in OURS]
    return Study(
        name="rankcse-table2",
        source="RankCSE, Table 2",
        question="Is RankCSE better than SimCSE on every backbone?",
        scale=scale,
        rows=tuple(map(_shortened, rows_of(scale, "rankcse_table2", OURS))),
        columns=(*STS, "sts_avg"),
        comparisons=tuple(comparisons),
    )


def table3(scale: Scale) -> Study:
    """Transfer of all backbones."""
    titles = tuple(BACKBONES.values())
    comparisons = [Comparison("R13", f"{m} {b}", f"SimCSE {b}", "transfer_avg") for b in titles for m in OURS]
    comparisons += [Comparison("R2", f"{NET} {b}", f"{MLE} {b}", "transfer_avg") for b in titles]
    return Study(
        name="rankcse-table3",
        source="RankCSE, Table 3",
        question="Does RankCSE improve transfer?",
        scale=scale,
        rows=tuple(map(_shortened, rows_of(scale, "rankcse_table3", OURS, TRANSFER_AVG))),
        columns=(*TRANSFER, "transfer_avg"),
        comparisons=tuple(comparisons),
    )


def _shortened(one: Row) -> Row:
    method = next((m for m in SHORT_METHODS if one.label.startswith(m) and one.encoder is not None), "")
    return replace(one, short=SHORT_METHODS[method] + SHORT[one.backbone]) if method else one


VARIED = ", teachers vary"
ABLATIONS = {
    "full": {},
    "w/o consistency": {"consistency_weight": 0.0},
    "w/o infoNCE": {"contrastive_weight": 0.0},
    "w/o consistency,infoNCE": {"consistency_weight": 0.0, "contrastive_weight": 0.0},
}
SHORT_ABLATIONS = dict(zip(ABLATIONS, ("", " -cons", " -nce", " alone"), strict=True))
TEACHER = "second teacher: SimCSE BERT-large"  # not a row of the paper's table, but its claim is about both teachers
STS_ONLY = {"sts_avg": "STS Avg"}
TABLE4_COLUMNS = STS_ONLY | {"transfer_avg": "TR Avg"}
TEMPERATURES = (0.0125, 0.025, 0.05)
# The paper's teachers in its order, with the share of each.
TEACHERS = {
    "SimCSE-base": (1.0,),
    "DiffCSE-base": (1.0,),
    "SimCSE-large": (1.0,),
    "SimCSE-base+DiffCSE-base": (1 / 3, 2 / 3),
    "SimCSE-base+SimCSE-large": (1 / 3, 2 / 3),
    "DiffCSE-base+SimCSE-large": (1 / 3, 2 / 3),
}


def table4(scale: Scale) -> Study:
    """Which of the three losses matters, on BERT-base."""

    def published(method: str) -> Published:
        return Published("rankcse_table4", "BERT-base", method, columns=TABLE4_COLUMNS)

    rows = [row(scale, "SimCSE", simcse_run(scale, BASE), BASE, published("SimCSE"))]
    for rank, title in RANKS.items():
        for name, changes in ABLATIONS.items():
            label = f"{title} {name}"
            short = SHORT_METHODS[title] + SHORT_ABLATIONS[name]
            rows.append(
                row(scale, label, rankcse_run(scale, BASE, rank, **changes), BASE, published(label), short=short)
            )
    rows.append(row(scale, TEACHER, simcse_run(scale, LARGE), LARGE, None))
    for name, contrastive, short in (
        ("RankCSE w/o rank", 1.0, "no rank"),
        ("RankCSE w/o infoNCE,rank", 0.0, "cons alone"),
    ):
        run = rankcse_run(scale, BASE, distillation_weight=0.0, contrastive_weight=contrastive)
        rows.append(row(scale, name, run, BASE, published(name), short=short))
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
        make = {"SimCSE": simcse_run} | OURS
        for method, vary in [*((name, "student") for name in make), *((name, "all") for name in RANKS.values())]:
            label = f"{method} {title}{VARIED if vary == 'all' else ''}"
            published = None  # of the paper's one row, beside fixed teachers
            if vary == "student":
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


def table5(scale: Scale) -> Study:
    """One or two of three teachers, by both losses."""
    rows, comparisons = [], []
    for rank, title in RANKS.items():
        named = {name: f"{title}, {name}" for name in TEACHERS}
        for name, label in named.items():
            run = rankcse_run(scale, BASE, rank, teachers=_teachers(scale, name))
            published = Published("rankcse_table5", "BERT-base", title, f"teacher={name}", STS_ONLY)
            short = f"{SHORT_METHODS[title]} {name.replace('SimCSE-', '').replace('-base', '')}"
            rows.append(row(scale, label, run, BASE, published, short=short))
        single, pairs = list(named)[:3], list(named)[3:]
        # In the paper both are better than the first, and as good as each other; here it depends.
        comparisons += [Comparison("R7", named[a], named[single[0]], given=(a, single[0])) for a in single[1:]]
        comparisons += [Comparison("R7", named[s], s) for s in single]
        comparisons += [Comparison("R8", named[p], named[one]) for p in pairs for one in p.split("+")]
    rows += [row(scale, name, _teacher(scale, name), _of(name), None) for name in list(TEACHERS)[:3]]
    return Study(
        name="rankcse-table5",
        source="RankCSE, Table 5",
        question="Which teachers make the best student?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        comparisons=tuple(comparisons),
    )


def _of(teacher: str) -> str:
    return LARGE if teacher.endswith("large") else BASE


def _teacher(scale: Scale, name: str) -> Run | None:
    return RUNS[name.split("-")[0].lower()](scale, _of(name))


def _teachers(scale: Scale, names: str) -> tuple[Teacher, ...]:
    """With the paper's shares: a third for the first of two."""
    runs = [_teacher(scale, name) for name in names.split("+")]
    shares = TEACHERS[names]
    return tuple(Teacher(run, share, scale.dev) for run, share in zip(runs, shares, strict=True) if run)


def mix(scale: Scale) -> Study:
    """How much of the two teachers: alpha of the smaller one, by both losses."""
    rows = []
    for rank, title in RANKS.items():
        for name, alpha in {"0": 0.0, "1/3": 1 / 3, "1/2": 0.5, "2/3": 2 / 3, "1": 1.0}.items():
            teachers = _mixed(scale, alpha)
            run = rankcse_run(scale, BASE, rank, teachers=teachers) if teachers else None
            rows.append(row(scale, f"{title}, alpha {name}", run, BASE, None, short=f"{SHORT_METHODS[title]} a{name}"))
    return Study(
        name="rankcse-mix",
        source="this project, after RankCSE, Section 3.3",
        question="How much of the smaller teacher (alpha), how much of the larger?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
    )


def _mixed(scale: Scale, alpha: float) -> tuple[Teacher, ...]:
    """A teacher without a share is left out, so that a single teacher has the key that it has elsewhere."""
    runs = {name: simcse_run(scale, name) for name in (BASE, LARGE)}
    shares = {BASE: alpha, LARGE: 1 - alpha}
    used = [name for name in runs if shares[name]]
    if any(runs[name] is None for name in used):
        return ()
    return tuple(Teacher(run, shares[name], scale.dev) for name, run in runs.items() if name in used and run)


def figure3a(scale: Scale) -> Study:
    """ListNet's student temperature by its teacher's."""
    rows, label = [], "tau2 {:g}, tau3 {:g}"
    for tau2 in TEMPERATURES:
        for tau3 in TEMPERATURES:
            run = rankcse_run(scale, BASE, student_temperature=tau2, teacher_temperature=tau3)
            rows.append(row(scale, label.format(tau2, tau3), run, BASE, None, short=f"Net {tau2:g}/{tau3:g}"))
    best = [label.format(2 * t, t) for t in TEMPERATURES[:2]]
    equal = [label.format(t, t) for t in TEMPERATURES[1:]]
    far = [label.format(TEMPERATURES[i], TEMPERATURES[-1 - i]) for i in (0, -1)]
    return Study(
        name="rankcse-figure3a",
        source="RankCSE, Figure 3a",
        question="Which temperatures are best for ListNet?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        comparisons=tuple(
            [Comparison("R9", b, e) for b, e in zip(best, equal, strict=True)]
            + [Comparison("R9", b, f) for b in best for f in far]
        ),
        view="grid",
        caption="The paper's figure has no printed numbers and clips what lies below 78.",
    )


def figure3b(scale: Scale) -> Study:
    """ListMLE's student temperature on every backbone."""
    rows, comparisons = [], []
    for backbone, title in BACKBONES.items():
        labels = [f"{title}, tau2 {tau2:g}" for tau2 in TEMPERATURES]
        for tau2, label in zip(TEMPERATURES, labels, strict=True):
            run = rankcse_run(scale, backbone, "list_mle", student_temperature=tau2)
            short = f"MLE{SHORT[backbone]} {tau2:g}"
            rows.append(row(scale, label, run, backbone, None, short=short))
        comparisons += [Comparison("R9", labels[1], labels[0])]
    return Study(
        name="rankcse-figure3b",
        source="RankCSE, Figure 3b",
        question="Which temperature is best for ListMLE?",
        scale=scale,
        rows=tuple(rows),
        columns=("sts_avg",),
        comparisons=tuple(comparisons),
        view="lines",
    )


STUDIES: dict[str, StudyAt] = {
    "rankcse-table2": table2,
    "rankcse-table3": table3,
    "rankcse-table4": table4,
    "rankcse-table5": table5,
    "rankcse-table6": table6,
    "rankcse-figure3a": figure3a,
    "rankcse-figure3b": figure3b,
    "rankcse-mix": mix,
}
