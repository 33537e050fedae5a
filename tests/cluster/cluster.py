"""Ray clusters on two hosts of one machine, from the project's sweep.yaml with other addresses."""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tests.cluster.hosts import Host

ROOT = Path(__file__).parents[2]
PASSWORD = "only-for-this-test"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def adapted(head: Host, workers: Sequence[Host], shared: Path) -> dict[str, object]:
    """sweep.yaml with a user's changes in the lines marked with an arrow; nothing is installed without a network.

    A host that is cut off keeps running for 15 minutes; by default Ray would end its processes after a minute.
    """
    text = (ROOT / "sweep.yaml").read_text()
    for old, new in {
        "head_ip: 192.0.2.10": f"head_ip: {head.address}",
        "[192.0.2.11, 192.0.2.12]": f"[{', '.join(worker.address for worker in workers)}]",
        "max_workers: 2": f"max_workers: {len(workers)}",
        "ssh_user: ubuntu": "ssh_user: root",
        "~/.ssh/id_ed25519": str(head.key),
        "CSE_DEVICE=cuda": "CSE_DEVICE=cpu",
        "file:///nfs/cse": shared.as_uri(),
        "    CSE_DATA=/nfs/data\n": "    PYTHONPATH=~/cse\n    RAY_worker_niceness=0\n"
        "    RAY_gcs_rpc_server_reconnect_timeout_s=900\n",
        "~/.mlflow/credentials: ~/.mlflow/credentials": f"~/.mlflow/credentials: {head.key.parent}/credentials",
        "~/.ray/auth_token: ~/.ray/auth_token": f"~/.ray/auth_token: {head.key.parent}/auth_token",
        "  - ~/cse-venv/bin/pip install --quiet -c ~/cse/constraints.txt -e ~/cse[cluster]\n": "",
        "test -d ~/cse-venv || python3 -m venv ~/cse-venv": f"test -d ~/cse-venv || ln -s {sys.prefix} ~/cse-venv",
    }.items():
        assert text.count(old) == 1, f"sweep.yaml: {old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return yaml.safe_load(text)


class Cluster:
    """Ray's commands for a cluster, as a user gives them."""

    def __init__(self, head: Host, workers: Sequence[Host], shared: Path) -> None:
        folder = head.key.parent
        self.file = folder / "sweep.yaml"
        (folder / "credentials").write_text(
            f"[mlflow]\nmlflow_tracking_username = cse\nmlflow_tracking_password = {PASSWORD}\n"
        )
        self.secret = secrets.token_hex(32)
        (folder / "auth_token").write_text(self.secret)
        self.file.write_text(yaml.safe_dump(adapted(head, workers, shared), sort_keys=False))
        self.environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "auth_token")}

    def ray(self, command: str, *words: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run `ray COMMAND sweep.yaml ...` to its end."""
        with self.begin(command, *words) as process:
            said, warned = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, COLOURS.sub("", said), warned)

    def begin(self, command: str, *words: str) -> subprocess.Popen[str]:
        """Start the same command, from the repository's root."""
        given = [str(Path(sys.executable).with_name("ray")), *command.split(), str(self.file), *words]
        return subprocess.Popen(
            given, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


def write_commands(folder: Path, bodies: Mapping[str, str]) -> Path:
    """Write shell scripts that replace programs of the same names; return their folder."""
    folder.mkdir()
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (folder / name).chmod(0o755)
    return folder
