"""The embedded default: SimCSE and both RankCSE variants on synthetic sentences, two seeds, one teacher."""

from experiments.schema.hypotheses import Comparison
from experiments.schema.recipes import ranked, simcse_run
from experiments.schema.study import Row, Scale, Study, StudyAt
from experiments.studies.rankcse import RANKS, SHORT_METHODS

BASE = "bert-base-uncased"


def quickstart(scale: Scale) -> Study:
    """A small table that shows every part working; its docstring in data/synthetic.py says what it cannot show."""
    make = {"SimCSE": simcse_run} | {title: ranked(rank) for rank, title in RANKS.items()}
    untrained = scale.backbones[BASE]
    rows = [Row(label="wiki-tiny, untrained", short="untrained", encoder=untrained, backbone=BASE, select="as is")]
    for label, run in make.items():
        short, trained = SHORT_METHODS[label], run(scale, BASE)
        row = Row(label=label, short=short, encoder=trained, backbone=BASE, seeds=scale.seeds, select=scale.dev)
        rows.append(row)
    return Study(
        name="quickstart",
        source="this project",
        question="Do training, scoring, tracking and tables work on this machine?",
        scale=scale,
        rows=tuple(rows),
        columns=("synthetic",),
        comparisons=tuple(Comparison("quickstart", title, "SimCSE", task="synthetic") for title in RANKS.values()),
    )


STUDIES: dict[str, StudyAt] = {"quickstart": quickstart}
