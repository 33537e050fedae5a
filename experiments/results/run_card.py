"""The settings and scores of a run's checkpoint, for the model card of an exported encoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cse_core.data.atomic_write import atomic_write
from cse_core.model_card import model_card
from cse_core.models.encoder import Encoder
from cse_core.training.checkpoint import Manifest, read_manifest
from experiments.results.csv_record import UNRECORDED

CARD = "model_card.md"


def card_settings(result: Mapping[str, Any], manifest: Manifest) -> dict[str, Any]:
    """Return a checkpoint's settings: the run's parameters, its key, rule and step, the commit and the device."""
    settings = result["parameters"] | {"key": manifest.key, "checkpoint": manifest.rule, "step": manifest.step}
    return settings | {name: result["environment"].get(name, "") for name in ("commit", "device")}


def card_scores(result: Mapping[str, Any], rule: str) -> dict[str, dict[str, float]]:
    """Return the cosine scores of a selection rule's checkpoint, by task and metric."""
    scores: dict[str, dict[str, float]] = {}
    for cell in result["cells"]:
        if (cell["select"], cell["scorer"]) == (rule, "cosine") and cell["metric"] not in UNRECORDED:
            scores.setdefault(cell["task"], {})[cell["metric"]] = cell["score"]
    return scores


def write_card(result: Mapping[str, Any], folder: Path, rule: str) -> None:
    """Write the card of a checkpoint into a run's folder, next to result.json."""
    manifest, encoder = read_manifest(folder / rule), Encoder.from_pretrained(folder / rule)
    name = f"{result['method']}-{result['key']}"
    atomic_write(folder / CARD, model_card(encoder, name, card_settings(result, manifest), card_scores(result, rule)))
