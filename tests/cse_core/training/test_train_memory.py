"""A step that does not fit into memory: taken with activations computed twice, to the same bits, or named."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from cse_core.data.batches import pad
from cse_core.method import Batch, Encode, Loss
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.seeding import seed_for
from cse_core.training.train import MemoryExceededError, train
from tests.support.training import KEEP, TINY, Trained, equal, weights


@dataclass(frozen=True)
class Hungry(SimCSE):
    """Does not fit into memory at its sixth step, unless activations are computed twice, or at all."""

    name: ClassVar[str] = "hungry"
    ever: bool = True

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, torch.Tensor]) -> Loss:
        sixth = batch.generator.initial_seed() == seed_for(42, "loss/5")
        if sixth and not (self.ever and encode.backbone.is_activation_checkpointing):  # ty: ignore
            raise torch.OutOfMemoryError("tried to allocate 20 MiB")
        return SimCSE.loss(self, encode, batch, modules, targets)


@pytest.mark.slow
def test_a_step_too_large_for_memory_is_taken_with_less_and_gives_the_same_bits(
    tmp_path: Path, undisturbed: Trained
) -> None:
    run = replace(TINY, method=Hungry())
    steps: list[int] = []
    history = train(run, tmp_path, rules=KEEP, on_step=lambda step, _: steps.append(step))
    assert steps == [1, 2, 3, 4, 5, *range(5, 15)]  # from the state of step 4
    assert history.warnings == ["activations were computed twice, as a step did not fit into memory"]
    assert history.curves == undisturbed.history.curves
    for rule in KEEP:
        assert equal(weights(tmp_path, run, rule), weights(undisturbed.store, TINY, rule))


@pytest.mark.slow
def test_a_run_too_large_for_memory_in_any_case_is_named(tmp_path: Path) -> None:
    run = replace(TINY, method=Hungry(ever=False))
    with pytest.raises(MemoryExceededError, match=rf"run {run.key}: a step of 16 .*tried to allocate 20 MiB.*share"):
        train(run, tmp_path, rules=KEEP)


def test_computing_activations_twice_keeps_less_of_them() -> None:
    encoder = Encoder.from_pretrained("wiki-mini").train()
    tokens = pad(encoder.tokenise([f"sentence number {i} of a few" for i in range(16)]), encoder.pad_id)
    kept = []
    for _ in range(2):
        sizes: dict[int, int] = {}

        def remember(found: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[found.data_ptr()] = found.numel() * found.element_size()
            return found

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda found: found):
            encoder(tokens)
        weights = {parameter.data_ptr() for parameter in encoder.parameters()}
        kept.append(sum(size for place, size in sizes.items() if place not in weights))
        encoder.backbone.activation_checkpointing_enable()
    assert kept[1] < 0.2 * kept[0]
