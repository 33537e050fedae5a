"""A checkpoint's manifest, written last: its run, selection rule, step and files. The run's history must agree with it.

checkpoint.json    {"key": run key, "rule": selection rule, "step": optimiser steps,
                    "files": {name: {"bytes": size, "sha256": hex digest}}}
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cse_core.data.atomic_write import atomic_write, sync

MANIFEST = "checkpoint.json"
WEIGHTS = "model.safetensors"


class CheckpointError(ValueError):
    """A checkpoint is damaged, or not the one that its run's history names."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's run, selection rule and step, and the size and SHA-256 of each of its files."""

    key: str
    rule: str
    step: int
    files: dict[str, dict[str, Any]]

    @property
    def weights(self) -> str:
        """The SHA-256 of the weights."""
        return str(self.files[WEIGHTS]["sha256"])


def write_manifest(folder: Path, *, key: str, rule: str, step: int) -> Manifest:
    """Flush a checkpoint's files to disk and write its manifest, without which a folder is no checkpoint."""
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        sync(path)
        name = path.relative_to(folder).as_posix()
        files[name] = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
    manifest = Manifest(key, rule, step, files)
    atomic_write(folder / MANIFEST, json.dumps(asdict(manifest), indent=1))
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Return a checkpoint's manifest; raise a CheckpointError if it is missing or can't be read."""
    path = folder / MANIFEST
    try:
        return parse_manifest(path.read_text(), str(path))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: can't be read ({error})") from error


def parse_manifest(text: str, name: str) -> Manifest:
    """Return the manifest in a text; raise a CheckpointError, with the file's name, if the text is not one."""
    try:
        manifest = Manifest(**json.loads(text))
        for file in (WEIGHTS, *manifest.files):
            int(manifest.files[file]["bytes"]), str(manifest.files[file]["sha256"])
        if not isinstance(manifest.step, int) or manifest.step < 0:
            raise ValueError(f"step {manifest.step!r}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{name}: not a checkpoint's manifest ({type(error).__name__}: {error})") from error
    return manifest


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Refuse a checkpoint with a missing file or a file of another size; read no file, so that planning is fast."""
    for name, file in manifest.files.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != file["bytes"]:
            actual = "missing" if size is None else f"{size:,} bytes"
            raise CheckpointError(f"{path}: {actual}, its manifest says {file['bytes']:,} bytes")


def check_content(folder: Path, manifest: Manifest) -> None:
    """Refuse a checkpoint with a file whose content differs from its manifest; read every byte."""
    check_sizes(folder, manifest)
    for name, file in manifest.files.items():
        digest = file_digest(folder / name)
        if digest != file["sha256"]:
            raise CheckpointError(
                f"{folder / name}: SHA-256 {digest[:12]}, its manifest says {file['sha256'][:12]}: it was "
                "changed after it was saved"
            )


def file_digest(path: Path) -> str:
    """Return a file's SHA-256 as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
