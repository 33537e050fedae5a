"""Scores have the same bits whichever kernels OpenBLAS runs, in two processes that differ only in the kernels."""

import json
import os
import subprocess
import sys

import pytest

# Kernels that every x86-64 processor can run; their dot products add in different orders.
KERNELS = ("Prescott", "Nehalem")

FIND = """
import json
import numpy as np, torch
from cse_core.models.encoder import Encoder
from cse_core.evaluation import suite
from cse_core.metrics import correlation, neighbours, ranking
from cse_core.models.embedding_cache import CachedEncoder
from cse_core.run import Corpus
from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Whitened
from experiments.results.provenance import blas

torch.set_num_threads(1)
encoder, corpus, found = CachedEncoder(Encoder.from_pretrained("wiki-tiny")), Corpus("synthetic", 512), {"blas": blas()}


def keep(name, numbers):
    found.update({f"{name} {key}": float(value).hex() for key, value in numbers.items()})


SETS, OTHERS = ("synthetic", "synthetic_dev"), ("phrases", *suite.GROUPS["examples"])
ranked = [Ranked(corpus=corpus, size=400, similarity=similarity) for similarity in ("rank", "centred")]
for scorer in (Cosine(), *ranked, Whitened(dims=16), Whitened(corpus=corpus, dims=16), Flowed()):
    own = isinstance(scorer, (Cosine, Ranked))  # the others would be fitted on six sentences
    evaluated = suite.evaluate(encoder, scorer, SETS + OTHERS * own)
    for task, outcome in evaluated.outcomes.items():
        keep(f"{scorer} {task}", outcome.metrics)
        found.update({f"{scorer} {task} {name}": array.tobytes().hex() for name, array in outcome.arrays.items()})

random = np.random.default_rng(0)
for trial in range(50):  # numbers that no encoder gave
    scores, gold = random.normal(size=(2, 400))
    gold = np.round(2.5 + gold.clip(-2.5, 2.5) + 1e-9, 1)
    keep(f"{trial}", correlation.correlations(scores, gold, ["a", "b", "c", "d"] * 100))
    keep(f"{trial}", ranking.summary(scores, gold, [(f"{row % 40}", f"other {row}") for row in range(400)]))
    keep(f"{trial}", {"trend": neighbours.gain_trend(random.normal(size=(10, 2)))})
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.nightly  # two processes that import everything
def test_scores_have_the_same_bits_under_two_kernels() -> None:
    given = os.environ | {"OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", FIND], env=given | {"OPENBLAS_CORETYPE": kernel}, stdout=subprocess.PIPE, text=True
        )
        for kernel in KERNELS
    ]
    printed = [process.communicate(timeout=600)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    found = [json.loads(text) for text in printed]
    kernels = [one.pop("blas") for one in found]
    if kernels[0] == kernels[1]:
        pytest.skip(f"OPENBLAS_CORETYPE chooses nothing here: both processes had {kernels[0]}")
    assert len(found[0]) > 900
    assert {name for name, value in found[0].items() if found[1].get(name) != value} == set()
    assert found[0].keys() == found[1].keys()
