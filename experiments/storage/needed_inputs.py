"""Check before anything starts that runs can read their data sets, corpora and encoders, and fit on the disk."""

import shutil
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub

from cse_core.data.corpora import sentences
from cse_core.data.locate import HUB_SECONDS, locate_senteval
from cse_core.data.senteval import SETS, SYNTHETIC, TRANSFER, labelled_sentences, pairs
from cse_core.evaluation.scorers import SPLITS, Scorer
from cse_core.evaluation.suite import find_task
from cse_core.models.pretrained import CONFIG, WEIGHTS, resolve, resolve_pinned
from cse_core.models.word_vectors import is_word_vectors
from cse_core.run import Corpus, Pretrained, Run, parts_of
from cse_core.training.selection import dev_sets
from cse_core.training.teacher_embeddings import verify_word_vectors

AT_ONCE = 8  # encoders to look for at a time, as each may wait for the hub
STATE_SIZES = 3  # times an encoder's size: a saved state has its weights and two moments of each
GIB = 2**30
Input = str | Corpus | Pretrained  # an evaluation set by its name, a corpus, an encoder
ERRORS = (OSError, ValueError, ImportError)


def inputs_of_training(run: Run, rules: Collection[str]) -> set[Input]:
    """Return what training a run reads: its backbone, corpus, dev sets, and the encoders in its method.

    Those of nested runs are left out.
    """
    return {run.backbone, run.corpus, *_inside(run.method), *(name for rule in rules for name in dev_sets(rule))}


def inputs_of_scoring(scorer: Scorer, tasks: Collection[str]) -> set[Input]:
    """Return what the tasks read with a scorer: evaluation sets, and the scorer's corpus."""
    known = [task for task in map(find_task, tasks) if task]
    scored = {name for task in known for name in task.pair_sets}
    sets = scored | {name for task in known for name in (*task.labelled_sets, *task.read_sets)}
    corpora = _inside(scorer)
    if hasattr(scorer, "corpus") and not corpora:  # it is fitted on all splits of each task
        sets |= {split for name in scored for split in SPLITS.get(name, ())}
    return {*sets, *(corpora if scored else ())}


def _inside(value: Any) -> set[Input]:
    """Return the corpora and encoders in a method or a scorer; a run in it has its own job."""
    return {part for part, _ in parts_of(value, Corpus, Pretrained, Run) if not isinstance(part, Run)}


def missing(inputs: Collection[Input], data: Path | None) -> dict[Input, Exception]:
    """Return the error of each input that can't be read; weights on the hub are looked for, not downloaded."""
    encoders = [each for each in inputs if isinstance(each, Pretrained)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda each: _error(partial(weight_bytes, each)), encoders)
        errors: dict[Input, Exception | None] = dict(zip(encoders, found, strict=True))
    of_senteval = [each for each in inputs if each in SETS and each not in SYNTHETIC]
    nowhere = _error(partial(locate_senteval, data)) if of_senteval else None  # asked once: the hub may not answer
    for each in inputs:
        if isinstance(each, Corpus):
            errors[each] = _error(partial(sentences, each, data))
        elif isinstance(each, str):
            read = labelled_sentences if each in TRANSFER else pairs
            errors[each] = nowhere if nowhere and each in of_senteval else _error(partial(read, each, data))
    return {each: error for each, error in errors.items() if error}


def _error(read: Callable[[], object]) -> Exception | None:
    try:
        read()
    except ERRORS as error:
        return error
    return None


def weight_bytes(encoder: Pretrained) -> int:
    """Return the size of an encoder's weights in bytes, here or on the hub; refuse missing weights or other content."""
    if is_word_vectors(encoder.name):
        verify_word_vectors(encoder)
        return 0
    folder = resolve(encoder.name, only_tokenizer=True)
    for pattern in ("*.safetensors", "*.bin", "0_Transformer/*.safetensors", "0_Transformer/*.bin"):
        if here := sum(path.stat().st_size for path in folder.glob(pattern)):
            if encoder.sha256:
                resolve_pinned(encoder)
            return here
    return _offered_bytes(encoder.name, folder)


def _offered_bytes(name: str, folder: Path) -> int:
    """Return the size of the weights that the hub offers for an encoder whose other files are here."""
    from huggingface_hub import errors  # lazy: slow import

    owner, model, *inner = (*name.split("/"), "")[:-1] if "/" in name else ("", name)
    for file in () if (Path(name) / CONFIG).is_file() else WEIGHTS:
        url = huggingface_hub.hf_hub_url("/".join(filter(None, (owner, model))), "/".join((*inner, file)))
        try:
            if size := huggingface_hub.get_hf_file_metadata(url, timeout=HUB_SECONDS).size:
                return size
        except (errors.HfHubHTTPError, errors.HTTPError, errors.OfflineModeIsEnabled, OSError):
            continue
    raise FileNotFoundError(
        f"backbone {name!r}: {folder} holds no weights ({', '.join(WEIGHTS)}), and none are available from the Hugging "
        "Face hub; fetch or copy them again"
    )


def refusal(errors: Mapping[Input, Exception]) -> FileNotFoundError:
    """Return one error that names all inputs that can't be read, each reason once."""
    named: dict[str, list[str]] = {}
    for each, error in errors.items():
        named.setdefault(str(error), []).append(f"{each}: " if isinstance(each, str) else "")  # others name themselves
    lines = (
        f"  {', '.join(sorted(name.removesuffix(': ') for name in names)) + ': ' if all(names) else ''}{reason}"
        for reason, names in named.items()
    )
    return FileNotFoundError("\n".join(["nothing was started: not all that the runs read is there", *sorted(lines)]))


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"


@dataclass(frozen=True)
class Writes:
    """The bytes that runs keep in the store, and those that saved states take while the largest runs are trained."""

    kept: int
    meanwhile: int

    @classmethod
    def of(cls, checkpoints: Collection[tuple[Pretrained, int]], at_once: int) -> "Writes":
        """Return what runs write. Each is given as its backbone and the number of its checkpoints."""
        sizes = {backbone: weight_bytes(backbone) for backbone in {backbone for backbone, _ in checkpoints}}
        largest = sorted((sizes[backbone] for backbone, _ in checkpoints), reverse=True)[:at_once]
        return cls(sum(sizes[backbone] * count for backbone, count in checkpoints), STATE_SIZES * sum(largest))

    def check_room(self, store: Path, free: int | None = None) -> None:
        """Refuse a store on a disk that is too small; `free` is its free space in bytes, by default as measured."""
        if free is None:
            free = shutil.disk_usage(next(path for path in (store, *store.parents) if path.exists())).free
        if self.kept + self.meanwhile > free:
            raise OSError(
                f"{store}: the runs' checkpoints take about {_size(self.kept)} and states of training "
                f"{_size(self.meanwhile)} more, but the disk has {_size(free)} left; make room, choose "
                "fewer runs, or name a folder on another disk"
            )
