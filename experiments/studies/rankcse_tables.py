"""RankCSE's tables and figures as studies (Liu et al., ACL 2023)."""

from dataclasses import replace

from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from experiments.schema.columns import STS, TRANSFER
from experiments.schema.hypotheses import beats, beats_teacher, varies_less
from experiments.schema.published_rows import rows_of
from experiments.schema.recipes import BACKBONES, RUNS, rankcse_run, rankcse_with, simcse_run
from experiments.schema.rows import BASE, LARGE, TRANSFER_AVG, row
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

SHORT = {"bert-base-uncased": "", "bert-large-uncased": " large", "roberta-base": " rob", "roberta-large": " rob-l"}
SHORT_METHODS = {"SimCSE": "SimCSE", "RankCSE-listNet": "Net", "RankCSE-listMLE": "MLE"}
RANKS = {"list_net": "RankCSE-listNet", "list_mle": "RankCSE-listMLE"}
NET, MLE = RANKS.values()
OURS = {title: rankcse_with(rank) for rank, title in RANKS.items()}


def table2(scale: Scale) -> Study:
    """STS on all backbones."""
    rows = rows_of(scale, "rankcse_table2", OURS)
    contrasts = [beats(rows[ours, b], rows["SimCSE", b], claim="R1") for b in BACKBONES.values() for ours in OURS]
    contrasts += [beats(rows[MLE, b], rows[NET, b], claim="R2") for b in BACKBONES.values()]
    contrasts += [beats(rows[ours, "BERT-base"], rows["SimCSE", "BERT-large"], claim="R15") for ours in OURS]
    return Study(
        question="Is RankCSE better than SimCSE on every backbone?",
        rows=tuple(map(_with_short_name, rows.values())),
        columns=(*STS, "sts_avg"),
        contrasts=tuple(contrasts),
    )


def table3(scale: Scale) -> Study:
    """Transfer on all backbones."""
    rows, column = rows_of(scale, "rankcse_table3", OURS, TRANSFER_AVG), "transfer_avg"
    contrasts = [beats(rows[ours, b], rows["SimCSE", b], "R13", column) for b in BACKBONES.values() for ours in OURS]
    contrasts += [beats(rows[NET, b], rows[MLE, b], "R2", column) for b in BACKBONES.values()]
    return Study(
        question="Does RankCSE improve transfer?",
        rows=tuple(map(_with_short_name, rows.values())),
        columns=(*TRANSFER, "transfer_avg"),
        contrasts=tuple(contrasts),
    )


def _with_short_name(full: Row) -> Row:
    method = next((m for m in SHORT_METHODS if full.label.startswith(m) and full.encoder is not None), "")
    return replace(full, short=SHORT_METHODS[method] + SHORT[full.backbone]) if method else full


VARIED = ", teachers vary"
ABLATIONS: dict[str, dict[str, float]] = {
    "full": {},
    "w/o consistency": {"consistency_weight": 0.0},
    "w/o infoNCE": {"contrastive_weight": 0.0},
    "w/o consistency,infoNCE": {"consistency_weight": 0.0, "contrastive_weight": 0.0},
}
SHORT_ABLATIONS = {"full": "", "w/o consistency": " -cons", "w/o infoNCE": " -nce", "w/o consistency,infoNCE": " alone"}
TEACHER = "second teacher: SimCSE BERT-large"  # not in the paper's table, but its claim R5 is about both teachers
STS_ONLY = {"sts_avg": "STS Avg"}
TABLE4_COLUMNS = STS_ONLY | {"transfer_avg": "TR Avg"}
TEMPERATURES = (0.0125, 0.025, 0.05)
# The paper's teachers in its order, with their weights.
TEACHERS = {
    "SimCSE-base": (1.0,),
    "DiffCSE-base": (1.0,),
    "SimCSE-large": (1.0,),
    "SimCSE-base+DiffCSE-base": (1 / 3, 2 / 3),
    "SimCSE-base+SimCSE-large": (1 / 3, 2 / 3),
    "DiffCSE-base+SimCSE-large": (1 / 3, 2 / 3),
}


def table4(scale: Scale) -> Study:
    """Ablation of the three losses on BERT-base."""

    def published_row(method: str) -> Published:
        return Published("rankcse_table4", "BERT-base", method, columns=TABLE4_COLUMNS)

    def ours(rank: str, part: str) -> Row:
        label, short = f"{RANKS[rank]} {part}", SHORT_METHODS[RANKS[rank]] + SHORT_ABLATIONS[part]
        run = rankcse_run(scale, BASE, rank, **ABLATIONS[part])
        return row(scale, label, run, BASE, published_row(label), short=short)

    def without_rank(label: str, contrastive: float, short: str) -> Row:
        run = rankcse_run(scale, BASE, distillation_weight=0.0, contrastive_weight=contrastive)
        return row(scale, label, run, BASE, published_row(label), short=short)

    simcse = row(scale, "SimCSE", simcse_run(scale, BASE), BASE, published_row("SimCSE"))
    net = {part: ours("list_net", part) for part in ABLATIONS}
    mle = {part: ours("list_mle", part) for part in ABLATIONS}
    teacher = row(scale, TEACHER, simcse_run(scale, LARGE), LARGE, None)
    no_rank = without_rank("RankCSE w/o rank", 1.0, "no rank")
    consistency_alone = without_rank("RankCSE w/o infoNCE,rank", 0.0, "cons alone")
    _, *less = ABLATIONS
    (*without_one, without_both), first = less, scale.seeds[0]
    return Study(
        question="Which of the three losses matters?",
        rows=(simcse, *net.values(), *mle.values(), teacher, no_rank, consistency_alone),
        columns=("sts_avg", "transfer_avg"),
        contrasts=(
            *(beats(rows["full"], simcse, claim="R1") for rows in (net, mle)),
            beats(mle["full"], net["full"], claim="R2"),
            beats(net["full"], mle["full"], claim="R2", column="transfer_avg"),
            *(beats(rows["full"], rows[part], claim="R3") for rows in (net, mle) for part in less),
            *(beats(rows[part], no_rank, claim="R4") for rows in (net, mle) for part in without_one),
            *(beats_teacher(rows[without_both], by, "R5", first) for rows in (net, mle) for by in (simcse, teacher)),
            beats(simcse, consistency_alone, claim="R6"),
        ),
    )


def table6(scale: Scale) -> Study:
    """Mean and deviation over seeds; RankCSE once with fixed teachers, once with teachers of the student's seed."""
    rows, contrasts = [], []
    for backbone in BACKBONES:
        simcse = _row_over_seeds(scale, backbone, "SimCSE")
        net, mle = (_row_over_seeds(scale, backbone, method) for method in (NET, MLE))
        net_varied, mle_varied = (_row_over_seeds(scale, backbone, method, vary="all") for method in (NET, MLE))
        rows += [simcse, net, mle, net_varied, mle_varied]
        contrasts += [varies_less(ours, simcse, claim="R10") for ours in (net, net_varied, mle, mle_varied)]
        contrasts += [varies_less(mle, net, claim="R10"), varies_less(mle_varied, net_varied, claim="R10")]
        contrasts += [beats(mle, net, claim="R2"), beats(net, mle, claim="R2", column="transfer_avg")]
        contrasts += [beats(net, simcse, claim="R1"), beats(mle, simcse, claim="R1")]
    return Study(
        question="How much do the methods vary over seeds, with teachers fixed and with teachers varied?",
        rows=tuple(rows),
        columns=("sts_avg", "transfer_avg"),
        contrasts=tuple(contrasts),
    )


def _row_over_seeds(scale: Scale, backbone: str, method: str, vary: str = "student") -> Row:
    """Return a row of Table 6; the paper's only row of a method is shown with ours of fixed teachers."""
    title, varied = BACKBONES[backbone], vary == "all"
    published = None if varied else Published("rankcse_table6", title, method, columns=TABLE4_COLUMNS)
    run = ({"SimCSE": simcse_run} | OURS)[method](scale, backbone)
    short = SHORT_METHODS[method] + SHORT[backbone] + (" tv" if varied else "")
    label = f"{method} {title}{VARIED if varied else ''}"
    return row(scale, label, run, backbone, published, published_runs=5, vary=vary, short=short)


def table5(scale: Scale) -> Study:
    """One or two of three teachers, for both losses."""
    singles = [name for name in TEACHERS if "+" not in name]
    pairs = [name for name in TEACHERS if "+" in name]
    teachers = {name: row(scale, name, _teacher_run(scale, name), _backbone_of(name), None) for name in singles}
    rows, contrasts = [], []
    for rank in RANKS:
        students = {name: _student_row(scale, rank, name) for name in TEACHERS}
        rows += students.values()
        (first, *better), seed = singles, scale.seeds[0]  # in the paper the others are better teachers than the first
        contrasts += [beats(students[name], students[first], claim="R7") for name in better]
        contrasts += [beats_teacher(students[name], teachers[name], "R7", seed) for name in singles]
        contrasts += [beats(students[pair], students[name], claim="R8") for pair in pairs for name in pair.split("+")]
    return Study(
        question="Which teachers make the best student?",
        rows=(*rows, *teachers.values()),
        contrasts=tuple(contrasts),
    )


def _student_row(scale: Scale, rank: str, names: str) -> Row:
    title = RANKS[rank]
    run = rankcse_run(scale, BASE, rank, teachers=_teachers(scale, names))
    published = Published("rankcse_table5", "BERT-base", title, f"teacher={names}", STS_ONLY)
    short = f"{SHORT_METHODS[title]} {names.replace('SimCSE-', '').replace('-base', '')}"
    return row(scale, f"{title}, {names}", run, BASE, published, short=short)


def _backbone_of(teacher: str) -> str:
    return LARGE if teacher.endswith("large") else BASE


def _teacher_run(scale: Scale, name: str) -> Run | None:
    return RUNS[name.split("-")[0].lower()](scale, _backbone_of(name))


def _teachers(scale: Scale, names: str) -> tuple[Teacher, ...]:
    """Return the named teachers with the paper's weights: a third for the first of two."""
    runs = [_teacher_run(scale, name) for name in names.split("+")]
    shares = TEACHERS[names]
    return tuple(Teacher(run, share, scale.dev) for run, share in zip(runs, shares, strict=True) if run)


def mix(scale: Scale) -> Study:
    """The weight alpha of the smaller of two teachers, for both losses."""
    rows = []
    for rank, title in RANKS.items():
        for name, alpha in {"0": 0.0, "1/3": 1 / 3, "1/2": 0.5, "2/3": 2 / 3, "1": 1.0}.items():
            teachers = _weighted_teachers(scale, alpha)
            run = rankcse_run(scale, BASE, rank, teachers=teachers) if teachers else None
            rows.append(row(scale, f"{title}, alpha {name}", run, BASE, None, short=f"{SHORT_METHODS[title]} a{name}"))
    return Study(
        source="this project, after RankCSE, Section 3.3",
        question="How much of the smaller teacher (alpha), how much of the larger?",
        rows=tuple(rows),
    )


def _weighted_teachers(scale: Scale, alpha: float) -> tuple[Teacher, ...]:
    """Return the two teachers with weights alpha and 1 - alpha; leave out weight 0, to share single-teacher runs."""
    runs = {name: simcse_run(scale, name) for name in (BASE, LARGE)}
    shares = {BASE: alpha, LARGE: 1 - alpha}
    used = [name for name in runs if shares[name]]
    if any(runs[name] is None for name in used):
        return ()
    return tuple(Teacher(run, shares[name], scale.dev) for name, run in runs.items() if name in used and run)


def figure3a(scale: Scale) -> Study:
    """ListNet's student and teacher temperatures."""

    def at(tau2: float, tau3: float) -> Row:
        run = rankcse_run(scale, BASE, student_temperature=tau2, teacher_temperature=tau3)
        return row(scale, f"tau2 {tau2:g}, tau3 {tau3:g}", run, BASE, None, short=f"Net {tau2:g}/{tau3:g}")

    rows = {(tau2, tau3): at(tau2, tau3) for tau2 in TEMPERATURES for tau3 in TEMPERATURES}
    low, middle, high = TEMPERATURES
    doubled = rows[middle, low], rows[high, middle]
    return Study(
        question="Which temperatures are best for ListNet?",
        rows=tuple(rows.values()),
        contrasts=(
            beats(rows[middle, low], rows[middle, middle], claim="R9"),
            beats(rows[high, middle], rows[high, high], claim="R9"),
            *(beats(best, far, claim="R9") for best in doubled for far in (rows[low, high], rows[high, low])),
        ),
        view="grid",
        caption="The paper's figure has no printed numbers and clips what lies below 78.",
    )


def figure3b(scale: Scale) -> Study:
    """ListMLE's student temperature on every backbone."""

    def at(tau2: float, backbone: str) -> Row:
        run = rankcse_run(scale, backbone, "list_mle", student_temperature=tau2)
        label, short = f"{BACKBONES[backbone]}, tau2 {tau2:g}", f"MLE{SHORT[backbone]} {tau2:g}"
        return row(scale, label, run, backbone, None, short=short)

    rows = {(tau2, backbone): at(tau2, backbone) for backbone in BACKBONES for tau2 in TEMPERATURES}
    low, middle, _ = TEMPERATURES
    return Study(
        question="Which temperature is best for ListMLE?",
        rows=tuple(rows.values()),
        contrasts=tuple(beats(rows[middle, b], rows[low, b], claim="R9") for b in BACKBONES),
        view="lines",
    )


STUDIES: dict[str, StudyAt] = named(
    {
        "rankcse-table2": table2,
        "rankcse-table3": table3,
        "rankcse-table4": table4,
        "rankcse-table5": table5,
        "rankcse-table6": table6,
        "rankcse-figure3a": figure3a,
        "rankcse-figure3b": figure3b,
        "rankcse-mix": mix,
    }
)
