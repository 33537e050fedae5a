"""Declared rows have the settings that their labels state; what is expected is from the papers, not the studies."""

from typing import Any

import pytest

from cse_core.methods.compcse import CompCSE
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.run import Run
from cse_core.training.loop import CLIP
from experiments.schema.recipes import RUNS, simcse_run, teachers
from experiments.schema.scales import SCALES
from experiments.schema.study import Scale
from tests.experiments.studies.declared import rows

SIZES = ("small", "small-1m", "paper")
BASE, LARGE = "bert-base-uncased", "bert-large-uncased"
DROPOUT = ", dropout views"


def methods(name: str, kind: type, scale: str = "paper") -> dict[str, Any]:
    """Methods of a kind by label."""
    found = {label: row.encoder.method for label, row in rows(name, scale).items() if isinstance(row.encoder, Run)}
    return {label: method for label, method in found.items() if isinstance(method, kind)}


def taught(method: RankCSE, scale: Scale) -> dict[str, float]:
    """The shares of a student's teachers by the papers' names; asserts that each is the scale's own run of seed 42."""
    found = {}
    for teacher in method.teachers:
        run = teacher.encoder
        assert isinstance(run, Run)
        assert (run.seed, teacher.select) == (42, scale.dev)
        size = {scale.backbones[BASE]: "base", scale.backbones[LARGE]: "large"}[run.backbone]
        name = {"simcse": "SimCSE", "diffcse": "DiffCSE"}[run.method.name]
        assert run == RUNS[run.method.name](scale, BASE if size == "base" else LARGE)
        found[f"{name}-{size}"] = teacher.weight
    return found


@pytest.mark.parametrize("name", SIZES)
def test_of_two_teachers_the_first_named_has_a_third(name: str) -> None:
    """RankCSE, Section 3.3: alpha = 1/3 of the first, in the table's order."""
    found = methods("rankcse-table5", RankCSE, name)
    assert len(found) == 12
    for label, method in found.items():
        loss, _, named = label.partition(", ")
        declared = named.split("+")
        shares = [1.0] if len(declared) == 1 else [1 / 3, 2 / 3]
        assert taught(method, SCALES[name]) == dict(zip(declared, shares, strict=True)), label
        assert method.rank == {"RankCSE-listNet": "list_net", "RankCSE-listMLE": "list_mle"}[loss]


@pytest.mark.parametrize("name", SIZES)
def test_the_teachers_of_every_other_table_are_a_third_base_and_two_thirds_large(name: str) -> None:
    both = {"SimCSE-base": 1 / 3, "SimCSE-large": 2 / 3}
    for table in ("rankcse-table2", "rankcse-table4", "rankcse-figure3a", "rankcse-compute"):
        for label, method in methods(table, RankCSE, name).items():
            if "RoBERTa" not in label:
                ranked = label not in ("RankCSE w/o rank", "RankCSE w/o infoNCE,rank")
                assert taught(method, SCALES[name]) == (both if ranked else {}), label
    roberta = [(t.encoder.backbone.name, t.weight) for t in teachers(SCALES["paper"], "roberta-large")]  # ty: ignore
    assert roberta == [("roberta-base", 1 / 3), ("roberta-large", 2 / 3)]


@pytest.mark.parametrize("name", SIZES)
def test_alpha_is_the_smaller_teachers_share(name: str) -> None:
    shares = {"0": 0.0, "1/3": 1 / 3, "1/2": 1 / 2, "2/3": 2 / 3, "1": 1.0}
    found = methods("rankcse-mix", RankCSE, name)
    assert len(found) == 10
    for label, method in found.items():
        alpha = shares[label.split("alpha ")[1]]
        declared = {"SimCSE-base": alpha, "SimCSE-large": 1 - alpha}
        assert taught(method, SCALES[name]) == {teacher: share for teacher, share in declared.items() if share}


def test_ablations_leave_out_what_they_say() -> None:
    weights = {
        label: (m.contrastive_weight, m.consistency_weight, m.distillation_weight)
        for label, m in methods("rankcse-table4", RankCSE).items()
    }
    declared = {"full": (1, 1, 1), "w/o consistency": (1, 0, 1), "w/o infoNCE": (0, 1, 1)}
    declared |= {"w/o consistency,infoNCE": (0, 0, 1)}
    expected = {f"{loss} {name}": w for loss in ("RankCSE-listNet", "RankCSE-listMLE") for name, w in declared.items()}
    assert weights == expected | {"RankCSE w/o rank": (1, 1, 0), "RankCSE w/o infoNCE,rank": (0, 1, 0)}


@pytest.mark.parametrize("name", SIZES)
def test_temperatures_are_as_labelled(name: str) -> None:
    for label, m in methods("rankcse-figure3a", RankCSE, name).items():
        assert f"tau2 {m.student_temperature:g}, tau3 {m.teacher_temperature:g}" == label
        assert m.rank == "list_net"
    found = methods("rankcse-figure3b", RankCSE, name)
    for label, m in found.items():
        assert label.endswith(f", tau2 {m.student_temperature:g}")
        assert m.rank == "list_mle"
    assert len(found) == 3 * len(SCALES[name].backbones)


KINDS = {"PCA": "pca", "ZCA": "zca", "Group": "group", "Shuffled-Group": "shuffled_group"}
OBJECTIVES = {"outside (Eq. 7)": "outside", "inside (Eq. 8 as meant)": "inside", "Eq. 8 as printed": "inside_printed"}


@pytest.mark.parametrize("name", SIZES)
def test_whitening_is_as_labelled_and_dropout_views_are_where_they_are_said(name: str) -> None:
    for table in ("table1", "table2", "table3", "table4", "table5", "objective", "figure1", "figure3", "controls"):
        for label, m in methods(f"whitenedcse-{table}", WhitenedCSE, name).items():
            assert m.views == ("dropout" if label.endswith(DROPOUT) else "shared"), label
    for label, m in methods("whitenedcse-table3", WhitenedCSE, name).items():
        assert (m.whitening, m.positives) == (KINDS[label.split("-whitening")[0]], 3)
    for label, m in methods("whitenedcse-table5", WhitenedCSE, name).items():
        assert label.removesuffix(DROPOUT) == f"m={m.positives} positives"
    for label, m in methods("whitenedcse-objective", WhitenedCSE, name).items():
        assert m.objective == OBJECTIVES[label.removesuffix(DROPOUT)]
    kinds = {"batch norm of each channel": "channel", "random rotation": "rotation"}
    kinds |= {"three views, no whitening": "none", "extra dropout on shared features": "none"}
    for label, m in methods("whitenedcse-controls", WhitenedCSE, name).items():
        assert m.whitening == kinds.get(label.removesuffix(DROPOUT), "shuffled_group"), label
        assert m.feature_dropout == (0.1 if "extra dropout" in label else 0.0)


def test_the_modules_of_whitenedcse_are_as_labelled() -> None:
    found = methods("whitenedcse-table6", WhitenedCSE)
    assert {label: (m.whitening, m.views, m.positives) for label, m in found.items()} == {
        "SimCSE + SGW (m=2)": ("shuffled_group", "shared", 2),
        "SimCSE + SGW (m=2), dropout views": ("shuffled_group", "dropout", 2),
        "SimCSE + multi-positive k=3 (dropout)": ("none", "dropout", 3),
        "SimCSE + multi-positive k=4 (dropout)": ("none", "dropout", 4),
        "WhitenedCSE (SGW, m=3)": ("shuffled_group", "shared", 3),
        "WhitenedCSE (SGW, m=3), dropout views": ("shuffled_group", "dropout", 3),
    }


HOW = {"sum": "sum", "avg": "average", "concat first & last half": "concat", "concat + project": "concat_project"}
HOW |= {"concat w/ abs. difference + project": "difference_project"}
PHRASES = {"w/ composition": "none", "+adjacent": "adjacent", "+overlapping": "overlapping", "+subsuming": "subsuming"}


@pytest.mark.parametrize("name", SIZES)
def test_composition_is_as_labelled(name: str) -> None:
    for label, m in methods("compcse-table3", CompCSE, name).items():
        assert m.compose == HOW[label.rpartition(" ")[0]]
    for label, m in methods("compcse-table5", CompCSE, name).items():
        assert label == f"{m.parts} partitions"
    for table in ("compcse-table2", "compcse-figure2"):
        for label, m in methods(table, CompCSE, name).items():
            kind = label if label in PHRASES else label.rpartition(" ")[0]
            assert (m.subsampling, m.dims) == (PHRASES[kind], None), label
    made = {label: (m.compose, m.split_on) for label, m in methods("compcse-controls", CompCSE, name).items()}
    assert made == {
        "CompCSE": ("average", "wordpieces"),
        "first half alone": ("first", "wordpieces"),
        "one random crop": ("first", "crops"),
        "two random crops, composed": ("average", "crops"),
        "halves of shuffled words, composed": ("average", "shuffled"),
    }


@pytest.mark.parametrize("name", SIZES)
def test_rankencoders_settings_are_as_labelled(name: str) -> None:
    for label, m in methods("rankencoder-figure8", RankEncoder, name).items():
        assert m.rank_weight == float(label.partition("lambda_train ")[2] or 0.05)
    for label, m in methods("rankencoder-lambda", RankEncoder, name).items():
        assert label.startswith(f"lambda_train {m.rank_weight:g}, ")
    trained = {m.rank_weight for m in methods("rankencoder-lambda", RankEncoder, name).values()}
    larger = {2.5, 5.0, 25.0} if name == "small" else set()  # 50 times as large: the two losses are equal
    assert trained == {0.01, 0.05, 0.1, 0.5} | larger
    changed = {
        label: (m.similarity, m.lower, m.upper, m.start, m.combination, m.rank_weight)
        for label, m in methods("rankencoder-ranks", RankEncoder, name).items()
    }
    assert changed == {
        "RankEncoder": ("rank", 0.5, 0.8, "backbone", "maximum", 0.05),
        "centred cosines for ranks": ("centred", 0.5, 0.8, "backbone", "maximum", 0.05),
        "no filter": ("rank", -1.0, 1.0, "backbone", "maximum", 0.05),
        "no lower threshold": ("rank", -1.0, 0.8, "backbone", "maximum", 0.05),
        "continued from the base": ("rank", 0.5, 0.8, "base", "maximum", 0.05),
        "sum, lambda 5": ("rank", 0.5, 0.8, "backbone", "sum", 5.0),
        "sum, lambda 5, centred cosines": ("centred", 0.5, 0.8, "backbone", "sum", 5.0),
    }


def test_simcses_settings_are_the_released_ones() -> None:
    found = {}
    for backbone in SCALES["paper"].backbones:
        run = simcse_run(SCALES["paper"], backbone)
        assert run
        assert run.method == SimCSE(temperature=0.05)
        assert (run.epochs, run.warmup, run.dropout, run.max_length, run.eval_steps) == (1, 0.0, 0.1, 32, 125)
        assert run.precision == "bf16"  # the released code has fp16
        found[backbone] = (run.batch_size, run.learning_rate)
    assert found == {
        "bert-base-uncased": (64, 3e-5),
        "bert-large-uncased": (64, 1e-5),
        "roberta-base": (512, 1e-5),
        "roberta-large": (512, 3e-5),
    }
    assert CLIP == 1.0
