"""The teacher ladder: does a better teacher give a better student, as a dose and a response?

No table of the papers asks this, and it decides no claim: R7 compares two teachers. Students are shared with the plan
where it has the same ones: they have its length of training and the first five of its seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cse_core.evaluation.mixed_cosine import MixedCosine
from cse_core.evaluation.scorers import Cosine, Scorer, Whitened
from cse_core.methods.rankcse import Teacher
from cse_core.run import Pretrained, Run
from experiments.plan.pilots import MINILM, TEACHERS
from experiments.plan.planned_rows import SEEDS, planned_row, planned_simcse
from experiments.schema.contrasts import Contrast
from experiments.schema.published_rows import GLOVE
from experiments.schema.recipes import present, rankcse_run, simcse_run
from experiments.schema.rows import AS_IS, BASE, LARGE, NO_BACKBONE, row
from experiments.schema.study import Row, Scale, Study, StudyAt, named

LOSSES = {"ListNet": "list_net", "ListMLE": "list_mle"}
SIMCSE = "SimCSE"
# Names of the rungs, shared by all losses. The last one's teacher scores as MiniLM does, but its lists are shuffled.
SHUFFLED = "MiniLM, shuffled"
RUNGS = (
    "untrained [CLS]",
    "untrained mean",
    "GloVe",
    "untrained, whitened",
    "SimCSE",
    "larger SimCSE",
    "MiniLM + untrained",
    "MiniLM + SimCSE",
    "MiniLM",
    SHUFFLED,
)


def student_label(loss: str, rung: str) -> str:
    """Return the label of the row of a rung's student."""
    return f"{loss} taught by {rung}"


def teacher_label(rung: str) -> str:
    """Return the label of the row of a rung's teacher, whose STS score is the dose."""
    return f"teacher: {'MiniLM' if rung == SHUFFLED else rung}"


def _teachers(scale: Scale) -> dict[str, Sequence[Teacher]]:
    """Return the teachers of each rung; none where the scale has no stand-in for the larger backbone."""
    untrained, base, large = scale.backbones[BASE], present(simcse_run(scale, BASE)), simcse_run(scale, LARGE)

    def of(*models: Run | Pretrained, scorer: Any = None) -> Sequence[Teacher]:
        return tuple(Teacher(model, 1 / len(models), scale.dev, scorer) for model in models)

    return {
        "untrained [CLS]": of(untrained),
        "untrained mean": of(untrained, scorer=Cosine("mean")),
        "GloVe": of(GLOVE),
        "untrained, whitened": of(untrained, scorer=Whitened(corpus=scale.corpus)),
        "SimCSE": of(base),
        "larger SimCSE": of(large) if large else (),
        "MiniLM + untrained": of(MINILM, untrained),
        "MiniLM + SimCSE": of(MINILM, base),
        "MiniLM": of(MINILM),
        SHUFFLED: of(MINILM),
    }


def _student(scale: Scale, loss: str, rung: str, teachers: Sequence[Teacher]) -> Row:
    order = {"teacher_order": "shuffled"} if rung == SHUFFLED else {}
    run = rankcse_run(scale, BASE, LOSSES[loss], teachers=tuple(teachers), **order) if teachers else None
    short = f"{loss[4:]} {rung.replace('untrained', 'none').replace('MiniLM', 'LM')}"
    student = planned_row(scale, "", run, TEACHERS, short=short, seeds=SEEDS)
    why = "" if teachers else NO_BACKBONE.format("BERT-large")
    return replace(student, label=student_label(loss, rung), why=why)


def _teacher(scale: Scale, rung: str, teachers: Sequence[Teacher]) -> Row:
    """Return the row of a teacher's own score: one run of the first seed, or an encoder that needs no training."""
    label, backbone = teacher_label(rung), LARGE if rung.startswith("larger") else BASE
    if not teachers:
        return row(scale, label, None, LARGE, None)
    *others, last = teachers
    scorer = last.scorer or Cosine()
    for other in others:
        assert isinstance(other.encoder, Pretrained)
        scorer = MixedCosine(other=other.encoder, share=other.weight)
    assert isinstance(scorer, Scorer)
    if isinstance(last.encoder, Run):
        seeds = (last.encoder.seed,)
        return row(scale, label, last.encoder, backbone, None, seeds=seeds, scorer=scorer, select=last.select)
    return Row(label=label, encoder=last.encoder, backbone=backbone, scorer=scorer, select=AS_IS)


def ladder(scale: Scale) -> Study:
    """Declare RankCSE's students with teachers from bad to good, for both losses, and the teachers' own scores."""
    teachers: Mapping[str, Sequence[Teacher]] = _teachers(scale)
    simcse = planned_simcse(scale, TEACHERS)
    length = simcse.label.removeprefix("SimCSE, ") if simcse.label != SIMCSE else "the scale's length of training"
    students = [_student(scale, loss, rung, teachers[rung]) for loss in LOSSES for rung in RUNGS]
    measured = [_teacher(scale, rung, teachers[rung]) for rung in RUNGS if rung != SHUFFLED]
    trained = [student.label for student in students if student.encoder]
    return Study(
        source="this project",
        question="Does a better teacher give a better student?",
        rows=(replace(simcse, label=SIMCSE, seeds=SEEDS), *students, *measured),
        contrasts=tuple(Contrast(family=TEACHERS, plus=(label,), minus=(SIMCSE,)) for label in trained),
        view="ladder",
        caption=f"Exploratory. All students and SimCSE: {length}. A mix of two teachers is the mean of their cosines.",
    )


STUDIES: dict[str, StudyAt] = named({"ladder": ladder})
