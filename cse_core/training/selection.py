"""Selection rules, which say which checkpoints of a run are saved, and the export of a checkpoint."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cse_core.data import own_pairs
from cse_core.data.atomic_write import full_disk_named
from cse_core.data.senteval import pairs
from cse_core.lookup import unknown
from cse_core.models.encoder import Encoder
from cse_core.training.checkpoint import Manifest, write_manifest

QUARTERS = {f"quarter_{q}": q for q in (1, 2, 3)}  # the fourth is `last`
# A rule saves the checkpoint with the best mean score over its dev sets; `last` and the quarters have none.
SELECTION: dict[str, tuple[str, ...]] = {
    "last": (),
    "stsb_dev": ("stsb_dev",),
    "avg_sts": ("stsb_dev", "sickr_dev"),
    "synthetic_dev": ("synthetic_dev",),
    **dict.fromkeys(QUARTERS, ()),
}


def dev_sets(rule: str) -> tuple[str, ...]:
    """Return the dev sets of a rule; the name of a user's own set (own_pairs.py) is a rule, too."""
    if rule not in SELECTION and not own_pairs.is_own(rule):
        raise unknown("selection rule", rule, SELECTION)
    return SELECTION.get(rule, (rule,))


def changed_dev_files(rules: Sequence[str], recorded: Mapping[str, str], data: Path | None) -> list[str]:
    """Return the files of the rules' dev sets whose hash differs from the recorded one; missing files are skipped."""
    now: dict[str, str] = {}
    for name in {name for rule in rules for name in dev_sets(rule) if not own_pairs.is_own(name)}:
        try:
            now |= pairs(name, data).files
        except (FileNotFoundError, ValueError):  # a finished run does not need its dev set
            continue
    return sorted(name for name, content in now.items() if recorded.get(name, content) != content)


def snapshot_steps(rules: Sequence[str], steps: int) -> dict[str, int]:
    """Return the step after which each quarter among the rules is saved: round(steps * q / 4), halves to even."""
    due = {rule: round(steps * QUARTERS[rule] / 4) for rule in rules if rule in QUARTERS}
    empty = [rule for rule, step in due.items() if step == 0]
    if empty:
        raise ValueError(
            f"selection rule {', '.join(empty)}: expected a quarter of at least one step, got {steps} steps"
        )
    return due


def export(encoder: Encoder, folder: Path, *, key: str, step: int) -> Manifest:
    """Save a step's encoder to a folder named after its rule; what was in the folder is replaced at the end."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
    with full_disk_named(folder):
        encoder.save_pretrained(part)
        manifest = write_manifest(part, key=key, rule=folder.name, step=step)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    return manifest
