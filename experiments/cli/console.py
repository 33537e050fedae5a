"""The console of all commands, and the progress bar of a sweep."""

import os
import re
import sys
import time
from collections.abc import Mapping
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from experiments.cli.command import RESUME
from experiments.storage.credentials import redact_credentials

QUOTED = re.compile(r"'[^']*'")  # a name in a message
PRINT_SECONDS = 30.0  # between lines where there is no terminal
# The output of `!python ...` in a notebook claims to be a terminal, but keeps each line that a progress bar overwrites.
NOTEBOOK = "JPY_PARENT_PID" in os.environ
# Paths, labels and names may hold brackets and colons: text is printed as it is, never as markup or emoji.
console = Console(
    width=None if sys.stdout.isatty() and not NOTEBOOK else 120,
    force_terminal=False if NOTEBOOK else None,
    soft_wrap=True,
    markup=False,
    emoji=False,
)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, as in "2 runs"; without `plural`, an s is added."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def plain_columns() -> tuple[ProgressColumn, ...]:
    """Return rich's columns of a progress bar, with the description as plain text."""
    return (TextColumn("{task.description}", markup=False), *Progress.get_default_columns()[1:])


class Bar:
    """A progress bar for all runs, and one below it for each run in progress with its name, status and time left.

    A run in progress counts by its share of steps. Without a terminal, a line is printed at most every 30 seconds.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)  # shown to people, by key
        self.fractions = dict.fromkeys(names, 0.0)
        self.ended: set[str] = set()
        self.failed: set[str] = set()
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[share]:>3} %  elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            console=console,
            speed_estimate_period=1200,  # runs report rarely
        )
        self.task = self.progress.add_task(self._counts(), total=float(len(names)), status="", share=0)
        self.runs: dict[str, TaskID] = {}
        self.printed_at = time.monotonic()

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        for task in self.runs.values():
            self.progress.remove_task(task)
        self.progress.stop()

    def move(self, key: str, fraction: float, status: str = "") -> None:
        """Update a run's share and status; its bar never moves back, even if a run restarts after a lost worker."""
        self.fractions[key] = max(self.fractions[key], min(fraction, 0.99))
        if key not in self.runs:
            self.runs[key] = self.progress.add_task(self.names[key], total=1.0, status="", share=0)
        share = int(100 * self.fractions[key])
        self.progress.update(self.runs[key], completed=self.fractions[key], status=status, share=share)
        self._draw()

    def end(self, key: str, *, failed: bool = False) -> None:
        """Count a run as done, or as failed, which adds nothing to the share that is done."""
        self.fractions[key] = 0.0 if failed else 1.0
        (self.failed if failed else self.ended).add(key)
        if key in self.runs:
            self.progress.remove_task(self.runs.pop(key))
        self._draw()

    def _draw(self) -> None:
        self.progress.update(
            self.task, completed=sum(self.fractions.values()), description=self._counts(), share=self._share()
        )
        if not console.is_terminal and time.monotonic() - self.printed_at >= PRINT_SECONDS:
            console.print(self.line(), highlight=False)
            self.printed_at = time.monotonic()

    def _counts(self) -> str:
        failed = f"{len(self.failed)} failed, " if self.failed else ""
        return f"{len(self.ended)} done, {failed}{len(self.fractions) - len(self.ended | self.failed)} pending"

    def _share(self) -> int:
        """Return the share that is done in percent: 100 only when every run is done."""
        done, of = sum(self.fractions.values()), len(self.fractions)
        return 100 if done == of else min(99, round(100 * done / of))

    def line(self) -> str:
        """Return the bars as a line of text."""
        running = [task for task in self.progress.tasks if task.id in self.runs.values()]
        parts = ((task, filter(None, (task.fields["status"], _time_left(task)))) for task in running)
        shown = [f"{task.description}: {', '.join(words)}" for task, words in parts]
        return "; ".join([f"{self._counts()}, {self._share()} %", *shown])


def _time_left(task: Task) -> str:
    return f"{timedelta(seconds=int(task.time_remaining))} left" if task.time_remaining is not None else ""


def print_failures(failed: Mapping[str, str], ended: bool) -> None:
    """Print what failed and why, each reason once whatever names it quotes, and how to resume if interrupted."""
    alike: dict[str, list[str]] = {}
    for name, reason in failed.items():
        alike.setdefault(QUOTED.sub("", reason), []).append(name)
    for first, *others in alike.values():
        console.print(f"failed: {first}: {redact_credentials(failed[first])}", style="red")
        of = [f"{name}: {quoted[0]}" if (quoted := QUOTED.findall(failed[name])) else name for name in others]
        if others:
            console.print(f"failed for the same reason: {redact_credentials(', '.join(of))}", style="red")
    if not ended:
        console.print(RESUME)
