"""How runs are handed to Ray Tune."""

import itertools
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray import cloudpickle, tune

from experiments.execution import ray_sweep
from experiments.execution.job import ExecutionSettings
from experiments.execution.ray_sweep import RayConfig, run_level


def noted(config: Mapping[str, str], jobs: object, execution: ExecutionSettings) -> None:
    """In place of a run: when it began and ended."""
    began = time.time()
    time.sleep(0.5)
    (execution.store / config["key"]).write_text(f"{began} {time.time()}")
    tune.report({"fraction": 1.0, "failed": ""})


def together(config: Mapping[str, str], jobs: object, execution: ExecutionSettings) -> None:
    """The same, once another one is there: the second worker may take its time to start."""
    (execution.store / f"{config['key']}.there").touch()
    end = time.time() + 100
    while len(list(execution.store.glob("*.there"))) < 2 and time.time() < end:
        time.sleep(0.02)
    noted(config, jobs, execution)


@pytest.fixture
def execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ExecutionSettings]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which workers can't import
    monkeypatch.setattr(ray_sweep, "run_job", noted)
    (tmp_path / "store").mkdir()
    yield ExecutionSettings(tmp_path / "store")
    ray.shutdown()


def times(keys: Sequence[str], execution: ExecutionSettings, cluster: RayConfig) -> list[tuple[float, ...]]:
    """When each began and ended."""
    run_level([SimpleNamespace(key=key) for key in keys], execution, cluster, tune.Callback())  # ty: ignore
    return [tuple(map(float, (execution.store / key).read_text().split())) for key in keys]


@pytest.mark.slow
def test_runs_that_require_half_a_gpu_are_two_at_a_time_on_one(
    execution: ExecutionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_sweep, "run_job", together)
    ray.init(address="local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)  # Ray only counts
    found = times("abcdef", replace(execution, device="cuda"), RayConfig(gpus_per_run=0.5))
    assert max(sum(began <= at < end for began, end in found) for at, _ in found) == 2


@pytest.mark.slow
def test_no_more_runs_at_a_time_than_asked_for_in_their_order(execution: ExecutionSettings) -> None:
    RayConfig(workers=2).start()
    found = times("dbca", execution, RayConfig(workers=1))
    assert found == sorted(found)
    assert all(end < began for (_, end), (began, _) in itertools.pairwise(found))
    assert [path.name for path in execution.store.parent.iterdir()] == ["store"]  # nothing of Tune's is left beside it
