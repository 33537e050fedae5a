"""The embedded default: SimCSE and both RankCSE variants on synthetic sentences, two seeds, one teacher."""

from experiments.rankcse import RANKS, ranked, simcse_run
from experiments.study import Comparison, Row, Scale, Study, StudyAt

BASE = "bert-base-uncased"


def quickstart(scale: Scale) -> Study:
    """A small table that shows every part working; its docstring in cse_core/synthetic.py says what it cannot show."""
    make = {"SimCSE": simcse_run} | {title: ranked(rank) for rank, title in RANKS.items()}
    rows = [
        Row(label="wiki-tiny, untrained", encoder=scale.backbones[BASE], backbone=BASE, select="as is"),
        *(
            Row(label=label, encoder=run(scale, BASE), backbone=BASE, seeds=scale.seeds, select=scale.dev)
            for label, run in make.items()
        ),
    ]
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
