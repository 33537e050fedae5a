"""Pins: a corpus or hub backbone that is given only by name must keep the content that its first run used.

`pins.json` in the store has the SHA-256 of each name. A Corpus or Pretrained that declares its `sha256` needs no pin.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from cse_core.data.atomic_write import atomic_write
from cse_core.run import Corpus, Pretrained

PINS = "pins.json"


def read_pins(store: Path) -> dict[str, str]:
    """Return the pinned hashes by name. A damaged file is an error: its content can't be recovered."""
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


def enforce_pins(store: Path, contents: Mapping[str, str], by: str) -> None:
    """Pin the contents of new names; refuse another content under a name that has a pin."""
    store.mkdir(parents=True, exist_ok=True)
    path = store / PINS
    with FileLock(f"{path}.lock"):
        pinned = read_pins(store)
        for name, content in contents.items():
            if pinned.get(name, content) != content:
                raise ValueError(
                    f"{by}: {name} has the content {content}, but the first run that used it found {pinned[name]} "
                    f"({path}); put that content back, or use another --mlruns (and --shared) for this one"
                )
        if set(contents) - set(pinned):
            atomic_write(path, json.dumps(pinned | dict(contents), indent=1, sort_keys=True) + "\n")


def pin_name(source: Corpus | Pretrained) -> str:
    """Return the name under which a content is pinned."""
    return f"corpus {source}" if isinstance(source, Corpus) else f"backbone {source.name}"
