"""Folders on shared storage."""

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

import torch

from cse_core.training.run_state import Checkpoint, History
from experiments.storage.shared_storage import Shared

RULES = ("stsb_dev", "last")


FILES = {
    "history.json": b"history",
    "result.json": b"result",
    "stsb_dev/model.safetensors": b"weights",
    "stsb_dev/config.json": b"{}",
    "pair_scores/x.npz": b"scores",
}


def prepared(url: str) -> str:
    Shared(url).prepare()
    return url


def fill(folder: Path, **more: bytes) -> Path:
    for name, content in (FILES | {k.replace("_json", ".json"): v for k, v in more.items()}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if name != "shared"}


def saved(folder: Path, step: int, rules: Collection[str] = RULES, **kept: Checkpoint) -> Path:
    """A run's folder with a state of that step."""
    folder.mkdir(parents=True, exist_ok=True)
    history = asdict(History(steps=20, kept=kept))
    torch.save({"key": folder.name, "step": step, "keep": sorted(rules), "history": history}, folder / "state.pt")
    return folder
