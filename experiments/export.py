"""Export a checkpoint as a folder that is ready to push to a hub, with a model card of its settings and scores.

    python experiments/export.py mlruns/store/c4bb688a65d9/stsb_dev my-encoder

The folder opens in sentence-transformers and transformers too, if the pooling is cls or mean.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.export")

from dataclasses import dataclass
from pathlib import Path

import tyro

from cse_core.model_card import save_with_card
from cse_core.models.encoder import Encoder
from cse_core.training.checkpoint import MANIFEST, check_content, read_manifest
from experiments.cli.command import run_command
from experiments.cli.console import console, counted
from experiments.results.run_card import card_scores, card_settings
from experiments.results.run_result import read_result


@dataclass(frozen=True, kw_only=True)
class Options:
    """Export a checkpoint of a run, with its scores from the run's result.json."""

    checkpoint: tyro.conf.Positional[Path]
    """The folder of a checkpoint: mlruns/store/<key>/<selection rule>, or mlruns/own/<key>/<selection rule>."""
    folder: tyro.conf.Positional[Path]
    """The folder to write, whose name becomes the encoder's. An earlier export there is replaced."""


def main(options: Options) -> None:
    """Check the checkpoint, save it with its card, and print what was saved."""
    if not (options.checkpoint / MANIFEST).is_file():
        raise FileNotFoundError(_no_checkpoint(options.checkpoint))
    manifest = read_manifest(options.checkpoint)
    check_content(options.checkpoint, manifest)
    result = read_result(options.checkpoint.resolve().parent)
    if result is None:
        raise FileNotFoundError(
            f"{options.checkpoint.parent}: no result.json, so the run's settings and scores are not known; run the "
            "command that trained it again, which writes it"
        )
    settings, scores = card_settings(result, manifest), card_scores(result, manifest.rule)
    save_with_card(Encoder.from_pretrained(options.checkpoint), options.folder, settings, scores)
    console.print(
        f"{options.folder}: {result['name']}, {manifest.rule}, with the scores of {counted(len(scores), 'task')}"
    )
    console.print(f"push it: hf upload OWNER/{options.folder.resolve().name} {options.folder}")


def _no_checkpoint(folder: Path) -> str:
    """Return the error message for a folder without a checkpoint, which names up to three that are nearby."""
    near = folder if folder.is_dir() else next((path for path in folder.parents if path.is_dir()), Path())
    found = sorted(
        path.parent for path in (path for below in ("", "*/", "*/*/") for path in near.glob(f"{below}{MANIFEST}"))
    )
    others = f"; there are {', '.join(map(str, found[:3]))}" if found else ""
    what = "no checkpoint is in it" if folder.is_dir() else "no such folder"
    return (
        f"{folder}: {what}; expected mlruns/store/KEY/RULE or mlruns/own/KEY/RULE, which run.py prints as "
        f"`checkpoint:` when it ends{others}"
    )


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
