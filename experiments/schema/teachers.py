"""Write a run's teachers and bases as text, for the column `teachers` of runs.csv."""

from collections.abc import Iterator

from cse_core.run import Pretrained, Run, parts_of, rule_of


def teachers_of(encoder: Run | Pretrained) -> str:
    """Return the text of a run's teachers and bases: `KEY/RULE xWEIGHT` for each, joined by " + "; "" if none.

    RULE selects one of the teacher's checkpoints. A teacher that is not trained here is written as name and content
    hash. Bases of RankEncoder have no weight.
    """
    return " + ".join(_teachers(encoder)) if isinstance(encoder, Run) else ""


def _teachers(run: Run) -> Iterator[str]:
    for teacher, owners in parts_of(run.method, Run, Pretrained):
        owner = owners[0]
        weight, scorer = getattr(owner, "weight", None), getattr(owner, "scorer", None)
        more = ("" if weight is None else f" x{weight!r}") + (f" by {scorer}" if scorer else "")
        if isinstance(teacher, Run):
            yield f"{teacher.key}/{rule_of(owners)}{more}"
        elif hasattr(owner, "select"):  # otherwise it teaches nothing, such as DiffCSE's generator
            yield f"{teacher.name}:{teacher.sha256[:12]}{more}"
