"""A real MLflow server in its own process."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.polling import until


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def mlflow_server(folder: Path, port: int) -> Generator[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    given = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    given += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "kept")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *given], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        until(lambda: answers(port))
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
