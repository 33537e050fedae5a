"""The study's own questions, which no table of the papers asks."""

from cse_core.methods import promptbert, sncse
from cse_core.run import Run
from cse_core.scorers import Cosine
from experiments.runs import RUNS, rankencoder_run
from experiments.study import Row, Scale, Study, StudyAt

BASE = "bert-base-uncased"
UNTRAINED = {
    "[CLS]": Cosine("cls"),
    "mean": Cosine("mean"),
    "PromptBERT's template": Cosine("mask", promptbert.TEMPLATES["bert"][0]),
    "SNCSE's template": Cosine("mask", sncse.TEMPLATES[0]),
}


def _trained(scale: Scale) -> dict[str, Run | None]:
    dropout = {"views": "dropout"}
    made = {
        "SimCSE": ("simcse", {}),
        "SimCSE + MLM": ("mlm", {}),
        "RankCSE-listNet": ("rankcse", {}),
        "RankCSE-listMLE": ("rankcse", {"rank": "list_mle"}),
        "WhitenedCSE": ("whitenedcse", {}),
        "WhitenedCSE, dropout views": ("whitenedcse", dropout),
        "WhitenedCSE, released code": ("whitenedcse", dropout | {"variant": "released_code"}),
        "CompCSE": ("compcse", {}),
        "PromptBERT": ("promptbert", {}),
        "SNCSE": ("sncse", {}),
        "DiffCSE": ("diffcse", {}),
    }
    runs = {label: RUNS[name](scale, BASE, **fields) for label, (name, fields) in made.items()}
    for label in ("SimCSE", "PromptBERT", "SNCSE"):
        runs[f"RankEncoder on {label}"] = rankencoder_run(scale, BASE, label.lower())
    released = rankencoder_run(scale, BASE, combination="sum", upper=0.9999)
    return runs | {"RankEncoder on SimCSE, released code": released}


def methods(scale: Scale) -> Study:
    """Every method of the core at this scale's settings, its last checkpoint, beside the untrained backbone."""
    rows = [
        Row(label=f"untrained, {how}", encoder=scale.backbones[BASE], backbone=BASE, scorer=scorer, select="as is")
        for how, scorer in UNTRAINED.items()
    ]
    for label, run in _trained(scale).items():
        rows.append(Row(label=label, encoder=run, backbone=BASE, seeds=scale.seeds, select="last"))
    return Study(
        name="methods",
        source="this project",
        question="Does every method train at this scale, and is its last checkpoint better than no training?",
        scale=scale,
        rows=tuple(rows),
        columns=(scale.dev,),
    )


STUDIES: dict[str, StudyAt] = {"methods": methods}
