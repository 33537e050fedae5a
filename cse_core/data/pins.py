"""Hold what is taken by name alone, a corpus or a hub's backbone, to the content that its first run found.

`pins.json` in the store has the SHA-256 of each name. A Corpus or Pretrained that declares its `sha256` needs no pin.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from cse_core.data.atomic_write import atomic_write
from cse_core.run import Corpus, Pretrained, Run

PINS = "pins.json"


def pins(store: Path) -> dict[str, str]:
    """The pinned hashes by name. A damaged file is an error: what it said can't be found anew."""
    path = store / PINS
    if not path.is_file():
        return {}
    try:
        pinned = json.loads(path.read_text())
        if not isinstance(pinned, dict) or not all(isinstance(content, str) for content in pinned.values()):
            raise ValueError("expected one hash for each name")
    except ValueError as error:
        raise ValueError(
            f"{path}: damaged ({error}); put a copy back, or delete it if the runs in this folder may be mixed with "
            "runs on other contents"
        ) from error
    return pinned


def hold(store: Path, found: Mapping[str, str], by: str) -> None:
    """Pin the contents of names that are new; refuse another content under a name that has a pin."""
    store.mkdir(parents=True, exist_ok=True)
    path = store / PINS
    with FileLock(f"{path}.lock"):
        pinned = pins(store)
        for name, content in found.items():
            if pinned.get(name, content) != content:
                raise ValueError(
                    f"{by}: {name} has the content {content}, but the first run that used it found {pinned[name]} "
                    f"({path}); put that content back, or use another --mlruns (and --shared) for this one"
                )
        if set(found) - set(pinned):
            atomic_write(path, json.dumps(pinned | dict(found), indent=1, sort_keys=True) + "\n")


def hold_run(run: Run, content: Mapping[str, str], store: Path) -> None:
    """Hold a run's `corpus` and `backbone` to the pins, and the runs that it builds on to the same ones.

    A teacher may have come from another machine; its history says what it was trained on.
    """
    from cse_core.training.run_state import known  # which imports, by way of the encoder, what imports this module

    for nested in run.nested():
        if history := known(store / nested.key):
            hold(store, _by_name(nested, history.data), f"run {nested.key}, which run {run.key} builds on")
    hold(store, _by_name(run, content), f"run {run.key}")


def hold_corpus(corpus: Corpus | None, store: Path, data: Path | None, by: str) -> None:
    """Hold a corpus that scores are made with to the pins."""
    from cse_core.data.corpora import content_of, sentences  # whose imports are of everything that a method is made of

    if corpus and not corpus.sha256:
        hold(store, {name_of(corpus): content_of(sentences(corpus, data))}, by)


def _by_name(run: Run, content: Mapping[str, str]) -> dict[str, str]:
    names = {"corpus": run.corpus, "backbone": run.backbone}
    return {name_of(taken): content[kind] for kind, taken in names.items() if not taken.sha256 and content.get(kind)}


def name_of(taken: Corpus | Pretrained) -> str:
    """The name under which a content is pinned."""
    return f"corpus {taken}" if isinstance(taken, Corpus) else f"backbone {taken.name}"
