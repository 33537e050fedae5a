"""Run commands in forks of a process that has done the slow imports: each starts seconds sooner.

Tests in which imports must read the command's own environment use `subprocess` instead.
"""

import atexit
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import IO, Any

FORKS = get_context("forkserver")
DEEP = ["mlflow.store.tracking.sqlalchemy_store", "transformers.models.bert.modeling_bert"]
# Without Ray, which seeds its ids at import: a fork would draw the same ids as a driver that was killed before.
FORKS.set_forkserver_preload(["torch", "scipy.stats", "datasets", *DEEP])


class Forked:
    """A command `[sys.executable, script or "-c" and code, ...]`, with the interface of `subprocess.Popen`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: IO[Any] | None = None,
        stderr: IO[Any] | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        start_new_session: bool = False,
    ) -> None:
        """Start it. Outputs are appended to named files or discarded; stderr may also be subprocess.STDOUT."""
        assert command[0] == sys.executable
        out = stdout.name if stdout else os.devnull
        err = out if stderr == subprocess.STDOUT else stderr.name if hasattr(stderr, "name") else os.devnull
        given = (list(command[1:]), dict(env or os.environ), str(cwd or Path.cwd()), out, err, start_new_session)
        self.args = list(command)
        self._process = FORKS.Process(target=_run, args=given)
        self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status if it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def send_signal(self, kind: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, kind)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self._process.kill()


def run(command: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` with captured text does."""
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        process = Forked(command, stdout=out, stderr=err, **how)
        try:
            status = process.wait(timeout=900)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, status or 0, out.read(), err.read())


def _run(words: list[str], env: dict[str, str], cwd: str, out: str, err: str, session: bool) -> None:
    """Turn this process into the command, and end it."""
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    status = 0
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            sys.path.insert(0, "")
            sys.modules["__main__"] = ModuleType("__main__")
            exec(words[1], sys.modules["__main__"].__dict__)
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - as at the top level of any program
        traceback.print_exception(error)
        status = 1
    threading._shutdown()  # ty: ignore[missing-attribute] - as the interpreter does at exit
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
