"""The command `cse`: the scripts of a checkout as subcommands, each imported when it is called."""

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

from cse_core import __version__
from cse_core.lookup import unknown

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "sweep": ("experiments.sweep", "run studies, or list them"),
    "run": ("experiments.run", "train and score one method, with any setting changed"),
    "compare": ("experiments.compare", "compare methods, each equally well tuned"),
    "evaluate": ("experiments.evaluate", "score an encoder"),
    "export": ("experiments.export", "save a checkpoint for a hub, with a model card"),
    "search": ("experiments.search", "search hyperparameters by dev scores"),
    "audit": ("experiments.audit", "train recorded runs again and compare them"),
    "estimate": ("experiments.estimate", "how long a sweep takes on GPUs, and its cost"),
    "merge": ("experiments.merge", "add another machine's record to this one"),
    "import": ("experiments.import_record", "fill MLflow from the record"),
    "remove": ("experiments.remove", "remove runs from folders, record and MLflow"),
    "tables": ("analysis.make_tables", "write the tables and the report from the record"),
    "figures": ("analysis.make_figures", "draw the figures from the record"),
    "site": ("analysis.make_site", "build a site of all pages, tables and figures"),
}
NO_CHECKOUT = "error: cse needs a checkout of the study, installed there by `pip install -e .`; {} has only the library"


def usage() -> str:
    """Return what `cse --help` prints."""
    lines = [f"  {name:<9} {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: cse COMMAND ...    (cse-study {__version__})",
            "",
            *lines,
            "",
            "Options of a command: cse COMMAND --help. Each is a script too: cse sweep is",
            "python experiments/sweep.py, cse tables is python analysis/make_tables.py.",
        ]
    )


def run_script(module: str) -> None:
    """Import a script as a module and run its command; Ctrl-C during the imports, which take a second, prints one line.

    A script begins with this call. Its command ends the process, so nothing below runs twice, and says how to resume.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored, as under nohup
        signal.signal(signal.SIGINT, _end)
    os.environ["MPLBACKEND"] = "agg"  # figures are files; a notebook sets a backend that may not be installed here
    import_module(module).command()


def raise_on_interrupt() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again, once everything is imported."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _interrupt_again


def _interrupt_again(ignored: Any) -> None:
    """Send an interrupt again that arrived in a destructor or in a callback: Python ignores what these raise."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        timer = Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))  # by then, the destructor or callback has returned
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(ignored)


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)  # 128 plus the number of SIGINT, as in shells; an exception could be taken for a failed import


def main() -> None:
    """Run the subcommand that the command line names."""
    name, *words = sys.argv[1:] or [""]
    if name == "--version":
        print(__version__)
    elif not (ROOT / "experiments/sweep.py").is_file():
        sys.exit(NO_CHECKOUT.format(ROOT))
    elif name in ("-h", "--help"):
        print(usage())
    elif not name:
        print(usage(), file=sys.stderr)
        sys.exit(2)
    elif name in COMMANDS:
        sys.argv = [f"cse {name}", *words]
        run_script(COMMANDS[name][0])
    else:
        sys.exit(f"error: {unknown('command', name, COMMANDS)}")
