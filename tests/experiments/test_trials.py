"""How runs are handed to Ray Tune."""

import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray import cloudpickle, tune

from experiments import trials
from experiments.job import Place
from experiments.trials import Cluster, run_level


def noted(config: Mapping[str, str], jobs: object, place: Place) -> None:
    """In place of a run: when it began and ended."""
    began = time.time()
    time.sleep(0.5)
    (place.store / config["key"]).write_text(f"{began} {time.time()}")
    tune.report({"fraction": 1.0, "failed": ""})


def times_of(place: Place, keys: Sequence[str]) -> list[tuple[float, ...]]:
    """When each began and ended."""
    return [tuple(map(float, (place.store / key).read_text().split())) for key in keys]


@pytest.mark.slow
def test_runs_that_want_half_a_gpu_are_two_at_a_time_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which workers can't import
    monkeypatch.setattr(trials, "trial", noted)
    place, keys = Place(tmp_path / "store", device="cuda"), list("abcdef")
    place.store.mkdir()
    ray.init(address="local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)  # Ray only counts
    try:
        run_level([SimpleNamespace(key=key) for key in keys], place, Cluster(gpus_per_run=0.5), tune.Callback())  # ty: ignore
    finally:
        ray.shutdown()
    times = times_of(place, keys)
    assert max(sum(began <= at < end for began, end in times) for at, _ in times) == 2


@pytest.mark.slow
def test_no_more_runs_at_a_time_than_asked_for_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which workers can't import
    monkeypatch.setattr(trials, "trial", noted)
    place, keys = Place(tmp_path / "store"), list("dbca")
    place.store.mkdir()
    Cluster(workers=2).start()
    try:
        run_level([SimpleNamespace(key=key) for key in keys], place, Cluster(workers=1), tune.Callback())  # ty: ignore
    finally:
        ray.shutdown()
    times = times_of(place, keys)
    assert times == sorted(times)
    assert all(end < began for (_, end), (began, _) in itertools.pairwise(times))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]  # nothing of Tune's is left beside it
