"""The estimate of a GPU's memory against real parameters, what was measured, and the way it must grow."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from cse_core.models.pretrained import ASSETS
from cse_core.run import Pretrained, Run
from experiments.execution.gpu_memory import GIB, PROCESS, fit, gpu_bytes, shape
from experiments.schema.recipes import RUNS
from experiments.schema.scales import SCALES

MEASURED = Path(__file__).parents[3] / "analysis/measured/scaling.csv"
BASE, LARGE = "bert-base-uncased", "bert-large-uncased"


def made(name: str, scale: str = "paper", backbone: str = BASE, **fields: object) -> Run:
    run = RUNS[name](SCALES[scale], backbone, **fields)
    assert run
    return run


def takes(run: Run) -> float:
    found = gpu_bytes(run)
    assert found
    return found


@pytest.mark.parametrize("backbone", ["wiki-tiny", "wiki-mini", "wiki-medium"])
def test_parameters_of_embedded_backbones(backbone: str) -> None:
    weights = load_file(ASSETS / backbone / "model.safetensors")
    real = sum(tensor.numel() for name, tensor in weights.items() if ".embeddings." in name or ".layer." in name)
    found = shape(backbone)
    assert found
    assert found.parameters == pytest.approx(real, rel=0.03)


@pytest.mark.parametrize(("backbone", "millions"), [(BASE, 109), (LARGE, 335), ("roberta-base", 124)])
def test_parameters_of_published_backbones(backbone: str, millions: int) -> None:
    found = shape(backbone)
    assert found
    assert found.parameters / 1e6 == pytest.approx(millions, rel=0.03)


def test_activations_are_what_was_measured() -> None:
    """On a CPU, fp32, no process of CUDA's, weights there before: the peak of a step of SimCSE on wiki-tiny."""
    with MEASURED.open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["what"] == "memory, SimCSE step"]
    assert len(lines) > 2
    for line in lines:
        run = replace(made("simcse", "small"), batch_size=int(line["x"]))
        estimate = takes(run) - PROCESS - 4 * 2_500_000
        assert 1 < estimate / (float(line["value"]) * 2**20) < 1.5


def test_what_makes_a_run_larger() -> None:
    simcse = made("simcse")
    assert takes(replace(simcse, precision="fp32")) > takes(simcse)
    activations = takes(replace(simcse, batch_size=512)) - takes(replace(simcse, batch_size=256))
    assert activations == pytest.approx(2 * 256 * 32 * 12 * (34 * 768 + 5 * 12 * 32))
    row = 64 * 32 * 12 * (34 * 768 + 5 * 12 * 32)
    for name, rows in (("compcse", 3), ("whitenedcse", 1), ("mlm", 4)):
        assert takes(made(name)) - takes(simcse) == pytest.approx((rows - 2) * row, rel=0.01)
    state = 12 * 12 * 768**2 + 30_522 * 768  # DiffCSE's discriminator is trained, its generator is not
    assert takes(made("diffcse")) - takes(simcse) == pytest.approx(2 * row + (18 + 4) * state)
    phrases = made("compcse", subsampling="adjacent")
    assert takes(phrases) == takes(made("compcse"))  # batches of as many examples
    more = takes(made("rankencoder")) - takes(made("rankencoder", corpus_size=10_000))
    assert more == pytest.approx((4 * 768 + 24 * 64) * 90_000)
    assert takes(made("rankcse", backbone=LARGE)) > 2 * takes(made("rankcse"))


def test_how_many_fit_and_runs_of_unknown_size() -> None:
    base, large = made("simcse"), made("simcse", backbone=LARGE)
    found = fit([base, large, replace(base, backbone=Pretrained("someone/theirs"))], 40)
    assert found
    assert found.largest == large
    assert found.at_once == int(40 * GIB / takes(large)) >= 2
    assert fit([replace(base, backbone=Pretrained("someone/theirs"))], 40) is None
    with pytest.raises(ValueError, match="--gpu-memory: expected the GiB of a GPU, got 0"):
        fit([base], 0)
