"""The one training loop: steps, dev scores, checkpoints, exact resume.

A run has its own folder, store/<key>. While it trains, that holds `state.pt` and `unfinished/`. When it is finished, it
holds `history.json` and a checkpoint per selection rule, put in place together (run_state.adopt). Random numbers depend
only on (seed, step), so a run that is killed and resumed ends with the same bits as an uninterrupted one.
"""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from cse_core.data import own_pairs
from cse_core.models.embedding_cache import Progress
from cse_core.models.fp32_products import faster_products
from cse_core.run import Run
from cse_core.training.loop import Execution, Loop
from cse_core.training.named_inputs import check_named_inputs
from cse_core.training.run_state import STATE, UNFINISHED, History, adopt, finished_history, load_history
from cse_core.training.selection import changed_dev_files

logger = logging.getLogger(__name__)
OnStep = Callable[[int, History], object]


class MemoryExceededError(RuntimeError):
    """A step does not fit into the device's memory."""


@faster_products()
def train(
    run: Run,
    execution: Execution | Path,
    *,
    rules: Sequence[str] = ("last",),
    on_step: OnStep | None = None,
    progress: Progress | None = None,
) -> History:
    """Train or resume a run, unless it is finished; return its history, with a checkpoint for each selection rule.

    `execution` may be the folder of the store alone; the other settings then have their defaults.
    A selection rule says which checkpoint is kept: `last`, or the best on a dev task of that name (`stsb_dev`).
    `progress` is called while training examples and teachers' vectors are made, which can take longer than training.
    A run whose step does not fit into memory resumes from its last state with activation checkpointing. That gives the
    same bits. Smaller batches would not, since a contrastive loss needs the whole batch at once.
    """
    execution = execution if isinstance(execution, Execution) else Execution(execution)
    store, data, folder = execution.store, execution.data, execution.store / run.key
    adopt(folder)
    if history := finished_history(run, store, rules, content=True):
        if not (folder / STATE).is_file():  # `adopt` may have been killed before its last step
            shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        check_named_inputs(run, store, data, f"run {run.key}")
        changed = changed_dev_files(rules, history.data, data)
        if not changed:
            return history
        logger.warning(
            "run %s: %s changed since its checkpoints were chosen by it: trained again", run.key, ", ".join(changed)
        )
    folder.mkdir(parents=True, exist_ok=True)
    # A run that was finished for fewer rules, or whose checkpoints don't fit, is trained again, for its old rules too.
    if earlier := load_history(folder):
        known = [rule for rule in earlier.kept if not own_pairs.is_own(rule) or own_pairs.is_added(rule)]
        rules = [*rules, *known]
        if lost := [rule for rule in earlier.kept if rule not in rules]:
            text = "run %s: trained again, without its checkpoint by %s: these pairs are not named"
            logger.warning(text, run.key, ", ".join(lost))
    try:
        return _train(Loop(run, execution, rules, progress), folder, execution.save_seconds, on_step)
    except torch.OutOfMemoryError as error:
        logger.warning("run %s: %s; it resumes with activation checkpointing", run.key, error)
    # Outside the handler: inside, the error would keep the first attempt's tensors alive.
    try:
        return _train(Loop(run, execution, rules, progress), folder, execution.save_seconds, on_step, recompute=True)
    except torch.OutOfMemoryError as error:
        raise MemoryExceededError(
            f"run {run.key}: a step of {run.batch_size} sentences does not fit into memory, even with activations "
            f"computed twice (a GPU keeps those of passes without dropout): {error}; give it a larger share of a GPU"
        ) from None


def _train(
    loop: Loop, folder: Path, save_seconds: float, on_step: OnStep | None, *, recompute: bool = False
) -> History:
    loop.resume(folder)
    if recompute:
        loop.checkpoint_activations()
    saved = started = time.monotonic()
    before = loop.history.seconds
    for step in range(loop.step, loop.history.steps):
        loop.train_step(step)
        exported = loop.snapshot(folder, step + 1)
        if (step + 1) % loop.run.eval_steps == 0:
            exported |= loop.select(folder, step + 1)
        loop.history.seconds = before + time.monotonic() - started
        if exported or time.monotonic() - saved > save_seconds:
            loop.save(folder / STATE)
            saved = time.monotonic()
        if on_step:
            on_step(step + 1, loop.history)
    return loop.finish(folder)
