"""Help, lists and refusals come at once: no command imports a slow library before it needs it."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IMPORTS = 1.7  # times the processor time of importing torch and pandas, 2.3 s on a machine without other load
SLOW = {"ray", "mlflow", "optuna", "transformers", "datasets", "sklearn"}
SLOW |= {"scipy.stats", "matplotlib", "seaborn", "umap"}
HELP = ("--help",)
# Calls with a part of what each prints.
COMMANDS = {
    ("experiments/sweep.py", HELP): "--gpus-per-run",
    ("experiments/sweep.py", ("rankcse-table99",)): "unknown study 'rankcse-table99' (did you mean rankcse-table",
    ("experiments/run.py", HELP): "{simcse,rankcse,",
    ("experiments/run.py", ("rankcse", "--help")): "--student-temperature",
    ("experiments/run.py", ("rankcs",)): "unknown method 'rankcs' (did you mean rankcse?)",
    ("experiments/evaluate.py", HELP): "--corpus-size",
    ("experiments/evaluate.py", ("wiki-tiny", "--tasks", "sts11")): "unknown task 'sts11' (did you mean sts1",
    ("experiments/import_record.py", HELP): "--record",
    ("experiments/merge.py", HELP): "--mlruns",
    ("experiments/audit.py", HELP): "--count",
    ("experiments/estimate.py", HELP): "--price",
    ("experiments/search.py", HELP): "--trials",
    ("experiments/remove.py", HELP): "--yes",
    ("experiments/merge.py", ("FOLDER", "--mlrun", "FOLDER")): "--mlruns",
}
LISTED = {("experiments/sweep.py", ("--list",)): "unique runs"}
ANALYSIS = {
    ("analysis/make_tables.py", HELP): "--check",
    ("analysis/make_tables.py", ("--chek",)): "--check",
    ("analysis/make_tables.py", ("rankcse-table99",)): "unknown study 'rankcse-table99' (did you mean rankcse-table",
    ("analysis/make_figures.py", HELP): "--check",
    ("analysis/make_figures.py", ("rankcse-table99",)): "unknown study 'rankcse-table99' (did you mean rankcse-table",
    ("analysis/pair_bootstrap.py", HELP): "--mlruns",
    ("analysis/pair_bootstrap.py", ("robustnes",)): "unknown study 'robustnes' (did you mean robustness?)",
}
CHILD = """
import contextlib, io, json, runpy, sys
found = []
for command, arguments in json.loads(sys.argv[1]):
    sys.argv = [command, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        try:
            runpy.run_path(command, run_name="__main__")
        except SystemExit as end:
            print(end.code)
    found.append((printed.getvalue(), sorted(sys.modules)))
print(json.dumps(found))
"""


def seconds_of(*arguments: str) -> tuple[float, str]:
    """Run Python and return the processor time that it took and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | {"COLUMNS": "200"}, stdout=subprocess.PIPE, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout.decode()


@pytest.fixture(scope="module")
def imports() -> list[float]:
    """Times of the imports, with the newest last."""
    return [seconds_of("-c", "import torch, pandas")[0]]


@pytest.mark.parametrize(
    ("calls", "slow"),
    [(COMMANDS, SLOW | {"pandas"}), (LISTED, SLOW), (ANALYSIS, SLOW)],
    ids=["runs", "list", "analysis"],
)
@pytest.mark.slow
def test_help_and_refusals_come_at_once(
    calls: dict[tuple[str, tuple[str, ...]], str], slow: set[str], imports: list[float]
) -> None:
    """Several calls in one process, so that each by itself takes less than their sum.

    Other processes on the same core stretch processor time by up to a half, so times of the same moment are compared:
    the imports before and after the calls, up to three times in turn.
    """
    ratios: list[float] = []
    while len(ratios) < 3 and not (ratios and min(ratios) < IMPORTS):
        seconds, output = seconds_of("-c", CHILD, json.dumps(list(calls)))
        imports.append(seconds_of("-c", "import torch, pandas")[0])
        ratios.append(2 * seconds / sum(imports[-2:]))
    for (call, said), (printed, modules) in zip(calls.items(), json.loads(output), strict=True):
        assert said in printed, call
        assert "Traceback" not in printed, call
        assert slow & set(modules) == set(), call
    assert min(ratios) < IMPORTS
