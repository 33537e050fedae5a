"""What may explain a number besides its run's key: the checkout's commit, versions, hardware."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch
import transformers


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
        "cuda": str(torch.version.cuda) if cuda else "",
        "tf32": str(torch.backends.cuda.matmul.allow_tf32) if cuda else "",
    }


def commit() -> dict[str, str]:
    """The checkout's commit and whether its code differs from it; `unknown` outside a checkout."""
    root = Path(__file__).parents[1]

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
    path = Path("/proc/cpuinfo")
    names = [line for line in path.read_text().splitlines() if "model name" in line] if path.is_file() else []
    name = names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
