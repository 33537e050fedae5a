"""Read the ratios that tests/benchmarks/ measured from analysis/measured/ratios.csv."""

from pathlib import Path

import pandas as pd

from analysis.stats.significance import Interval, Spread

FOLDER = Path(__file__).parent / "measured"
SCALE = "small"  # the benchmarks of methods use its models and batches


def ratio(what: str, device: str = "cpu", folder: Path = FOLDER) -> Spread | None:
    """Return a measured ratio with its quartiles and turns; None if it was not measured."""
    path = folder / "ratios.csv"
    frame = pd.read_csv(path) if path.is_file() else pd.DataFrame({"what": [], "on": []})
    rows = frame[(frame["what"] == what) & (frame["on"] == device)]
    if rows.empty:
        return None
    row = rows.iloc[0]
    turns = int(row["turns"])
    return Spread(float(row["ratio"]), Interval(float(row["low"]), float(row["high"])), None, (turns, turns))
