"""The API for notebooks: train on your own sentences, score any encoder, save a folder that is ready to push."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch

from cse_core.data.atomic_write import atomic_write
from cse_core.data.batches import pad
from cse_core.data.corpora import COLUMNS, corpus_of_file, lines_hash
from cse_core.data.own_pairs import is_own
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.lookup import unknown
from cse_core.method import Batch, Method, Tokens
from cse_core.model_card import Scores, save_with_card
from cse_core.models.embedding_cache import CachedEncoder, Progress, SentenceEncoder
from cse_core.models.encoder import Encoder
from cse_core.models.foreign import ForeignEncoder, HasEncode, open_encoder
from cse_core.models.pretrained import encoder_hash, resolve
from cse_core.models.sentence_transformers_format import read_pooling
from cse_core.models.word_vectors import WordVectors, is_word_vectors
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution
from cse_core.training.run_state import History
from cse_core.training.train import OnStep
from cse_core.training.train import train as train_run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """A finished run: its checkpoint as an encoder, its losses and dev scores by step, and the checkpoint's folder."""

    run: Run
    encoder: Encoder
    history: History
    folder: Path


def evaluate(
    encoder: HasEncode | str | Path,
    tasks: str | Sequence[str] = "sts",
    *,
    data: str | Path | None = None,
    scorer: Scorer | None = None,
    progress: Progress | None = None,
    columns: Sequence[str] = (),
) -> dict[str, dict[str, float]]:
    """Score an encoder and return {task: {metric: value}}, where 0.7654 is a paper's 76.54.

    The same code makes all recorded numbers. `encoder` is an Encoder, a folder or name of transformers or
    sentence-transformers (see `open_encoder`), word vectors, or any object with sentence-transformers' `encode`.
    `tasks` are groups, single tasks (docs/evaluations.md) or your own files, in which `columns` name two sentences and
    a score. `data` is the folder of the evaluation sets, by default CSE_DATA. Each distinct sentence is embedded once.
    Correlations are of cosines unless another scorer is given. If a task fails, its reason is raised. Warnings are
    logged, for example if a set has other bytes than SentEval's.

    >>> scores = evaluate("wiki-tiny", "synthetic_dev")  # made up from templates, so without data
    >>> f"{scores['synthetic_dev']['spearman.all']:.2f}"
    '0.66'
    """
    names = suite.expand_names([tasks] if isinstance(tasks, str) else tasks, columns)
    if columns and not any(map(is_own, names)):
        raise ValueError(
            f"columns {', '.join(columns)}: expected a file of pairs among the tasks, got {', '.join(names)}"
        )
    evaluated = suite.evaluate(
        _sentence_encoder(encoder), scorer or Cosine(), names, data=Path(data) if data else None, progress=progress
    )
    outcomes = {name: evaluated[name] for name in names}
    for text in [text for source in (*evaluated.datasets.values(), *outcomes.values()) for text in source.warnings]:
        logger.warning("%s", text)
    return {name: dict(outcome.metrics) for name, outcome in outcomes.items()}


def train(
    method: Method,
    sentences: Sequence[str] | Sequence[tuple[str, ...]] | str | Path | Corpus,
    backbone: str | Path,
    *,
    store: str | Path = "runs",
    select: str = "last",
    data: str | Path | None = None,
    device: str | None = None,
    on_step: OnStep | None = None,
    columns: Sequence[str] = (),
    **settings: Any,
) -> Trained:
    """Train a method on your own sentences, or resume its run, and return the encoder with its run and history.

    `sentences` is a list, a Corpus or a file (docs/own_data.md), of which `columns` are read. A list may hold tuples: a
    sentence, its positive and optionally a hard negative. `backbone` is a folder, a hub name or an embedded backbone;
    its own pooling is used unless `pooling` is given. `settings` are fields of Run: seed, epochs, batch_size, ...
    `select` says which checkpoint is returned: "last", or the best on a dev set ("stsb_dev", "avg_sts"), which is then
    read from `data`. Runs that the method needs (teachers) are trained first. A run is kept in `store` under a key of
    its settings, sentences and backbone, and is trained only once.

    >>> sentences = ["The cat sleeps.", "It rains.", "A man sings.", "Snow falls."]
    >>> trained = train(SimCSE(), sentences, "wiki-tiny", store=folder, batch_size=4, max_length=8)
    >>> trained.encoder.encode(["A dog sleeps."]).shape
    torch.Size([1, 128])
    """
    allowed = [field.name for field in fields(Run) if field.name not in ("method", "backbone", "corpus")]
    for name in settings:
        if name not in allowed:
            raise unknown("setting", name, allowed)
    if columns and isinstance(sentences, Corpus):
        raise ValueError(
            f"columns {', '.join(columns)}: expected a file of sentences, got a Corpus, which names its own"
        )
    folder = resolve(str(backbone))
    if "pooling" not in settings:
        settings["pooling"], settings["template"] = read_pooling(folder)
    run = Run(
        method=method,
        backbone=Pretrained(str(backbone), encoder_hash(folder)),
        corpus=sentences if isinstance(sentences, Corpus) else _corpus(sentences, Path(store), columns),
        **settings,
    )
    device = device or _device()
    execution = Execution(Path(store), Path(data) if data else None, device)
    for required, rules in run.required_checkpoints().items():
        train_run(required, execution, rules=rules)
    history = train_run(run, execution, rules=[select], on_step=on_step)
    checkpoint = Path(store) / run.key / select
    return Trained(run, Encoder.from_pretrained(checkpoint).to(device), history, checkpoint)


def make_batch(
    method: Method,
    sentences: Sequence[str] | Sequence[tuple[str, ...]],
    encoder: Encoder,
    *,
    max_length: int = 32,
    seed: int = 0,
) -> Batch:
    """Tokenise sentences, or tuples of columns, into the batch that `method.loss` takes, on the encoder's device.

    Texts are cut to `max_length` tokens. `seed` seeds the batch's own random numbers (masked words, ties of ListMLE).
    Pass the step, so that they differ from step to step.

    >>> encoder = Encoder.from_pretrained("wiki-tiny")
    >>> make_batch(SimCSE(), ["It rains.", "The cat sleeps."], encoder)["text"].mask.sum(1)  # two are special
    tensor([6, 7])
    """
    columns = method.examples(cast(Any, sentences), encoder.tokenizer, max_length)
    padded = {name: pad(ids, encoder.pad_id) for name, ids in columns.items()}
    tokens = {name: Tokens(part.ids.to(encoder.device), part.mask.to(encoder.device)) for name, part in padded.items()}
    rows = len(next(iter(columns.values())))
    return Batch(torch.arange(rows), tokens, torch.Generator(encoder.device).manual_seed(seed))


def export(encoder: Encoder, folder: str | Path, *, run: Run | None = None, scores: Scores | None = None) -> Path:
    """Save an encoder with a model card, ready to push to a hub, and return the folder.

    The card lists the run's settings and `scores`, as `evaluate` returns them. Files in the folder that a loader would
    read are replaced once the new ones are complete. Other files, such as those of .git, stay.

    >>> export(Encoder.from_pretrained("wiki-tiny"), folder / "mine") == folder / "mine"
    True
    """
    settings = run.settings() | {"key": run.key} if run else {}
    return save_with_card(encoder, Path(folder), settings, scores or {})


def _sentence_encoder(encoder: HasEncode | str | Path) -> SentenceEncoder:
    if isinstance(encoder, str | Path):
        name = str(encoder)
        return WordVectors.load(name) if is_word_vectors(name) else open_encoder(name, _device())
    if isinstance(encoder, Encoder | WordVectors | CachedEncoder):
        return encoder
    return ForeignEncoder(encoder)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _corpus(
    sentences: Sequence[str] | Sequence[tuple[str, ...]] | str | Path, store: Path, columns: Sequence[str]
) -> Corpus:
    """Return the sentences as a corpus identified by its content; a list is written to the store."""
    if isinstance(sentences, str | Path):
        path = Path(sentences).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; expected a list of sentences, a text file or a Corpus")
        return corpus_of_file(path, columns=columns)
    if columns:
        raise ValueError(f"columns {', '.join(columns)}: expected a file of sentences, got a list")
    if any(isinstance(text, tuple) for text in sentences):
        return _corpus_of_rows(cast(Sequence[tuple[str, ...]], sentences), store)
    lines = cast(list[str], list(sentences))
    for number, line in enumerate(lines):
        if "\n" in line or line.endswith("\r"):
            raise ValueError(f"sentence {number}: expected no line break, got {line!r}; join or split its lines")
    if lines and lines[0].startswith("\ufeff"):
        raise ValueError(f"sentence 0: begins with a byte order mark, {lines[0]!r:.60}; read its file as utf-8-sig")
    digest = lines_hash(lines)
    path = store / "sentences" / f"{digest[:12]}.txt"
    if not path.is_file():
        atomic_write(path, "".join(f"{line}\n" for line in lines))
    return Corpus(str(path), len(lines), digest)


def _corpus_of_rows(rows: Sequence[tuple[str, ...]], store: Path) -> Corpus:
    """Write examples of several columns to the store and return them as a corpus identified by its content."""
    names = COLUMNS[: max(2, len(rows[0]))]
    for number, row in enumerate(rows):
        if (
            not isinstance(row, tuple)
            or len(row) != len(names)
            or not all(isinstance(text, str) and text.strip() for text in row)
        ):
            raise ValueError(f"example {number}: expected {len(names)} texts ({', '.join(names)}), got {row!r}")
    rows = [tuple(text.strip() for text in row) for row in rows]
    digest = lines_hash(rows)
    path = store / "sentences" / f"{digest[:12]}.jsonl"
    if not path.is_file():
        objects = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
        atomic_write(path, "".join(f"{line}\n" for line in objects))
    return Corpus(str(path), len(rows), digest, names)
