"""The console of all commands, and the progress bar of a sweep."""

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.cli.command import RESUME
from experiments.storage.credentials import redact_credentials

console = Console(width=None if sys.stdout.isatty() else 120, soft_wrap=True)


class Bar:
    """A progress bar with runs done, runs pending and time left; a run in progress counts by its share of steps."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.fractions = dict.fromkeys(keys, 0.0)
        self.ended: set[str] = set()
        self.progress = Progress(
            TextColumn("{task.fields[done]} done, {task.fields[pending]} pending"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=1200,  # runs report rarely
        )
        self.task = self.progress.add_task("", total=float(len(keys)), done=0, pending=len(keys))

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def move(self, key: str, fraction: float) -> None:
        """Update a run's share; the bar never moves back, even if a run restarts after a lost worker."""
        self.fractions[key] = max(self.fractions[key], min(fraction, 0.99))
        self._draw()

    def end(self, key: str) -> None:
        """Count a run as done: it finished or failed."""
        self.fractions[key] = 1.0
        self.ended.add(key)
        self._draw()

    def _draw(self) -> None:
        done = len(self.ended)
        pending = len(self.fractions) - done
        self.progress.update(self.task, completed=sum(self.fractions.values()), done=done, pending=pending)


def print_failures(failed: Mapping[str, str], ended: bool) -> None:
    """Print what failed and why, and how to resume if interrupted."""
    for name, reason in failed.items():
        console.print(f"failed: {name}: {redact_credentials(reason)}", style="red")
    if not ended:
        console.print(RESUME)
