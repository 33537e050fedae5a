"""Every declared study by name."""

import re

from cse_core.lookup import look_up, unknown
from experiments.plan import pilots, plan_objectives, plan_orders, plan_rankcse, plan_rankencoder
from experiments.schema.scales import SCALES
from experiments.schema.study import Study, StudyAt
from experiments.studies import (
    compcse_tables,
    controls,
    quickstart,
    rankcse_analyses,
    rankcse_tables,
    rankencoder_analyses,
    rankencoder_tables,
    robustness,
    whitenedcse_tables,
)

PAPERS: dict[str, dict[str, StudyAt]] = {
    "rankcse": rankcse_tables.STUDIES | rankcse_analyses.STUDIES,
    "rankencoder": rankencoder_tables.STUDIES | rankencoder_analyses.STUDIES,
    "whitenedcse": whitenedcse_tables.STUDIES,
    "compcse": compcse_tables.STUDIES,
    "beyond": robustness.STUDIES | controls.STUDIES,
}
# What decides the claims (experiments/PLAN.md), and what chose its scale: no part of `all`, which is exploratory.
PLANNED: dict[str, dict[str, StudyAt]] = {
    "pilots": pilots.STUDIES,
    "plan": plan_rankcse.STUDIES | plan_rankencoder.STUDIES | plan_objectives.STUDIES | plan_orders.STUDIES,
}
EVERYTHING = ("all", *PLANNED)


def _place(name: str) -> tuple[int, int, str]:
    """A paper's tables by number, its figures by number, then what stands in its text."""
    found = re.search(r"-(table|figure)(\d+)(\w*)$", name)
    if not found:
        return (2, 0, "")
    return (("table", "figure").index(found[1]), int(found[2]), found[3])


STUDIES: dict[str, StudyAt] = {
    name: studies[name] for studies in PAPERS.values() for name in sorted(studies, key=_place)
}


def choose_studies(names: list[str], scale_name: str) -> list[Study]:
    """The studies of the given names: a study, a paper for all of its studies, `all`, or `quickstart`."""
    scale = look_up("scale", scale_name, SCALES)
    groups = PAPERS | PLANNED
    known = STUDIES | {name: study for group in PLANNED.values() for name, study in group.items()}
    found: dict[str, StudyAt] = {}
    for name in names:
        if name == "quickstart":
            found |= quickstart.STUDIES
        elif name == "all":
            found |= STUDIES
        elif name in groups:
            found |= groups[name]
        elif name in known:
            found[name] = known[name]
        else:
            raise unknown("study", name, ["all", "quickstart", *groups, *known])
    return [study(SCALES["quickstart"] if name == "quickstart" else scale) for name, study in found.items()]


def single(name: str, scale_name: str) -> Study:
    """The one study of a name; the names of several, as of a paper, are refused."""
    found = choose_studies([name], scale_name)
    if len(found) != 1:
        raise ValueError(
            f"{name} names {len(found)} studies; expected the name of one: {', '.join(s.name for s in found)}"
        )
    return found[0]
