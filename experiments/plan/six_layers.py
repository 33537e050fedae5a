"""The second plan (PLAN2.md) on six layers: stage C's scale, and the published settings there with more seeds."""

from dataclasses import replace

from experiments.plan.pilots import COMPOSITION, WHITENING
from experiments.plan.second_plan import contrast, stage_study
from experiments.schema.recipes import RUNS
from experiments.schema.rows import BASE, row
from experiments.schema.scales import PLANNED_SEEDS, WIKI_MEDIUM
from experiments.schema.study import Row, Scale, Study, StudyAt, named

SEEDS = (801, 802, *PLANNED_SEEDS[:5])  # the first two are stage C's


def on_six_layers(small: Scale) -> Scale:
    """Return the scale `small` on wiki-medium, for one epoch."""
    rescaled = {
        **small.rescaled,
        "whitenedcse": {BASE: {"groups": 128}},  # two channels in each, as in the paper
        "compcse": {BASE: {"dims": 85}},  # a third of the dimensions, as in the paper
    }
    training = {**small.training, "max_steps": 256}  # one epoch, also for what won with two
    return replace(small, backbones={BASE: WIKI_MEDIUM}, width=256, rescaled=rescaled, training=training)


def published(scale: Scale) -> Study:
    """Declare SimCSE, WhitenedCSE and CompCSE in their published settings on six layers."""
    six = on_six_layers(scale)

    def ours(label: str, method: str, **fields: str) -> Row:
        return row(
            six,
            label,
            RUNS[method](six, BASE, **fields),
            BASE,
            None,
            seeds=SEEDS,
            note="wiki-medium in place of wiki-tiny",
        )

    simcse = ours("SimCSE", "simcse")
    whitened = ours("WhitenedCSE, dropout views", "whitenedcse", views="dropout")
    composed = ours("CompCSE", "compcse")
    return stage_study(
        "Which methods gain over SimCSE on six layers, where nothing is tuned?",
        [simcse, whitened, composed],
        contrast("published settings", WHITENING, whitened, simcse, paired=False),
        contrast("published settings", COMPOSITION, composed, simcse, paired=False),
    )


STUDIES: dict[str, StudyAt] = named({"plan2-six-layers": published})
