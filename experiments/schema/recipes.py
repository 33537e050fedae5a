"""Make a run of any method: published settings for a backbone, at a scale, with fields of the method changed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cse_core.lookup import look_up
from cse_core.method import Recipe
from cse_core.methods import METHODS, rankcse, rankencoder, simcse
from cse_core.methods.baselines import consert, ct, dclr, l2pcsr
from cse_core.methods.mlm import MLM
from cse_core.methods.rankcse import Teacher
from cse_core.run import Corpus, Run
from experiments.schema.study import Scale

BACKBONES = {
    "bert-base-uncased": "BERT-base",
    "bert-large-uncased": "BERT-large",
    "roberta-base": "RoBERTa-base",
    "roberta-large": "RoBERTa-large",
}
STS_TEXTS = Corpus("sts_texts", 89_192, "efc2b6091a2eee48a8fcc5767166ff3dd4164d7b9eb1982e6defc87edf574345")
FIRST_LINES = {  # SHA-256 of parts of pinned corpora
    ("sts_texts", 16_384): "245f64fc9d08887d60d814e222ca832b427bf2b3e3db4980f7f0ba87d1a3c3e6",
    ("wiki_sentences_1m", 80_000): "96df8d730303712692aca1d39600fe44701f706aabc8744c968db9b7e9f3df16",
    ("wiki_sentences_1m", 150_000): "ba6f9fa45d205aa23519f1d1a15f2d4a71fb5531416bddf7d4b3d46d6409ed6a",
}
CT_STEPS = 5000  # published
MakeRun = Callable[..., Run | None]  # (scale, backbone, **changed fields); None if the scale has no such backbone


def as_published(recipes: Mapping[Any, Recipe]) -> MakeRun:
    """Return a function that makes a method's runs from its recipes, which are keyed by backbone."""

    def make(scale: Scale, backbone: str, **fields: Any) -> Run | None:
        if backbone not in scale.backbones:
            return None
        return scale.run(recipe_for(recipes, backbone), backbone, **fields)

    return make


def present(run: Run | None) -> Run:
    """Return a run on the stand-in for BERT-base, which every scale has."""
    assert run
    return run


def recipe_for(recipes: Mapping[Any, Recipe], key: Any) -> Recipe:
    """Return the recipe of a key, or raise an error that lists the keys; a key is a backbone, or ends with one."""

    def words(of: Any) -> str:
        return of if isinstance(of, str) else " ".join(of)

    if key not in recipes:
        raise ValueError(f"no published settings for {words(key)}; expected one of {', '.join(map(words, recipes))}")
    return recipes[key]


def simcse_run(scale: Scale, backbone: str, **fields: Any) -> Run | None:
    """Return a SimCSE run, with the supervised settings if the scale's corpus has positives in a second column."""
    if backbone not in scale.backbones:
        return None
    supervised = len(scale.corpus.columns) > 1
    key = ("supervised", backbone) if supervised else backbone
    return scale.run(recipe_for(simcse.PUBLISHED, key), backbone, **fields)


def teachers(scale: Scale, backbone: str) -> tuple[Teacher, ...]:
    """Return SimCSE teachers: a base model with weight 1/3 and a large one with 2/3, or the one that the scale has."""
    family = ("roberta-base", "roberta-large") if backbone.startswith("roberta") else tuple(BACKBONES)[:2]
    runs = [simcse_run(scale, name) for name in family]
    shares = (1 / 3, 2 / 3) if all(runs) else (1.0, 1.0)
    return tuple(Teacher(run, share, scale.dev) for run, share in zip(runs, shares, strict=True) if run)


def rankcse_run(scale: Scale, backbone: str, rank: str = "list_net", **fields: Any) -> Run | None:
    """Return a RankCSE run with this scale's teachers, or without teachers if the rank loss is off.

    The squared error, a control, uses ListNet's settings.
    """
    if backbone not in scale.backbones:
        return None
    settings = "list_net" if rank == "mse" else rank
    recipe = recipe_for(rankcse.PUBLISHED, (settings, backbone))
    recipe = recipe.with_method(teachers=teachers(scale, backbone), distillation_weight=1.0)
    if fields.get("distillation_weight", 1) == 0:
        fields = fields | {"teachers": ()}
    return scale.run(recipe, backbone, rank=rank, **fields)


def rankcse_with(rank: str) -> MakeRun:
    """Return a function that makes runs of RankCSE with one of its two rank losses, as published."""
    return lambda scale, backbone: rankcse_run(scale, backbone, rank)


def rankencoder_run(
    scale: Scale, backbone: str, base: str = "simcse", source: str = "paper", **fields: Any
) -> Run | None:
    """Return a RankEncoder run on this scale's run of a base method; `source` says whose settings to use."""
    if backbone not in scale.backbones:
        return None
    trained = look_up("method", base, RUNS)(scale, backbone)
    recipe = recipe_for(rankencoder.PUBLISHED, (source, base, backbone))
    if trained is None:
        return None
    recipe = recipe.with_method(base=trained, select=scale.dev, rank_weight=rankencoder.PAPERS_WEIGHT)
    return scale.run(recipe, backbone, **fields)


def consert_run(scale: Scale, backbone: str, texts: str = "sts_texts", **fields: Any) -> Run | None:
    """Return a ConSERT run on the STS sets' sentences, as published, or with `texts="wiki"` on the scale's corpus.

    It reads as many STS sentences as the scale's corpus has lines, or all if fewer. A synthetic scale keeps its corpus.
    """
    if texts not in ("sts_texts", "wiki"):
        raise ValueError(f"texts must be one of sts_texts, wiki, got {texts!r}")
    run = as_published(consert.PUBLISHED)(scale, backbone, **fields)
    if run is None or texts == "wiki" or scale.corpus.name == "synthetic":
        return run
    return replace(run, corpus=first_lines(STS_TEXTS, min(scale.corpus.lines, STS_TEXTS.lines)))


def ct_run(scale: Scale, backbone: str, pairs: str = "anchored", **fields: Any) -> Run | None:
    """Return a CT run with either kind of pairs, on no more sentences than its 5,000 steps read."""
    if backbone not in scale.backbones:
        return None
    recipe = recipe_for(ct.PUBLISHED, backbone if pairs == "anchored" else (pairs, backbone))
    run = scale.run(recipe, backbone, **fields)
    lines = min(scale.corpus.lines, CT_STEPS * recipe.batch_size)
    return replace(run, corpus=first_lines(scale.corpus, lines)) if run else None


def first_lines(corpus: Corpus, lines: int) -> Corpus:
    """Return the first lines of a corpus, pinned where their hash is known."""
    sha256 = FIRST_LINES.get((corpus.name, lines), "")
    return corpus if lines == corpus.lines else replace(corpus, lines=lines, sha256=sha256)


def dclr_run(
    scale: Scale, backbone: str, complement: str = "simcse", initial: str | None = None, **fields: Any
) -> Run | None:
    """Return a DCLR run; if it excludes pairs, its complement is this scale's run of a method on the base size.

    It starts from a run of the method `initial` on the same backbone: by default SimCSE for large models, and none for
    others, which start from the backbone.
    """
    if backbone not in scale.backbones:
        return None
    base = "roberta-base" if backbone.startswith("roberta") else "bert-base-uncased"
    if initial is None:
        initial = "simcse" if "large" in backbone else ""
    recipe = recipe_for(dclr.PUBLISHED, backbone).with_method(
        complement=None if fields.get("threshold", 0) > 1 else look_up("method", complement, RUNS)(scale, base),
        initial=look_up("method", initial, RUNS)(scale, backbone) if initial else None,
        select=scale.dev,
    )
    return scale.run(recipe, backbone, **fields)


def l2pcsr_run(scale: Scale, backbone: str, initial: str = "simcse", **fields: Any) -> Run | None:
    """Return an L2P-CSR run that starts from this scale's run of the method `initial`, or if "" from the backbone.

    From the backbone it uses SimCSE's learning rate.
    """
    if backbone not in scale.backbones:
        return None
    recipe, simcse_at = recipe_for(l2pcsr.PUBLISHED, backbone), simcse_run(scale, backbone)
    start = look_up("method", initial, RUNS)(scale, backbone) if initial else None
    run = scale.run(recipe.with_method(initial=start, select=scale.dev), backbone, **fields)
    return replace(run, learning_rate=simcse_at.learning_rate) if run and simcse_at and not initial else run


def mlm_run(scale: Scale, backbone: str, inner: str = "simcse", **fields: Any) -> Run | None:
    """Return another method's run with the masked-language loss added."""
    run = look_up("method", inner, RUNS)(scale, backbone)
    return replace(run, method=MLM(inner=run.method, **fields)) if run else None


# Most methods need only their recipes; the last seven also need runs of other methods, or other sentences.
RUNS: dict[str, MakeRun] = {name: as_published(kind.recipes()) for name, kind in METHODS.items()} | {
    "simcse": simcse_run,
    "rankcse": rankcse_run,
    "rankencoder": rankencoder_run,
    "mlm": mlm_run,
    "consert": consert_run,
    "ct": ct_run,
    "dclr": dclr_run,
    "l2pcsr": l2pcsr_run,
}
