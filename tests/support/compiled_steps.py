"""Train a few steps of each method, as written and compiled, and print the outcomes: `python -m` this module.

Shapes are checked by decorators in the tests' own process, which torch.compile can't look through.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cse_core.models.encoder import Encoder
from cse_core.training import loop as loops
from tests.support.padded_loops import loop_on

STEPS = (0, 1, 10)  # step 10 has the smaller batch that ends an epoch
FILLING = {"esimcse", "mocose"}  # the queues of these are full after four and six steps


def curves(method: str, store: Path, widths: tuple[int, ...], *, compiled: bool) -> dict[str, list[float]]:
    """Return a run's loss terms by step, and the norm of its weights after them."""
    loop = loop_on("cpu", method, store, compiled=compiled)
    loop.batches.widths = widths
    for step in range(12) if method in FILLING else STEPS:
        loop.train_step(step)
    loop.flush()
    weights = torch.cat([p.detach().flatten() for p in loop.trained])
    values = {name: [value for _, value in points] for name, points in loop.history.curves.items()}
    return values | {"norm": [float(weights.double().norm())]}


def outcome(method: str, store: Path, widths: tuple[int, ...]) -> dict[str, Any]:
    """Return a method's losses as written and compiled, and the number of its graphs; or why it is refused."""
    torch._dynamo.utils.counters.clear()
    try:
        found = {kind: curves(method, store, widths, compiled=kind == "compiled") for kind in ("eager", "compiled")}
    except ValueError as error:
        return {"refused": str(error)}
    return {**found, "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    backend, store, widths, *methods = sys.argv[1:]
    padded_to = tuple(map(int, widths.split(",")))
    # For all runs of this process together.
    torch._dynamo.config.recompile_limit = len(padded_to)  # ty: ignore[invalid-assignment]
    Encoder.runs_packed = property(lambda self: False)  # ty: ignore[invalid-assignment]
    loops.compiled_loss = partial(loops.compiled_loss, backend=backend)  # ty: ignore[invalid-assignment]
    print(json.dumps({method: outcome(method, Path(store), padded_to) for method in methods}))
