"""bf16 is another rounding, not another method."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.run_state import History
from cse_core.training.train import train

RUN = Run(
    method=SimCSE(),
    backbone=Pretrained("wiki-tiny"),
    corpus=Corpus("synthetic", 2048),
    learning_rate=3e-4,
    dropout=0.3,
    eval_steps=16,
)


def dev(history: History) -> np.ndarray:
    return np.array([100 * score for _, score in history.curves["dev/synthetic_dev"]])


@pytest.mark.slow
def test_the_dev_curve_is_that_of_fp32(cache: Path, tmp_path: Path) -> None:
    """Two seeds differ by more than a point; two precisions of one seed by a tenth at most."""
    torch.set_num_threads(1)
    found = {
        (seed, precision): train(replace(RUN, seed=seed, precision=precision), tmp_path, rules=("synthetic_dev",))
        for seed, precision in ((1, "fp32"), (1, "bf16"), (2, "fp32"))
    }
    fp32, bf16, other = found.values()
    assert np.abs(dev(fp32) - dev(bf16)).max() < 0.1
    assert np.abs(dev(fp32) - dev(other)).max() > 1
    losses = [np.array(history.curves["loss"])[:, 1] for history in (fp32, bf16)]
    assert np.abs(losses[0] - losses[1]).max() < 0.05
    assert (losses[0] != losses[1]).any()  # it was another rounding
