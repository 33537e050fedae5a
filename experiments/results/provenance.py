"""Describe what may influence a number besides its run's key: the commit, library versions, hardware."""

import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_info

from cse_core.models.fp32_products import has_faster_products

UNKNOWN = "unknown"  # for what was recorded without an environment


@cache
def environment(device: str, threads: int, *, compiled: bool = False) -> dict[str, str]:
    """Return the commit, library versions, hardware, and whether training steps are compiled, as a flat dict."""
    import transformers  # lazy: slow import

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
        "products": "" if cuda else "oneDNN" if has_faster_products() else "torch's own",
        "cuda": str(torch.version.cuda) if cuda else "",
        "tf32": str(torch.backends.cuda.matmul.allow_tf32) if cuda else "",
        "compiled": str(compiled) if cuda else "",
    }


def blas() -> str:
    """Return the kernels of numpy's and scipy's BLAS, as chosen by the processor or OPENBLAS_CORETYPE."""
    # scipy's BLAS is listed only once it is loaded.
    import scipy.linalg  # noqa: F401  # lazy: slow import

    loaded = [library for library in threadpool_info() if library["user_api"] == "blas"]
    names = {
        " ".join(str(x[part]) for part in ("internal_api", "version", "architecture") if part in x) for x in loaded
    }
    return ", ".join(sorted(names))


def commit() -> dict[str, str]:
    """Return the commit of the repository that tracks this code, and whether the code differs from it.

    The commit is `unknown` if no repository tracks the code, as in a copy without .git, even inside another repository.
    """
    here = Path(__file__).resolve()
    # GIT_DIR and the like may point to another repository, for example inside one of its hooks.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*words: str) -> str:
        place: dict[str, Any] = {"cwd": here.parents[2], "env": variables}
        try:
            done = subprocess.run(["git", *words], **place, capture_output=True, text=True, check=False)
        except OSError:  # a machine without git
            return UNKNOWN
        return done.stdout.strip() if done.returncode == 0 else UNKNOWN

    if git("ls-files", "--error-unmatch", "--", str(here)) == UNKNOWN:
        return {"commit": UNKNOWN, "dirty": "false"}
    # Only code that can change a score, including new files: the record itself grows while a study runs.
    changed = git("status", "--porcelain", "--", "cse_core", "experiments", "pyproject.toml", "constraints.txt")
    return {"commit": git("rev-parse", "HEAD"), "dirty": str(changed not in ("", UNKNOWN)).lower()}


def processor(device: str) -> str:
    """Return the kind of processor: the device without its number of cores."""
    return re.sub(r", \d+ cores$", "", device)


def is_gpu(device: str) -> bool:
    """Return whether a recorded device is a GPU: only processors are recorded with their number of cores."""
    return device != UNKNOWN and processor(device) == device


def _processor() -> str:
    """Return the processor's name, family, model and cores; on a virtual machine, the name hides its instructions."""
    path = Path("/proc/cpuinfo")
    lines = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line) if path.is_file() else ()
    about: dict[str, str] = {}
    for name, value in lines:
        about.setdefault(name.strip(), value.strip())
    name = about.get("model name") or platform.processor() or platform.machine()
    kind = f" (family {about['cpu family']}, model {about['model']})" if {"cpu family", "model"} <= set(about) else ""
    return f"{name}{kind}, {os.cpu_count()} cores"
