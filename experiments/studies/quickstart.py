"""Declare the quickstart: SimCSE and both RankCSE variants on synthetic sentences, two seeds, one teacher."""

from experiments.schema.hypotheses import beats
from experiments.schema.recipes import MakeRun, rankcse_with, simcse_run
from experiments.schema.rows import AS_IS, BASE, row
from experiments.schema.study import Row, Scale, Study, StudyAt, named
from experiments.studies.rankcse_tables import RANKS, SHORT_METHODS


def quickstart(scale: Scale) -> Study:
    """Return a small table that exercises every part; data/synthetic.py explains what it can't show."""

    def trained_row(label: str, make: MakeRun) -> Row:
        return row(scale, label, make(scale, BASE), BASE, None, short=SHORT_METHODS[label])

    backbone = scale.backbones[BASE]
    untrained = Row(label="wiki-tiny, untrained", short="untrained", encoder=backbone, backbone=BASE, select=AS_IS)
    simcse = trained_row("SimCSE", simcse_run)
    ours = [trained_row(title, rankcse_with(rank)) for rank, title in RANKS.items()]
    return Study(
        source="this project",
        question="Do training, scoring, tracking and tables work on this machine?",
        rows=(untrained, simcse, *ours),
        columns=("synthetic",),
        contrasts=tuple(beats(rankcse, simcse, claim="quickstart", column="synthetic") for rankcse in ours),
    )


STUDIES: dict[str, StudyAt] = named({"quickstart": quickstart})
