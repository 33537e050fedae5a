"""Sweeps and searches without Ray: their runs happen in the driver's process, one after another.

For tests of a command's files and messages. Tests of workers, lost ones or several, use Ray.
"""

import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

SCRIPT = "from tests.support.without_ray import stay_here; stay_here(); "


def stay_here() -> None:
    """Replace the parts of Ray that this process would use."""
    from ray import tune

    from experiments.execution import ray_sweep
    from experiments.searches import ray_search

    for place, name, mine in (
        (tune, "with_parameters", partial),
        (ray_sweep.RayConfig, "start", lambda cluster: "cpu"),
        (ray_sweep, "tuner", one_after_another),
        (ray_search, "tuner", one_after_another),
    ):
        setattr(place, name, mine)


def one_after_another(
    trainable: Callable[[Any], None],
    cluster: Any,
    execution: Any,
    callback: Any,
    *,
    search_alg: Any,
    num_samples: int,
    **_: Any,
) -> SimpleNamespace:
    """Return an object with `fit`, as Ray Tune's tuner has: it runs each trial that the searcher suggests."""
    from ray import tune

    def fit() -> None:
        for name in map(str, itertools.count() if num_samples < 0 else range(num_samples)):
            config = search_alg.suggest(name)
            if config == search_alg.FINISHED:
                return
            if config is None:  # ask again
                continue
            trial = SimpleNamespace(trial_id=name, config=config, last_result={})
            callback.on_trial_start(0, [], trial)

            def report(result: dict[str, Any], trial: Any = trial) -> None:
                trial.last_result = result
                callback.on_trial_result(0, [], trial, result)

            tune.report = report
            trainable(config)
            search_alg.on_trial_complete(name, trial.last_result)
            callback.on_trial_complete(0, [], trial)

    return SimpleNamespace(fit=fit)
