"""How runs are handed to Ray Tune."""

import itertools
import sys
import time
from collections.abc import Mapping
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
    times = [[float(at) for at in (place.store / key).read_text().split()] for key in keys]
    assert times == sorted(times)
    assert all(end < began for (_, end), (began, _) in itertools.pairwise(times))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]  # nothing of Tune's is left beside it
