"""Every method is a run with its published settings, rescaled if the width doesn't allow these, and with its bases."""

from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from cse_core.methods import METHODS, compcse, whitenedcse
from cse_core.methods.sncse import SNCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution
from cse_core.training.train import train
from experiments.run import build, options_for
from experiments.schema.recipes import RUNS, rankcse_run, rankencoder_run
from experiments.schema.scales import SCALES, WIKI_MINI
from experiments.schema.study import Row
from experiments.studies.beyond_papers import methods
from experiments.studies.catalogue import choose_studies
from tests.support.method_steps import template_of

BASE, LARGE = "bert-base-uncased", "bert-large-uncased"
SMALL, PAPER = SCALES["small"], SCALES["paper"]


def made(name: str, scale: Any = SMALL, backbone: str = BASE, **changes: Any) -> Run:
    run = RUNS[name](scale, backbone, **changes)
    assert run is not None
    return run


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_method_is_a_run_at_every_scale(name: str, scale: str) -> None:
    run = made(name, SCALES[scale])
    assert run.method.name == name
    assert run.backbone == SCALES[scale].backbones[BASE]
    assert template_of(run.method) == run.template
    assert RUNS[name](SMALL, "roberta-base") is None


def test_the_small_scales_rescale_what_the_width_does_not_allow_and_nothing_else() -> None:
    changes = {
        "whitenedcse": {"groups": 128 // 2},
        "compcse": {"dims": 43},
        "diffcse": {"generator": WIKI_MINI},
        "sncse": {"negation": "words"},
        "mocose": {"momentum_steps": 256},
        "arccse": {"shortest": 12},
    }
    for name in set(METHODS) - {"rankcse", "rankencoder", "mlm", "dclr", "l2pcsr", "ct"}:  # whose runs need other runs
        published: Any = METHODS[name].recipes()[BASE].method
        assert made(name, PAPER).method == published
        assert made(name).method == replace(published, **changes.get(name, {}))
    assert made("whitenedcse", SMALL, LARGE).method == whitenedcse.WhitenedCSE(groups=128 // 4)
    assert made("sncse", SMALL, LARGE).method == SNCSE()
    large = made("compcse", SMALL, LARGE).method
    assert large == compcse.PUBLISHED[LARGE].method  # with all its dimensions
    assert made("whitenedcse", SMALL, LARGE, groups=16).method == whitenedcse.WhitenedCSE(groups=16)


@pytest.mark.parametrize("base", ["simcse", "promptbert", "sncse"])
def test_rankencoder_trains_as_its_base_was_trained(base: str) -> None:
    run, taught = made("rankencoder", base=base), made(base)
    method: Any = run.method
    assert run.nested_checkpoints == ((taught, "stsb_dev"),)
    assert method.inner == taught.method
    assert (run.pooling, run.template) == (taught.pooling, taught.template)
    assert (method.corpus_size, method.rank_weight) == (10_000, 0.05)
    released: Any = rankencoder_run(PAPER, BASE, base, "released_code")
    assert released.method.combination == ("maximum" if base == "promptbert" else "sum")
    assert released.method.upper == (0.8 if base == "promptbert" else 0.9999)


def test_dclr_has_the_family_bases_complement_and_large_models_start_from_simcse() -> None:
    base, large = made("simcse"), made("simcse", SMALL, LARGE)
    small: Any = made("dclr").method
    assert (small.complement, small.initial, small.select) == (base, None, "stsb_dev")
    big: Any = made("dclr", SMALL, LARGE)
    assert (big.method.complement, big.method.initial) == (base, large)
    assert big.nested() == (base, large)
    roberta: Any = made("dclr", PAPER, "roberta-large").method
    assert roberta.complement == made("simcse", PAPER, "roberta-base")
    assert roberta.initial == made("simcse", PAPER, "roberta-large")
    assert made("dclr", threshold=2.0).nested() == ()
    options = options_for("dclr")(complement="mixcse", initial="simcse", noise_times=2.0)
    chosen: Any = build("dclr", options).method
    assert (chosen.complement, chosen.initial, chosen.noise_times) == (made("mixcse"), base, 2.0)


def test_l2pcsr_starts_from_simcse_at_a_thirtieth_of_its_rate_or_from_the_backbone_at_its_own() -> None:
    base, run = made("simcse"), made("l2pcsr")
    method: Any = run.method
    assert (method.initial, method.select, method.layers) == (base, "stsb_dev", 2)
    assert (run.learning_rate, run.nested()) == (1e-5, (base,))
    assert run.learning_rate == pytest.approx(base.learning_rate / 30)
    plain: Any = build("l2pcsr", options_for("l2pcsr")(initial="", steps=0))
    assert (plain.method.initial, plain.method.steps, plain.learning_rate) == (None, 0, base.learning_rate)
    published: Any = made("l2pcsr", PAPER)
    assert (published.learning_rate, published.eval_steps, published.batch_size) == (1e-6, 50, 256)
    assert published.method.layers == 3


def test_the_command_line_takes_a_list_of_augmentations() -> None:
    run = build("pcl", options_for("pcl")(augmentations=("inverse", "deletion"), positive_weight=0.5))
    assert run == made("pcl", augmentations=("inverse", "deletion"), positive_weight=0.5)


def test_what_is_not_published_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no published settings for bert-large-uncased; expected one of bert-base"):
        made("promptbert", SMALL, LARGE)
    with pytest.raises(ValueError, match="settings for paper compcse bert-base-uncased; expected one of paper simcse"):
        made("rankencoder", base="compcse")


def test_the_squared_error_has_the_settings_of_the_recorded_control() -> None:
    run = build("rankcse", options_for("rankcse")(rank="mse", scale="small", seed=42))
    (study,) = choose_studies(["rankcse-distillation"], "small")
    (control,) = [row for row in study.rows if row.label == "squared error, same teachers"]
    assert run in control.runs()


def test_the_masked_language_loss_can_be_added_to_any_method() -> None:
    run, inner = made("mlm", inner="rankencoder", mlm_weight=0.2), made("rankencoder")
    method: Any = run.method
    assert replace(run, method=inner.method) == inner
    assert (method.inner, method.mlm_weight) == (inner.method, 0.2)
    assert run.nested() == inner.nested()


def test_the_command_line_names_bases_and_changes_fields() -> None:
    kind = options_for("rankencoder")
    run = build("rankencoder", kind(base="promptbert", lower=0.4, seed=3))
    assert run == replace(made("rankencoder", base="promptbert", lower=0.4), seed=3)
    assert build("mlm", options_for("mlm")(inner="compcse")) == made("mlm", inner="compcse")
    whitened: Any = build("whitenedcse", options_for("whitenedcse")(detach=False, groups=32)).method
    assert (whitened.detach, whitened.groups) == (False, 32)


def test_a_row_names_the_substitutes_of_its_method_and_of_the_methods_within_it() -> None:
    rows = {row.label: row.substitute for row in methods(SMALL).rows}
    found = {label for label, text in rows.items() if text}
    assert found == {"SNCSE", "RankEncoder on SNCSE", "ArcCSE", "L2P-CSR", "IS-BERT"}
    cut = made("compcse", subsampling="overlapping")
    assert "clause splitter" in Row(label="a", encoder=cut).substitute
    assert "clause splitter" in Row(label="a", encoder=made("compcse", SMALL, LARGE)).substitute
    assert Row(label="a", encoder=cut, why="another reason").substitute == "another reason"
    assert Row(label="a", encoder=Pretrained("a")).substitute == Row(label="a", encoder=None, why="no").substitute == ""
    assert rankcse_run(SMALL, "roberta-base") is None


TUNED = ("simcse", "rankcse", "rankencoder", "whitenedcse", "compcse", "esimcse")
OTHERS = [name for name in (*METHODS, "rankencoder on sncse") if name not in TUNED]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TUNED, *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHERS)])
def test_every_method_learns_on_real_sentences(name: str, tmp_path: Path, real_data: Path) -> None:
    rescaled = {**SMALL.rescaled, "rankencoder": {BASE: {"corpus_size": 500}}}
    batch = 64 if name == "whitenedcse" else 32  # its loss is too noisy in batches of 32
    scale = replace(SMALL, corpus=Corpus("wiki_sentences_1m", 16 * batch), rescaled=rescaled)
    # From one pass WhitenedCSE's views are so alike that its loss is next to nothing from the first step on.
    changes: dict[str, Any] = {"whitenedcse": {"views": "dropout"}, "rankencoder on sncse": {"base": "sncse"}}
    changes["mocose"] = {"queue_size": 0, "first": 0}  # while its queue fills, its loss rises with every step
    changes["l2pcsr"] = {"initial": ""}  # from SimCSE's run, at a thirtieth of its rate, there is little left to learn
    run = replace(made(name.partition(" ")[0], scale, **changes.get(name, {})), batch_size=batch)
    if name == "consert":
        run = replace(run, learning_rate=3e-4)  # its own is too low to show in 16 steps
    for nested in run.nested():
        train(nested, Execution(tmp_path, data=real_data), rules=("stsb_dev",))
    losses = [value for _, value in train(run, Execution(tmp_path, data=real_data)).curves["loss"]]
    assert len(losses) == 16
    assert mean(losses[-4:]) < 0.9 * mean(losses[:4])
