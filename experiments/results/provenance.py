"""What may explain a number besides its run's key: the checkout's commit, versions, hardware."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import scipy.linalg  # noqa: F401 - loads scipy's BLAS, so that it is always among those named
import torch
import transformers
from threadpoolctl import threadpool_info


@cache
def environment(device: str, threads: int) -> dict[str, str]:
    """It by name, for a device and a number of threads."""
    cuda = device.startswith("cuda")
    return {
        **commit(),
        "device": torch.cuda.get_device_name() if cuda else _processor(),
        "threads": str(threads),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "simd": torch.backends.cpu.get_cpu_capability(),
        "blas": blas(),
        "cuda": str(torch.version.cuda) if cuda else "",
        "tf32": str(torch.backends.cuda.matmul.allow_tf32) if cuda else "",
    }


def blas() -> str:
    """The kernels that numpy's and scipy's BLAS chose, by the processor or OPENBLAS_CORETYPE; not torch's MKL."""
    loaded = [library for library in threadpool_info() if library["user_api"] == "blas"]
    names = {
        " ".join(str(x[part]) for part in ("internal_api", "version", "architecture") if part in x) for x in loaded
    }
    return ", ".join(sorted(names))


def commit() -> dict[str, str]:
    """The checkout's commit and whether its code differs from it; `unknown` outside a checkout."""
    root = Path(__file__).parents[2]

    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        except OSError:  # a machine without git
            return "unknown"
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    # Code that decides a score, new files included; the record grows while a study runs.
    changed = git("status", "--porcelain", "--", "cse_core", "experiments", "pyproject.toml", "constraints.txt")
    return {"commit": git("rev-parse", "HEAD"), "dirty": str(changed not in ("", "unknown")).lower()}


def _processor() -> str:
    """The processor's name with family and model: a virtual machine's name alone hides which instructions it has."""
    path = Path("/proc/cpuinfo")
    lines = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line) if path.is_file() else ()
    about: dict[str, str] = {}
    for name, value in lines:
        about.setdefault(name.strip(), value.strip())
    name = about.get("model name") or platform.processor() or platform.machine()
    kind = f" (family {about['cpu family']}, model {about['model']})" if {"cpu family", "model"} <= set(about) else ""
    return f"{name}{kind}, {os.cpu_count()} cores"
