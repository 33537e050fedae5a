"""`cse` has the scripts as subcommands; its help fits a screen and comes at once."""

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import cse_core
from cse_core import entry_point
from cse_core.entry_point import COMMANDS, main
from experiments.cli.command import RESUME
from experiments.tracking.mlflow_notes import command_line

HELP = """
import json, resource, sys
sys.argv = ["cse", "--help"]
from cse_core.entry_point import main
main()
spent = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([spent.ru_utime + spent.ru_stime, sorted(sys.modules)]))
"""

ROOT = Path(__file__).parents[3]
SCRIPTS = [f"{module.replace('.', '/')}.py" for module, _ in COMMANDS.values()] + ["analysis/pair_bootstrap.py"]
INTERRUPTED_IMPORT = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(name, *_):
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # at the first import after it was set
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
if sys.argv[1] == "cse":
    from cse_core.entry_point import main
    sys.argv[:] = "cse", "sweep", "--help"
    main()
_, script = sys.argv
sys.argv[:] = script, "--help"
runpy.run_path(script, run_name="__main__")
"""
INTERRUPTED_DESTRUCTOR = """
import signal, sys, time, types
from cse_core.entry_point import run_script
from experiments.cli.command import run_command

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def wait():
    Interrupted()
    time.sleep(60)

sys.modules["made"] = types.SimpleNamespace(command=lambda: run_command(wait))
run_script("made")
"""


@pytest.fixture(autouse=True)
def _keep_the_interrupt() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_help_fits_a_screen_and_loads_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    *lines, measured = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in COMMANDS)
    seconds, modules = json.loads(measured)
    assert seconds < 1
    assert not {"torch", "numpy", "tyro", "experiments"} & set(modules)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_subcommand_is_its_script(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(COMMANDS[name][0])
    called = []
    monkeypatch.setattr(module, "command", lambda: called.append((sys.argv, command_line())))
    monkeypatch.setattr(sys, "argv", ["/bin/cse", name, "some words", "--x"])
    main()
    assert called == [([f"cse {name}", "some words", "--x"], f"cse {name} 'some words' --x")]
    called.clear()
    monkeypatch.setattr(sys, "argv", [module.__file__, "some words", "--x"])
    runpy.run_path(str(module.__file__), run_name="__main__")
    assert [argv for argv, _ in called] == [[module.__file__, "some words", "--x"]]


def test_every_command_of_the_folders_is_a_subcommand() -> None:
    scripts = {
        f"{path.parent.name}.{path.stem}"
        for folder in ("experiments", "analysis")
        for path in (entry_point.ROOT / folder).glob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert scripts - {module for module, _ in COMMANDS.values()} == {"analysis.pair_bootstrap"}


@pytest.mark.slow
def test_a_subcommands_help_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["cse", "audit", "--help"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert "usage: cse audit " in said
    assert "--count" in said


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "usage: cse COMMAND"),
        (["swep"], "error: unknown command 'swep' (did you mean sweep?)", ""),
        (["--version"], None, cse_core.__version__),
    ],
)
def test_what_is_no_command_is_answered_in_words(
    words: list[str],
    status: int | str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["cse", *words])
    code = None
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    assert str(code).startswith(str(status))
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_without_a_checkout_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_point, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["cse", "sweep"])
    refusal = "^error: cse needs a checkout of the study, installed there by `pip install -e"
    with pytest.raises(SystemExit, match=refusal):
        main()


@pytest.mark.slow
@pytest.mark.parametrize("command", [*SCRIPTS, "cse"])
def test_an_interrupt_during_the_imports_is_one_line(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, command], cwd=entry_point.ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interrupt_that_a_destructor_gets_ends_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_DESTRUCTOR], cwd=entry_point.ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, f"{RESUME}\n")


def test_a_command_draws_whatever_backend_a_notebook_sets() -> None:
    code = (
        "import sys, types; from cse_core.entry_point import run_script; made = types.ModuleType('made')\n"
        "def command():\n    import matplotlib\n    print(matplotlib.get_backend())\n"
        "made.command = command; sys.modules['made'] = made; run_script('made')"
    )
    environment = os.environ | {"MPLBACKEND": "module://not_installed.backend", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout.strip().lower(), done.returncode) == ("agg", 0), done.stderr
