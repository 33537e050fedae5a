"""Folders that hold a record: the committed one, and those beside it for runs that never enter it."""

from pathlib import Path

MLRUNS = Path(__file__).parents[2] / "mlruns"
FRESH, TRIAL = "fresh", "trial"
