"""Rows of the plan have the training settings that their labels and the plan's text state."""

import pytest

from cse_core.run import Run
from experiments.studies.catalogue import choose_studies, single


def runs(scale: str) -> dict[str, Run]:
    return {row.label: row.encoder for row in single("plan-teachers", scale).rows if isinstance(row.encoder, Run)}


@pytest.mark.parametrize(("scale", "epochs"), [("small", (8, 16)), ("paper", (1, 2))])
def test_more_compute_is_twice_the_batch_and_twice_the_epochs_with_as_many_dev_scores(
    scale: str, epochs: tuple[int, int]
) -> None:
    by_label = runs(scale)
    ours = next(run for label, run in by_label.items() if label.startswith("SimCSE, twice the batch and the epochs"))
    simcse = by_label["SimCSE, 8 epochs" if scale == "small" else "SimCSE"]
    assert (simcse.epochs, ours.epochs) == epochs
    assert ours.batch_size == 2 * simcse.batch_size
    assert ours.eval_steps == simcse.eval_steps  # and as many steps, of twice the sentences


def test_a_label_names_the_epochs_that_its_run_trains_for_or_half_of_them() -> None:
    for study in choose_studies(["plan"], "small"):
        for row in study.rows:
            if isinstance(row.encoder, Run) and row.label.endswith(" epochs"):
                epochs = row.encoder.epochs // (2 if "twice the batch and the epochs" in row.label else 1)
                assert row.label.endswith(f", {epochs} epochs"), row.label
