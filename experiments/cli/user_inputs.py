"""Read the inputs that a command line names: a corpus, dev pairs, an encoder as backbone or teacher."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cse_core.data import own_pairs, synthetic
from cse_core.data.corpora import COLUMNS, corpus_of_file
from cse_core.evaluation.scorers import Scorer, Whitened
from cse_core.lookup import look_up
from cse_core.method import method_chain
from cse_core.methods import METHODS
from cse_core.methods.rankcse import Teacher
from cse_core.models.pretrained import CONFIG, encoder_hash, resolve
from cse_core.models.sentence_transformers_format import MODEL_TYPES, describe, read_json, read_pooling
from cse_core.models.word_vectors import is_word_vectors, word_vectors_hash
from cse_core.run import NGRAM_POOLINGS, Corpus, Pretrained, Run
from cse_core.training.selection import SELECTION
from experiments.cli.run_options import InputOptions
from experiments.schema.recipes import BACKBONES, RUNS, first_lines
from experiments.schema.rows import BASE, rank_scorer
from experiments.schema.scales import SCALES, scale_for
from experiments.schema.study import Scale, replace_runs

RANKED = 10_000  # sentences that a teacher ranks, as many as RankEncoder does at `small`
# The scorers of NAME@SCORER: similarities of whitened vectors, and of ranks in the training sentences.
TEACHER_SCORERS: dict[str, Callable[[Scale], Scorer]] = {
    "whitened": lambda scale: Whitened(corpus=scale.corpus),
    "ranks": lambda scale: rank_scorer(scale, weight=1.0, size=min(RANKED, scale.corpus.lines)),
}


def read_corpus(name: str, lines: int | None, columns: Sequence[str] = ()) -> Corpus:
    """Return the user's file as a corpus, with the given or known columns, or the first `lines` of a named corpus."""
    path = Path(name).expanduser()
    if path.is_file():
        return corpus_of_file(path.resolve(), lines, columns)
    if lines is None:
        raise ValueError(
            f"--corpus {name}: no such file; for a corpus of the data folder, such as wiki_sentences_1m, "
            "give --corpus-lines too"
        )
    if name == synthetic.TRIPLES:
        columns = columns or COLUMNS
    return Corpus(name, lines, columns=tuple(columns))


def read_dev(name: str, columns: Sequence[str]) -> str:
    """Return the name of a selection rule; a file of pairs is added as an evaluation set, whose name is its rule."""
    return own_pairs.add(name, columns) if name not in SELECTION and own_pairs.is_file(name) else name


def read_encoder(name: str) -> Pretrained:
    """Return a folder, a hub name, an embedded backbone or word vectors as an encoder with the hash of its content."""
    return Pretrained(name, word_vectors_hash(name) if is_word_vectors(name) else encoder_hash(resolve(name)))


def check_pair_columns(columns: Sequence[str], names: Iterable[str]) -> None:
    """Refuse columns of files of pairs if none of the dev sets and tasks is a file."""
    if columns and not any(map(own_pairs.is_own, names)):
        raise ValueError(f"--pair-columns {' '.join(columns)}: requires a file in --dev or --evaluate")


def with_inputs(given: InputOptions) -> tuple[Scale, str]:
    """Return the named scale with the user's corpus, encoder and dev set, and the backbone's name in that scale.

    All of a method's runs get them, also its teachers. A backbone of the papers keeps its name. Any other encoder takes
    the place of BERT-base; if no scale is named, its size determines the settings.
    """
    columns, lines, name = given.columns, given.corpus_lines, given.backbone
    if columns and not given.corpus:
        raise ValueError(f"--columns {' '.join(columns)}: requires --corpus")
    scale = look_up("scale", given.scale or "small", SCALES)
    if given.corpus:
        corpus = read_corpus(given.corpus, lines, columns)
    else:
        corpus = first_lines(scale.corpus, lines or scale.corpus.lines)
    dev = read_dev(given.dev or scale.dev, given.pair_columns)
    if name in BACKBONES:
        return replace(scale, corpus=corpus, dev=dev), name
    folder = resolve(name)
    # Workers have another current folder.
    encoder = Pretrained(str(folder.absolute()) if folder == Path(name) else name, encoder_hash(folder))
    backbone = BASE
    if given.scale:
        scale = replace(scale, backbones={BASE: encoder}, corpus=corpus)
    else:
        scale, backbone = scale_for(encoder, *encoder_size(name), corpus)
    return replace(scale, dev=dev), backbone


def encoder_size(name: str) -> tuple[int, int]:
    """Return an encoder's number of layers and its width."""
    from transformers import AutoConfig  # lazy: slow import

    config = AutoConfig.from_pretrained(resolve(name) / describe(resolve(name)).transformer)
    try:
        return config.num_hidden_layers, config.hidden_size
    except AttributeError as error:  # of a model with several parts, such as one of texts and images
        raise ValueError(
            f"backbone {name}: {error}; expected an encoder of texts, or settings named by --scale"
        ) from error


def pooling_text(name: str, pooling: str | None) -> str:
    """Return a line that says which pooling an encoder is scored with, and what chose it."""
    if pooling:
        return f"pooling: {pooling}, by --pooling"
    about = describe(folder := resolve(name))
    if about.unsupported:
        return f"vectors: those of sentence-transformers, as {about.unsupported}"
    if about.states_pooling:
        return f"pooling: {about.pooling}, as its folder says"
    kind = read_json(folder / CONFIG).get("model_type")
    other = "; --pooling gives another" if kind in MODEL_TYPES else ""
    return f"pooling: {about.pooling}, as its folder states none and its model type is {kind}{other}"


def check_corpus(run: Run) -> None:
    """Refuse a run if it, or a run that it needs, takes a larger batch or ranks more sentences than its corpus has."""
    for each in (run, *run.required_checkpoints()):
        lines, what = each.corpus.lines, each.method.name if each is run else f"{each.method.name}, which it needs,"
        drawn = max(getattr(method, "corpus_size", 0) for method in method_chain(each.method))
        if drawn > lines:
            remedy = f"--corpus-size {lines}" if hasattr(each.method, "corpus_size") else f"--corpus-lines {lines}"
            raise ValueError(
                f"--corpus-size: {what} ranks {drawn:,} sentences of the corpus, but {each.corpus.name} has {lines:,}; "
                f"expected {remedy} or less, or a larger corpus"
            )
        if each.batch_size > lines:
            raise ValueError(
                f"{what} takes {each.batch_size:,} sentences at a time (its batch size), but the corpus has {lines:,}"
            )


def with_own_pooling(run: Run) -> Run:
    """Return the run with its backbone's pooling, if that states another than [CLS].

    A method with a prompt, or with a pooling that it trains, keeps its own. Teachers and bases too have the pooling of
    their own backbones.
    """
    run = replace(run, method=replace_runs(run.method, {old: with_own_pooling(old) for old in run.nested()}))
    pooling, template = read_pooling(resolve(run.backbone.name))
    keeps = run.template or run.pooling in NGRAM_POOLINGS or pooling == "cls"
    return run if keeps else replace(run, pooling=pooling, template=template)


def read_teachers(texts: Sequence[str], scale: Scale, backbone: str) -> tuple[Teacher, ...]:
    """Return teachers from texts NAME, NAME:WEIGHT or NAME@SCORER:WEIGHT; without weights, all count alike.

    NAME is an encoder's, as for `read_encoder`, or a method's, which means its run at this scale on the same backbone.
    """
    split = [_split_weight(text) for text in texts]
    given = [weight for _, weight in split if weight is not None]
    if given and len(given) < len(split):
        raise ValueError(f"--teachers {' '.join(texts)}: expected a weight for each or for none, got {len(given)}")
    return tuple(
        _teacher(name, 1 / len(split) if weight is None else weight, scale, backbone) for name, weight in split
    )


def _split_weight(text: str) -> tuple[str, float | None]:
    name, colon, weight = text.rpartition(":")
    try:
        return (name, float(weight)) if colon else (text, None)
    except ValueError:
        return text, None


def _teacher(name: str, weight: float, scale: Scale, backbone: str) -> Teacher:
    name, at, kind = name.partition("@")
    if at and kind not in TEACHER_SCORERS:
        raise ValueError(f"--teachers {name}@{kind}: expected @{' or @'.join(TEACHER_SCORERS)}")
    if kind == "whitened" and is_word_vectors(name):
        raise ValueError(f"--teachers {name}@whitened: expected an encoder with a pooling, word vectors have none")
    scorer = TEACHER_SCORERS[kind](scale) if at else None
    if name in METHODS:
        run = RUNS[name](scale, backbone)
        if run is None:
            raise ValueError(f"--teachers {name}: scale {scale.name} has no backbone {backbone!r}")
        return Teacher(run, weight, scale.dev, scorer)
    return Teacher(read_encoder(name), weight, scorer=scorer)
