"""Ratios that tests/benchmarks/ measured, as analysis/measured/ratios.csv has them."""

from pathlib import Path

import pandas as pd

from analysis.stats.significance import Interval, Spread

FOLDER = Path(__file__).parent / "measured"
SCALE = "small"  # whose models and batches the benchmarks of methods have


def ratio(what: str, device: str = "cpu", folder: Path = FOLDER) -> Spread | None:
    """A measured ratio with its quartiles and turns; None where it is not measured."""
    path = folder / "ratios.csv"
    frame = pd.read_csv(path) if path.is_file() else pd.DataFrame({"what": [], "on": []})
    rows = frame[(frame["what"] == what) & (frame["on"] == device)]
    if rows.empty:
        return None
    row = rows.iloc[0]
    turns = int(row["turns"])
    return Spread(float(row["ratio"]), Interval(float(row["low"]), float(row["high"])), None, (turns, turns))
