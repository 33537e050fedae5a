"""Every declared study by name."""

import re
from pathlib import Path

from cse_core.lookup import look_up, unknown
from experiments.plan import (
    first_plan_again,
    headline,
    ladder,
    pilots,
    plan_objectives,
    plan_orders,
    plan_rankcse,
    plan_rankencoder,
    second_plan,
    six_layers,
    stage_d,
)
from experiments.schema.scales import RELEASED, SCALES
from experiments.schema.study import Scale, Study, StudyAt
from experiments.storage.record_folders import is_own_study
from experiments.studies import (
    baselines,
    beyond_papers,
    compcse_tables,
    controls,
    quickstart,
    rankcse_analyses,
    rankcse_tables,
    rankencoder_analyses,
    rankencoder_tables,
    released,
    whitenedcse_tables,
)
from experiments.studies.own_study import load_study

PAPERS: dict[str, dict[str, StudyAt]] = {
    "rankcse": rankcse_tables.STUDIES | rankcse_analyses.STUDIES,
    "rankencoder": rankencoder_tables.STUDIES | rankencoder_analyses.STUDIES,
    "whitenedcse": whitenedcse_tables.STUDIES,
    "compcse": compcse_tables.STUDIES,
    "beyond": beyond_papers.STUDIES | controls.STUDIES | baselines.STUDIES | ladder.STUDIES,
}
# These studies decide the claims (experiments/PLAN.md) or chose its scale. `all` is exploratory and omits them.
PLANNED: dict[str, dict[str, StudyAt]] = {
    "pilots": pilots.STUDIES,
    "plan": plan_rankcse.STUDIES | plan_rankencoder.STUDIES | plan_objectives.STUDIES | plan_orders.STUDIES,
}
EVERYTHING = ("all", *PLANNED)
SECOND_PLAN = "plan2"  # experiments/PLAN2.md
AT_SMALL = second_plan.STUDIES | first_plan_again.STUDIES | six_layers.STUDIES
# Studies that have a fixed scale, whichever scale the others are run at.
OWN_SCALES = {
    "quickstart": SCALES["quickstart"],
    **dict.fromkeys(("released", *released.STUDIES), RELEASED),
    **dict.fromkeys(AT_SMALL, SCALES["small"]),
    **dict.fromkeys(stage_d.STUDIES, SCALES["minilm"]),
    **dict.fromkeys(headline.STUDIES, SCALES["paper"]),
}
ONLY_OWN = ("released", "minilm")  # scales at which no other study is run


def _order_in_paper(name: str) -> tuple[int, int, str]:
    """Return a sort key: tables by number, figures by number, then studies of the paper's text."""
    match = re.search(r"-(table|figure)(\d+)(\w*)$", name)
    if not match:
        return (2, 0, "")
    return (("table", "figure").index(match[1]), int(match[2]), match[3])


STUDIES: dict[str, StudyAt] = {
    name: studies[name] for studies in PAPERS.values() for name in sorted(studies, key=_order_in_paper)
}


def names_at(scale_name: str) -> list[str]:
    """Return the names of all studies at a scale, except `headline`, which is a part of the plan."""
    return list(fixed_at(scale_name)) or [
        *EVERYTHING,
        *(name for name in _with_scale(scale_name) if name not in headline.STUDIES),
    ]


def fixed_at(scale_name: str) -> tuple[str, ...]:
    """Return the studies of a scale that allows no others; `released` is one name for all of its studies."""
    if scale_name in ("quickstart", RELEASED.name):
        return (scale_name,)
    return tuple(_with_scale(scale_name)) if scale_name in ONLY_OWN else ()


def _with_scale(scale_name: str) -> list[str]:
    return [name for name, scale in OWN_SCALES.items() if scale.name == scale_name]


def choose_studies(names: list[str], scale_name: str) -> list[Study]:
    """Return the studies of the given names: of a study, a file, a group such as a paper, `all`, or `quickstart`.

    Studies in OWN_SCALES keep their fixed scale.
    """
    scale = look_up("scale", scale_name, SCALES | {RELEASED.name: RELEASED})
    groups = PAPERS | PLANNED | {SECOND_PLAN: AT_SMALL | stage_d.STUDIES, "released": released.STUDIES}
    apart = (*PLANNED, SECOND_PLAN, "released")  # not in `all`
    studies = STUDIES | {name: study for group in apart for name, study in groups[group].items()} | headline.STUDIES
    chosen: dict[str, StudyAt] = {}
    for name in names:
        if name == "quickstart":
            chosen |= quickstart.STUDIES
        elif name == "all":
            chosen |= STUDIES
        elif is_own_study(name):
            chosen[name] = load_study(Path(name))
        elif name in groups:
            chosen |= groups[name]
        elif name in studies:
            chosen[name] = studies[name]
        else:
            raise unknown("study", name, ["all", "quickstart", *groups, *studies])
    others = [name for name in chosen if name not in OWN_SCALES]
    if others and scale_name in ONLY_OWN:
        own = [name for name in _with_scale(scale_name) if name != "released"]
        raise ValueError(f"scale {scale_name}: expected the studies {', '.join(own)}, got {others[0]}")
    return [_at(OWN_SCALES.get(name, scale), name, study) for name, study in chosen.items()]


def _at(scale: Scale, name: str, study: StudyAt) -> Study:
    try:
        return study(scale)
    except (ValueError, LookupError) as error:
        if is_own_study(name):
            raise
        raise ValueError(f"study {name}: the scale {scale.name} lacks what it compares ({error})") from error


def single(name: str, scale_name: str) -> Study:
    """Return the study of a name; refuse names of several studies, such as a paper's."""
    studies = choose_studies([name], scale_name)
    if len(studies) != 1:
        raise ValueError(
            f"{name} names {len(studies)} studies; expected the name of one: {', '.join(s.name for s in studies)}"
        )
    return studies[0]
