"""Hold what is taken by name alone, a corpus or a hub's backbone, to the content that its first run found.

`pins.json` in the store has the SHA-256 of each name. A Corpus or Pretrained that declares its `sha256` needs no pin.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from cse_core.data.atomic_write import atomic_write
from cse_core.run import Corpus, Pretrained

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


def name_of(taken: Corpus | Pretrained) -> str:
    """The name under which a content is pinned."""
    return f"corpus {taken}" if isinstance(taken, Corpus) else f"backbone {taken.name}"
