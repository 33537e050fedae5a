"""Report on a run while it is trained and scored: its share of steps, a status, new points of its curves."""

import time
from collections.abc import Callable
from typing import Any

from cse_core.training.run_state import History
from experiments.tracking.live_log import CurveReader

Send = Callable[[dict[str, Any]], object]
REPORT_SECONDS = 10.0  # between reports that have no new points
SCORING = 0.2  # share of the time that scoring takes


class Reporter:
    """Hands reports to `send`: at each evaluation, and in between at most once in `every` seconds.

    With `until_trained`, nothing is sent after the last step: Tune's report waits for the driver, and a worker that has
    lost it can still score and save its run.
    """

    def __init__(
        self, eval_steps: int, send: Send, every: float = REPORT_SECONDS, *, until_trained: bool = False
    ) -> None:
        self.reader = CurveReader(eval_steps)
        self.send, self.every, self.fraction, self.sent_at = send, every, 0.0, 0.0
        self.until_trained, self.trained = until_trained, False

    def step(self, step: int, history: History) -> None:
        """Report a step of training."""
        self.trained = step >= history.steps
        points = self.reader.read(step, history)
        if points or time.monotonic() - self.sent_at >= self.every:
            self.fraction = (1 - SCORING) * step / history.steps
            self._send(training_status(step, history), points)

    def prepare(self, what: str, done: int, of: int) -> None:
        """Report the progress of a preparation, or of embedding the sentences to be scored."""
        if self.trained and self.until_trained:
            return
        if time.monotonic() - self.sent_at >= self.every:
            self._send(f"{what} {done:,} of {of:,}", [])

    def _send(self, status: str, points: list[tuple[str, int, float]]) -> None:
        self.send({"fraction": self.fraction, "failed": "", "status": status, "points": points})
        self.sent_at = time.monotonic()


def training_status(step: int, history: History) -> str:
    """Return step, last loss and last dev score, as far as there are any."""
    last = {name: points[-1][1] for name, points in history.curves.items() if points}
    dev = [f"{name} {value:.3f}" for name, value in last.items() if name.startswith("dev/")]
    loss = [f"loss {last['loss']:.4g}"] if "loss" in last else []
    return ", ".join([f"step {step} of {history.steps}", *loss, *dev])
