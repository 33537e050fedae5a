"""The state of a run while it trains, and its steps: updates, dev scores, checkpoints, saving and resuming."""

import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from cse_core.data.arrow_cache import content_of
from cse_core.data.atomic_write import atomic_path
from cse_core.data.batches import Batches, BatchesAhead, Column
from cse_core.data.corpora import sentences
from cse_core.data.examples import examples
from cse_core.data.senteval import pairs
from cse_core.graph import GeneratorState
from cse_core.method import Batch, Encode, Loss
from cse_core.models.embedding_cache import Progress, cut_warning
from cse_core.models.encoder import Encoder
from cse_core.models.loading import positions_of
from cse_core.models.momentum import Queue
from cse_core.models.pretrained import encoder_hash, resolve_pinned
from cse_core.run import Run
from cse_core.seeding import generator_for, seed_for
from cse_core.training.dev_scoring import DevSet
from cse_core.training.named_inputs import check_named_inputs
from cse_core.training.optimization import optimizer_of, schedule_of
from cse_core.training.run_state import (
    STATE,
    STATE_PARTS,
    UNFINISHED,
    Checkpoint,
    History,
    adopt,
    enforce_run_pins,
    load_state,
)
from cse_core.training.selection import dev_sets, export, snapshot_steps
from cse_core.training.teacher_embeddings import TargetEncoder, load_starting_weights

if TYPE_CHECKING:
    from datasets import Dataset

CLIP = 1.0  # largest norm of the gradient
logger = logging.getLogger(__name__)


class DivergedError(ArithmeticError):
    """A loss term or a weight is no longer finite."""


def _starting_encoder(run: Run, store: Path, device: torch.device) -> Encoder:
    generator = generator_for(run.seed, "pooling")
    encoder = Encoder.from_pretrained(
        run.backbone.name, pooling=run.pooling, template=run.template, dropout=run.dropout, generator=generator
    ).to(device)
    load_starting_weights(encoder, run.method, store)
    encoder.precision = run.precision
    return encoder


def check_length(run: Run, most: int) -> None:
    """Refuse examples that are longer than the backbone has positions for."""
    if run.max_length > most:
        raise ValueError(
            f"run {run.key}: max_length must be at most {most:,}, as {run.backbone.name} has that many positions, "
            f"got {run.max_length:,}"
        )


def _share_of_copies(column: Column) -> float:
    """Return the share of pairs of two examples that have the same ids."""
    counts = np.array([*Counter(column[row].tobytes() for row in range(len(column))).values()])
    return float((counts * (counts - 1)).sum() / max(1, len(column) * (len(column) - 1)))


def _check_examples(run: Run, table: "Dataset", encoder: Encoder) -> None:
    if run.template and encoder.tokenizer.mask_token_id not in table[0][table.column_names[0]]:
        raise ValueError(f"method {run.method.name}: its examples hold no mask, got the pooling 'mask'")
    column = Column(table, table.column_names[0])
    if full := int((np.diff(column.offsets) >= run.max_length).sum()):
        filled = f"{full:,} of {len(table):,} training examples fill the limit of {run.max_length} tokens"
        logger.warning("run %s: %s (max_length): longer sentences are cut there", run.key, filled)
    if run.leave_out_duplicates and (share := _share_of_copies(column)) > 0.5:
        logger.warning("run %s: leave_out_duplicates leaves out %.0f %% of all negatives", run.key, 100 * share)
    if run.batch_size > len(table):
        raise ValueError(
            f"run {run.key}: batch_size must be at most the number of training examples, {len(table):,}, "
            f"got {run.batch_size:,}"
        )


@dataclass(frozen=True)
class Execution:
    """Where and how runs are trained; it does not enter their keys.

    `compiled` turns the loss into one torch.compile graph on a GPU, where dropout then draws other random numbers; the
    CPU has a handwritten pass (packed_forward). A run's state is saved every `save_seconds`.
    """

    store: Path
    data: Path | None = None
    device: str = "cpu"
    compiled: bool = False
    save_seconds: float = 30.0


def compiled_loss(run: Run, encoder: Encoder, backend: str = "inductor") -> Callable[..., Loss]:
    """Return the run's loss, encoder included, as one graph of torch.compile; on a GPU it is replayed as a CUDA graph.

    Refuse a CPU's packed passes: their layout depends on the lengths of each batch. Two kinds of steps are computed as
    written, as each of their shapes would need a graph of its own: those with an epoch's smaller last batch, and those
    while a queue is being filled.
    """
    if encoder.runs_packed:
        raise ValueError(
            f"compiled passes require a GPU; on a {encoder.device.type} they are written out without padding"
        )
    from torch._dynamo.exc import FailOnRecompileLimitHit, Unsupported  # lazy: slow import

    torch.compiler.reset()  # the number of graphs is limited, and those of earlier runs in this process would count
    mode = "reduce-overhead" if encoder.device.type == "cuda" else None
    written = run.method.loss
    loss = torch.compile(written, fullgraph=True, dynamic=False, mode=mode, backend=backend)

    @cache  # a walk through a second encoder takes a third of a millisecond
    def queues(modules: nn.ModuleDict) -> list[Queue]:
        return [part for part in modules.modules() if isinstance(part, Queue)]

    def one_graph(encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        if any(not queue.full for queue in queues(modules)) or len(batch.rows) < run.batch_size:
            return written(encode, batch, modules, targets)
        try:
            return loss(encode, batch, modules, targets)
        except Unsupported as error:
            reason = f"its loss is no single graph ({str(error).splitlines()[0]})"
            raise ValueError(f"method {run.method.name}: {reason}; leave --compiled out") from error
        except FailOnRecompileLimitHit as error:
            reason = "its loss reads a number that changes with the steps, and each would need another graph"
            raise ValueError(f"method {run.method.name}: {reason}; leave --compiled out") from error

    return one_graph


class Loop:
    """The state of a run while it trains."""

    def __init__(
        self, run: Run, execution: Execution, rules: Sequence[str] = ("last",), progress: Progress | None = None
    ) -> None:
        store, data, device = execution.store, execution.data, torch.device(execution.device)
        self.dev_sets = {rule: dev_sets(rule) for rule in sorted(set(rules))}
        self.run, self.rules, self.device, self.step = run, tuple(self.dev_sets), device, 0
        for text in self._precision_warnings():  # before teachers' vectors are computed
            logger.warning("run %s: %s", run.key, text)
        self.encoder = _starting_encoder(run, store, device)
        positions = positions_of(self.encoder.backbone)
        check_length(run, positions)
        # Before tokenising, as `modules` refuses encoders that the method can't train.
        self.modules = run.method.modules(self.encoder, generator_for(run.seed, "modules")).to(device)
        self.compiled = compiled_loss(run, self.encoder) if execution.compiled else None
        corpus = content_of(sentences(run.corpus, data))
        content = {"backbone": encoder_hash(resolve_pinned(run.backbone)), "corpus": corpus}
        enforce_run_pins(run, content, store)
        check_named_inputs(run.method, store, data, f"run {run.key}")
        table = examples(run.corpus, run.method, self.encoder.tokenizer, run.max_length, data, progress)
        _check_examples(run, table, self.encoder)
        self.batches = Batches(
            table,
            run.batch_size,
            seed=run.seed,
            pad_id=self.encoder.pad_id,
            device=device,
            positions=positions,
            leave_out_duplicates=run.leave_out_duplicates,
        )
        if (over := self.batches.longest - positions) > 0:
            raise ValueError(
                f"run {run.key}: with what method {run.method.name} adds to them, its sentences have up to "
                f"{self.batches.longest:,} tokens, and {run.backbone.name} has {positions:,} positions; expected "
                f"max_length of at most {run.max_length - over:,}, got {run.max_length:,}"
            )
        self._ahead = BatchesAhead(self.batches) if device.type == "cuda" else self.batches
        source = TargetEncoder(table, self.encoder, store, corpus=run.corpus, data=data, device=device, report=progress)
        self.targets = run.method.targets(source).on(device)
        for text in self.targets.warnings:
            logger.warning("run %s: %s", run.key, text)
        all_steps = run.epochs * self.batches.per_epoch
        steps = min(all_steps, run.max_steps or all_steps)
        warnings = [*self._precision_warnings(), *self.targets.warnings]
        self.history = History(steps=steps, data=content, warnings=warnings)
        self.snapshots = snapshot_steps(self.rules, self.history.steps)
        self.dev = self._load_dev_sets(data)
        parts = nn.ModuleList([self.encoder, self.modules]).train()
        trained = [p for p in parts.parameters() if p.requires_grad]
        self.optimizer = optimizer_of(run, trained)
        self.schedule = schedule_of(run, self.optimizer, self.history.steps)
        self.scaler = torch.amp.GradScaler(device.type, enabled=run.precision == "fp16")
        self.trained, self._pending = trained, []
        self._skipped = torch.zeros((), dtype=torch.int64, device=device)

    def _precision_warnings(self) -> list[str]:
        precision, device = self.run.precision, self.device.type
        if precision == "fp16" and device == "cpu":
            return ["precision fp16 is slow on a CPU: fp32 is many times as fast, and another run"]
        if precision == "bf16" and device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            other = "with fp16 it is faster, and another run: run.py --precision fp16, or a study of your own"
            return [f"precision bf16 is slow on this GPU, which has no bf16; {other}"]
        return []

    def checkpoint_activations(self) -> None:
        """Store only each layer's input, and recompute its other activations in the backward pass.

        This includes a second encoder that a method trains.
        """
        from transformers import PreTrainedModel  # lazy: slow import

        for part in nn.ModuleList([self.encoder, self.modules]).modules():
            if isinstance(part, PreTrainedModel) and any(p.requires_grad for p in part.parameters()):
                part.activation_checkpointing_enable()
        text = "activations were computed twice, as a step did not fit into memory"
        self.history.warnings = list(dict.fromkeys([*self.history.warnings, text]))

    def _load_dev_sets(self, data: Path | None) -> dict[str, DevSet]:
        sets = {}
        for task in dict.fromkeys(task for tasks in self.dev_sets.values() for task in tasks):
            evaluation = pairs(task, data)
            self.history.data |= evaluation.files
            texts = (text for side in ("sentence1", "sentence2") for text in evaluation.table[side][:])
            self.history.warnings += (*evaluation.warnings, *cut_warning(task, self.encoder, texts))
            sets[task] = DevSet(self.encoder, evaluation)
        return sets

    def train_step(self, step: int) -> None:
        """Take one optimiser step; losses stay on the device until `flush`."""
        torch.manual_seed(seed_for(self.run.seed, f"dropout/{step}"))
        batch = self._ahead.at(step)
        if self.compiled:
            batch = replace(batch, generator=cast(Any, GeneratorState(batch.generator)))
        loss_of = self.compiled or self.run.method.loss
        try:
            loss = loss_of(self.encoder, batch, self.modules, self.targets.at(batch.rows, self.device))
        except torch.linalg.LinAlgError:  # an eigenvalue problem, as in whitening, refuses what is not finite
            self.flush()
            raise
        self.scaler.scale(loss.total).backward()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.trained, CLIP)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.is_enabled():  # it skips a step whose gradient is not finite
            self._skipped += ~norm.isfinite()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        terms = {"loss": loss.total} | {f"loss/{name}": term for name, term in loss.terms.items()}
        # Copies, as the next replay of a CUDA graph overwrites its outputs.
        self._pending.append((step + 1, {name: term.detach().clone() for name, term in terms.items()}))
        self.step = step + 1

    def flush(self) -> None:
        """Move new losses into the history; raise a DivergedError if a loss or a weight is not finite."""
        pending, self._pending = self._pending, []
        values = [value for _, terms in pending for value in terms.values()]
        numbers = iter(torch.stack([v.double() for v in values]).tolist() if values else [])  # one wait for a GPU
        for step, terms in pending:
            for name in terms:
                number = next(numbers)
                if not math.isfinite(number):
                    raise DivergedError(
                        f"run {self.run.key}: {name} is {number} at step {step} of {self.history.steps}"
                    )
                self.history.curves.setdefault(name, []).append((step, number))
        if self.scaler.is_enabled():
            self.history.skipped += int(self._skipped)
            self._skipped.zero_()
        # Stacked, so that a single number is copied from a GPU.
        if pending and not torch.stack([weight.isfinite().all() for weight in self.trained]).all():
            raise DivergedError(
                f"run {self.run.key}: weights are not finite after step {self.step} of {self.history.steps}; "
                f"a lower learning rate than {self.run.learning_rate:g} may help"
            )

    def select(self, folder: Path, step: int) -> bool:
        """Score the dev sets and export the encoder for each rule that it is best for; return whether there was one."""
        self.flush()
        measured = {task: dev.measure(self.encoder) for task, dev in self.dev.items()}
        scores = {task: dev.score for task, dev in measured.items()}
        for task, dev in measured.items():
            if math.isnan(dev.score):
                self.history.warnings.append(f"{task} undefined at step {step}: every pair has the same cosine")
            for name, value in zip(("dev", "alignment", "uniformity"), dev, strict=True):
                if not math.isnan(value):
                    self.history.curves.setdefault(f"{name}/{task}", []).append((step, value))
        exported = False
        for rule, tasks in self.dev_sets.items():
            if not tasks:
                continue
            score = sum(scores[task] for task in tasks) / len(tasks)
            best = self.history.kept.get(rule)
            if best is None or best.score is None or score > best.score:
                self._export(folder, rule, step, None if math.isnan(score) else score)
                exported = True
        return exported

    def snapshot(self, folder: Path, step: int) -> bool:
        """Export the encoder for each rule whose fixed step this is; return whether there was one."""
        due = [rule for rule, at in self.snapshots.items() if at == step]
        if due:
            self.flush()  # a diverged run raises here, before it exports anything
        for rule in due:
            self._export(folder, rule, step, None)
        return bool(due)

    def _export(self, folder: Path, rule: str, step: int, score: float | None) -> None:
        manifest = export(self.encoder, folder / UNFINISHED / rule, key=self.run.key, step=step)
        self.history.kept[rule] = Checkpoint(step, score, manifest.weights)

    def save(self, path: Path) -> None:
        """Save the whole state, in one atomic write."""
        self.flush()
        state = {"key": self.run.key, "step": self.step, "history": asdict(self.history), "keep": list(self.rules)}
        state |= {name: part.state_dict() for name, part in self._state_parts().items()}
        with atomic_path(path) as part:
            torch.save(state, part)

    def resume(self, folder: Path) -> None:
        """Load the folder's saved state if it fits this run; otherwise delete what an earlier attempt left."""
        state = load_state(folder / STATE, self.run.key, self.rules, self.device)
        if not state:
            shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
            return
        for name, part in self._state_parts().items():
            part.load_state_dict(state[name])
        self.step, self.history = state["step"], History.of(state["history"])

    def _state_parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in STATE_PARTS}

    def finish(self, folder: Path) -> History:
        """Export the last checkpoint and move the run into place; score the dev sets if no step has done so yet."""
        if self.dev and not any(dev_sets(rule) for rule in self.history.kept):
            self.select(folder, self.step)
        self.flush()
        if "last" in self.rules:
            self._export(folder, "last", self.step, None)
        self.history.write(folder / UNFINISHED)
        adopt(folder)
        return self.history
