"""Export a checkpoint as a folder that is ready to push to a hub, with a model card of its settings and scores.

    python experiments/export.py mlruns/store/c4bb688a65d9/stsb_dev my-encoder
    python experiments/export.py c4bb688a65d9 my-encoder --data FOLDER

The second form takes the key of a recorded run, and trains the run if its checkpoint is not there. The folder opens in
sentence-transformers and transformers too, if the pooling is cls or mean.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.export")

from dataclasses import dataclass
from pathlib import Path

import tyro

from cse_core.data.locate import data_folder
from cse_core.lookup import look_up
from cse_core.model_card import save_with_card
from cse_core.models.encoder import Encoder
from cse_core.run import is_key
from cse_core.training.checkpoint import MANIFEST, check_content, read_manifest
from cse_core.training.run_state import History
from experiments.cli.command import run_command
from experiments.cli.console import Bar, console, counted
from experiments.cli.options import check_device, device_here
from experiments.cli.sweep_options import SharedOptions
from experiments.results.run_card import card_scores, card_settings
from experiments.results.run_result import read_result


@dataclass(frozen=True, kw_only=True)
class Options(SharedOptions):
    """Export a checkpoint of a run, with its scores from the run's result.json."""

    checkpoint: tyro.conf.Positional[Path]
    """The folder of a checkpoint: mlruns/store/<key>/<selection rule>, or mlruns/own/<key>/<selection rule>. Or the key
    of a recorded run: its checkpoint with the best dev score is exported, and the run is trained if it is not there."""
    folder: tyro.conf.Positional[Path]
    """The folder to write, whose name becomes the encoder's. An earlier export there is replaced."""


def main(options: Options) -> None:
    """Check the checkpoint, save it with its card, and print what was saved."""
    check_device(options.device)
    by_key = is_key(str(options.checkpoint)) and not options.checkpoint.exists()
    checkpoint = of_recorded(str(options.checkpoint), options) if by_key else options.checkpoint
    if not (checkpoint / MANIFEST).is_file():
        raise FileNotFoundError(_no_checkpoint(checkpoint))
    manifest = read_manifest(checkpoint)
    check_content(checkpoint, manifest)
    result = read_result(checkpoint.resolve().parent)
    if result is None:
        raise FileNotFoundError(
            f"{checkpoint.parent}: no result.json, so the run's settings and scores are not known; run the "
            "command that trained it again, which writes it"
        )
    settings, scores = card_settings(result, manifest), card_scores(result, manifest.rule)
    save_with_card(Encoder.from_pretrained(checkpoint), options.folder, settings, scores)
    console.print(
        f"{options.folder}: {result['name']}, {manifest.rule}, with the scores of {counted(len(scores), 'task')}"
    )
    console.print(f"push it: hf upload OWNER/{options.folder.resolve().name} {options.folder}")


def of_recorded(key: str, options: Options) -> Path:
    """Return the checkpoint of a recorded run; first train the run, and what it needs, if it is not in the store."""
    from experiments.audits.agreement import Recorded  # lazy: slow import
    from experiments.audits.sample import named  # lazy: slow import
    from experiments.comparison.tuned import recorded_jobs  # lazy: slow import
    from experiments.execution.job import ExecutionSettings, execute  # lazy: slow import
    from experiments.execution.sweep_setup import require_inputs, store_of, untrained_keys  # lazy: slow import
    from experiments.schema.scales import SCALES  # lazy: slow import
    from experiments.studies.catalogue import choose_studies, names_at  # lazy: slow import

    best = store_of(options) / key / look_up("scale", options.scale, SCALES).dev
    if (best / MANIFEST).is_file():
        return best
    studies, mlruns = choose_studies(names_at(options.scale), options.scale), options.mlruns
    device = device_here(options.device)
    recorded = Recorded.read(options.scale, mlruns, recorded_jobs(options.scale, mlruns))
    jobs = named((key,), studies, recorded, mlruns, device).jobs
    dev, rules = studies[0].scale.dev, jobs[-1].rules
    checkpoint = store_of(options) / key / (dev if dev in rules else rules[0])
    if (checkpoint / MANIFEST).is_file():
        return checkpoint
    execution = ExecutionSettings(store_of(options), data_folder(options.data), device=device)
    require_inputs(jobs, untrained_keys(jobs, execution.store), execution.data)
    with Bar({job.key: job.name for job in jobs}) as bar:
        for job in jobs:

            def move(step: int, history: History, key: str = job.key) -> None:
                bar.move(key, 0.8 * step / history.steps)  # scoring takes the rest

            execute(job, execution, on_step=move)
            bar.end(job.key, failed=False)
    return checkpoint


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
        f"`checkpoint:` when it ends, or the key of a recorded run{others}"
    )


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
