"""The processor time and memory of commands that read the whole record, including imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.measure import record

ROOT = Path(__file__).parents[2]
GB = 1e6  # kilobytes, Linux's unit


def taken(*words: str) -> tuple[float, float]:
    """Run a command; return its processor seconds and its largest memory in GB."""
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / GB


@pytest.mark.parametrize(
    ("words", "seconds", "gigabytes"),
    [
        (("analysis/make_tables.py", "--check"), 12, 1.0),
        (("experiments/sweep.py", "--list"), 4, 1.0),
        (("experiments/import_record.py", "--record", "mlruns", "--mlruns"), 30, 1.0),
    ],
    ids=["tables", "list", "import"],
)
def test_a_command_that_reads_the_record(
    words: tuple[str, ...], seconds: float, gigabytes: float, tmp_path: Path
) -> None:
    took, held = taken(*words, *([str(tmp_path)] if words[-1] == "--mlruns" else []))
    name, note = " ".join(words[:2]) if words[1] != "--record" else words[0], f"{took:.1f} s, {held:.2f} GB"
    ratio = record(name, [took / seconds], against=f"{seconds} s of a processor", wanted="at most 1", note=note)
    assert ratio < 1.5  # with room for noise
    assert record(f"{name}, memory", [held / gigabytes], against=f"{gigabytes:g} GB", wanted="at most 1", note=note) < 1
