"""Which checkpoints of a run are saved, by rule, and how one is written: whole, or not at all."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from cse_core.models.encoder import Encoder
from cse_core.training.checkpoint import Manifest, write_manifest

QUARTERS = {f"quarter_{q}": q for q in (1, 2, 3)}  # the fourth is `last`
# A rule keeps the checkpoint with the best mean score over its dev sets; `last` and the quarters ask for none.
SELECTION: dict[str, tuple[str, ...]] = {
    "last": (),
    "stsb_dev": ("stsb_dev",),
    "avg_sts": ("stsb_dev", "sickr_dev"),
    "synthetic_dev": ("synthetic_dev",),
    **dict.fromkeys(QUARTERS, ()),
}


def snapshot_steps(rules: Sequence[str], steps: int) -> dict[str, int]:
    """The step after which each quarter among the rules is kept: round(steps * q / 4), a half to the even number."""
    found = {rule: round(steps * QUARTERS[rule] / 4) for rule in rules if rule in QUARTERS}
    none = [rule for rule, step in found.items() if step == 0]
    if none:
        raise ValueError(f"selection rule {', '.join(none)}: a quarter of at least one step wanted, got {steps} steps")
    return found


def export(encoder: Encoder, folder: Path, *, key: str, step: int) -> Manifest:
    """Save the encoder, as it is after a step, in place of what the folder held; the folder is named by its rule."""
    part = folder.with_name(f".{folder.name}.part")
    encoder.save_pretrained(part)
    manifest = write_manifest(part, key=key, rule=folder.name, step=step)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    return manifest
