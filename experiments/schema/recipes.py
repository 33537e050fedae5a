"""Make a run of any method: published settings for a backbone, at a scale, with fields of the method changed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cse_core.method import Recipe
from cse_core.methods import METHODS, rankcse, rankencoder, simcse
from cse_core.methods.mlm import MLM
from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from experiments.schema.study import Scale

BACKBONES = {
    "bert-base-uncased": "BERT-base",
    "bert-large-uncased": "BERT-large",
    "roberta-base": "RoBERTa-base",
    "roberta-large": "RoBERTa-large",
}
MakeRun = Callable[..., Run | None]  # (scale, backbone, **changed fields); None where the scale lacks the backbone


def as_published(recipes: Mapping[Any, Recipe]) -> MakeRun:
    """Return a function that makes a method's runs from its recipes, which are keyed by backbone."""

    def make(scale: Scale, backbone: str, **fields: Any) -> Run | None:
        if backbone not in scale.backbones:
            return None
        return scale.run(recipe_for(recipes, backbone), backbone, **fields)

    return make


def recipe_for(recipes: Mapping[Any, Recipe], key: Any) -> Recipe:
    """Return the recipe of a key, or raise an error that lists the keys."""
    if key not in recipes:
        raise ValueError(f"no published settings for {key}; expected one of {', '.join(map(str, recipes))}")
    return recipes[key]


simcse_run = as_published(simcse.PUBLISHED)


def teachers(scale: Scale, backbone: str) -> tuple[Teacher, ...]:
    """Return SimCSE teachers: a base model with weight 1/3 and a large one with 2/3, or the one that the scale has."""
    family = ("roberta-base", "roberta-large") if backbone.startswith("roberta") else tuple(BACKBONES)[:2]
    runs = [simcse_run(scale, name) for name in family]
    shares = (1 / 3, 2 / 3) if all(runs) else (1.0, 1.0)
    return tuple(Teacher(run, share, scale.dev) for run, share in zip(runs, shares, strict=True) if run)


def rankcse_run(scale: Scale, backbone: str, rank: str = "list_net", **fields: Any) -> Run | None:
    """Return a RankCSE run with this scale's teachers, or without teachers if the rank loss is off."""
    if backbone not in scale.backbones:
        return None
    recipe = rankcse.with_teachers(recipe_for(rankcse.PUBLISHED, (rank, backbone)), teachers(scale, backbone))
    if fields.get("distillation_weight", 1) == 0:
        fields = fields | {"teachers": ()}
    return scale.run(recipe, backbone, **fields)


def rankcse_with(rank: str) -> MakeRun:
    """Return a function that makes runs of RankCSE with one of its two rank losses, as published."""
    return lambda scale, backbone: rankcse_run(scale, backbone, rank)


def rankencoder_run(
    scale: Scale, backbone: str, base: str = "simcse", source: str = "paper", **fields: Any
) -> Run | None:
    """Return a RankEncoder run on this scale's run of a base method; `source` says whose settings it has."""
    if backbone not in scale.backbones:
        return None
    recipe = recipe_for(rankencoder.PUBLISHED, (source, base, backbone))
    trained = RUNS[base](scale, backbone)
    return scale.run(rankencoder.with_base(recipe, trained, scale.dev), backbone, **fields) if trained else None


def mlm_run(scale: Scale, backbone: str, inner: str = "simcse", **fields: Any) -> Run | None:
    """Return another method's run with the masked-language loss added."""
    run = RUNS[inner](scale, backbone)
    return replace(run, method=MLM(inner=run.method, **fields)) if run else None


# Most methods need only their recipes; the last three also need runs of other methods.
RUNS: dict[str, MakeRun] = {name: as_published(kind.recipes()) for name, kind in METHODS.items()} | {
    "rankcse": rankcse_run,
    "rankencoder": rankencoder_run,
    "mlm": mlm_run,
}
