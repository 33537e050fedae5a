"""The studies that decide RankCSE's claims, and RankEncoder's on transfer tasks."""

from dataclasses import replace
from functools import partial
from typing import Any

from cse_core.method import with_fields
from cse_core.methods.rankcse import Teacher
from cse_core.run import Pretrained, Run
from experiments.plan.pilots import MINILM, TEACHERS, TRANSFER, balanced_rankencoder
from experiments.plan.planned_rows import planned_row, planned_seeds, planned_simcse, planned_study, primary, printed
from experiments.schema.contrasts import must_help, must_not_help
from experiments.schema.recipes import mlm_run, present, rankcse_run, simcse_run
from experiments.schema.rows import BASE, LARGE, TRANSFER_AVG, row
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

NET = "RankCSE-listNet"
TABLE4 = {"sts_avg": "STS Avg", "transfer_avg": "TR Avg"}


def _rankcse_row(scale: Scale, label: str, rank: str = "list_net", name: str = "", **fields: Any) -> Row:
    """Return a row of RankCSE; `name` is the paper's row in Table 4."""
    published = Published("rankcse_table4", "BERT-base", name, columns=TABLE4) if name else None
    return planned_row(scale, label, rankcse_run(scale, BASE, rank, **fields), TEACHERS, published=published)


def _simcse(scale: Scale) -> Row:
    return planned_simcse(scale, TEACHERS, Published("rankcse_table4", "BERT-base", "SimCSE", columns=TABLE4))


def _net(scale: Scale) -> Row:
    return _rankcse_row(scale, "ListNet", name="RankCSE-listNet full")


def losses(scale: Scale) -> Study:
    """Declare the primaries on RankCSE's three losses, their temperatures and the form of the ranking loss."""
    rankcse_row = partial(_rankcse_row, scale)
    simcse, net, mle = _simcse(scale), _net(scale), rankcse_row("ListMLE", "list_mle", "RankCSE-listMLE full")
    no_consistency = rankcse_row(
        "ListNet w/o consistency", name="RankCSE-listNet w/o consistency", consistency_weight=0.0
    )
    no_rank = rankcse_row("no ranking loss", name="RankCSE w/o rank", distillation_weight=0.0)
    only_one: dict[str, Any] = {"distillation_weight": 0.0, "contrastive_weight": 0.0}
    only_consistency = rankcse_row("only consistency", name="RankCSE w/o infoNCE,rank", **only_one)
    reversed_ = rankcse_row("ListNet, tau2 a quarter of tau3", student_temperature=0.0125, teacher_temperature=0.05)
    run = present(rankcse_run(scale, BASE))
    squared_run = replace(run, method=with_fields(run.method, rank="mse"))
    squared = planned_row(scale, "squared error, same teachers", squared_run, TEACHERS)
    return planned_study(
        scale,
        "Which of RankCSE's losses matter, and is it the ranking?",
        [simcse, net, mle, no_consistency, no_rank, only_consistency, reversed_, squared],
        [
            primary("R1", TEACHERS, net, simcse),
            primary("R2", TEACHERS, mle, net, paired=True),
            primary("R3", TEACHERS, net, no_consistency, paired=True),
            primary("R4", TEACHERS, no_consistency, no_rank, paired=True),
            primary("R6", TEACHERS, simcse, only_consistency),
            primary("R9", TEACHERS, net, reversed_, paired=True),
            primary("R17", TEACHERS, net, squared, paired=True),
        ],
    )


def teachers(scale: Scale) -> Study:
    """Declare the primaries on teachers, larger backbones and more compute, and the family's controls."""

    def by(label: str, *models: Run | Pretrained | None, **fields: Any) -> Row:
        teachers_of_row = tuple(Teacher(model, 1 / len(models), scale.dev) for model in models if model)
        return _rankcse_row(scale, f"ListNet, {label}", teachers=teachers_of_row, **fields)

    base, large = simcse_run(scale, BASE), simcse_run(scale, LARGE)
    simcse, net = _simcse(scale), _net(scale)
    minilm, shuffled = by("MiniLM teaches", MINILM), by("MiniLM in shuffled order", MINILM, teacher_order="shuffled")
    untrained, small = by("the untrained backbone teaches", scale.backbones[BASE]), by("SimCSE teaches", base)
    larger_teacher = by("the larger SimCSE teaches", large)
    doubled = replace(base, epochs=2 * base.epochs, batch_size=2 * base.batch_size) if base else None
    more_compute = planned_row(scale, "SimCSE, twice the batch and the epochs", doubled, TEACHERS)
    table2 = Published("rankcse_table2", "BERT-large", "SimCSE")
    larger = planned_row(scale, "SimCSE, larger backbone", large, TEACHERS, LARGE, published=table2)
    return planned_study(
        scale,
        "What do RankCSE's teachers give?",
        [simcse, net, minilm, shuffled, untrained, small, larger_teacher, more_compute, larger],
        [
            must_help(minilm, simcse, TEACHERS),
            must_not_help(shuffled, simcse, TEACHERS),
            primary("R7", TEACHERS, small, untrained, paired=True),
            primary("R8", TEACHERS, (net, net), (small, larger_teacher), over=2, paired=True, added=_printed_r8()),
            primary("R15", TEACHERS, net, larger),
            primary("R16", TEACHERS, net, more_compute),
        ],
    )


def _printed_r8() -> float:
    """Return what Table 5 prints for R8: two teachers over the mean of either alone."""
    names = ("SimCSE-base+SimCSE-large", "SimCSE-base", "SimCSE-large")
    both, base, large = (printed("rankcse_table5", NET, f"teacher={name}", of="STS Avg") for name in names)
    return round(both - (base + large) / 2, 4)


def student_and_teacher(scale: Scale) -> Study:
    """Declare the primary on a student of the ranking loss alone, compared with its larger teacher of the same seed."""
    only_one: dict[str, Any] = {"consistency_weight": 0.0, "contrastive_weight": 0.0}
    student = replace(_rankcse_row(scale, "only ListNet, teachers of its seed", **only_one), vary="all")
    teacher = row(
        scale, "its larger teacher", simcse_run(scale, LARGE), LARGE, None, seeds=planned_seeds(scale, TEACHERS)
    )
    ours = printed("rankcse_table4", f"{NET} w/o consistency,infoNCE", of="STS Avg")
    effect = round(ours - printed("rankcse_table2", "SimCSE", backbone="BERT-large", of="Avg"), 4)
    contrasts = [primary("R5", TEACHERS, student, teacher, paired=True, added=effect)]
    question = "Does a student of rankings only beat its teachers?"
    return planned_study(scale, question, [student, teacher], contrasts)


def ranking(scale: Scale) -> Study:
    """Declare RankCSE's primary on rankings."""

    def over(name: str) -> Published:
        return Published("rankcse_table13", "BERT-base", name, "KCC", {"kcc_avg": "Avg"})

    simcse = planned_simcse(scale, TEACHERS, over("SimCSE"))
    mle = planned_row(scale, "ListMLE", rankcse_run(scale, BASE, "list_mle"), TEACHERS, published=over("RankCSE"))
    contrasts = [primary("R11", TEACHERS, mle, simcse, column="kcc_avg")]
    return planned_study(scale, "Does RankCSE rank better?", [simcse, mle], contrasts)


def alignment(scale: Scale) -> Study:
    """Declare RankCSE's primary on alignment, where lower is better."""
    simcse, net = planned_simcse(scale, TEACHERS), planned_row(scale, "ListNet", rankcse_run(scale, BASE), TEACHERS)
    # About a seventh of what SimCSE's alignment is at this scale.
    contrasts = [primary("R12", TEACHERS, simcse, net, column="alignment", margin=0.02)]
    return planned_study(scale, "Has RankCSE better alignment?", [simcse, net], contrasts)


def transfer(scale: Scale) -> Study:
    """Declare the primaries on transfer tasks."""

    def of(table: str, name: str) -> Published:
        return Published(table, "BERT-base", name, columns=TRANSFER_AVG)

    simcse = planned_simcse(scale, TRANSFER, of("rankcse_table3", "SimCSE"))
    net = planned_row(
        scale, "ListNet", rankcse_run(scale, BASE), TRANSFER, published=of("rankcse_table3", "RankCSE-listNet")
    )
    minilm, shuffled = (
        planned_row(scale, label, rankcse_run(scale, BASE, teachers=(Teacher(MINILM),), teacher_order=order), TRANSFER)
        for label, order in (("MiniLM teaches", "given"), ("MiniLM in shuffled order", "shuffled"))
    )
    mlm = mlm_run(scale, BASE)
    inner = balanced_rankencoder(scale)
    with_mlm = planned_row(scale, "SimCSE w/ MLM", mlm, TRANSFER, published=of("rankencoder_table3", "SimCSE w/ MLM"))
    both = replace(mlm, method=with_fields(mlm.method, inner=inner.method)) if mlm and inner else None
    name = "RankEncoder-SimCSE w/ MLM"
    ranks = planned_row(scale, name, both, TRANSFER, published=of("rankencoder_table3", name))
    column = "transfer_avg"
    return planned_study(
        scale,
        "Do RankCSE and RankEncoder improve transfer?",
        [simcse, net, minilm, shuffled, with_mlm, ranks],
        [
            must_help(minilm, simcse, TRANSFER, column=column),
            must_not_help(shuffled, simcse, TRANSFER, column=column),
            primary("R13", TRANSFER, net, simcse, column=column),
            primary("E10", TRANSFER, ranks, with_mlm, column=column),
        ],
    )


STUDIES: dict[str, StudyAt] = named(
    {
        "plan-losses": losses,
        "plan-student": student_and_teacher,
        "plan-teachers": teachers,
        "plan-ranking": ranking,
        "plan-alignment": alignment,
        "plan-transfer": transfer,
    }
)
