"""Read analysis/measured/ratios.csv, the ratios that tests/benchmarks/ measured."""

from pathlib import Path

import pandas as pd

from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval

FOLDER = Path(__file__).parent / "measured"
SCALE = "small"  # the benchmarks of methods use its models and batches


def ratio(what: str, device: str = "cpu", folder: Path = FOLDER) -> Estimate | None:
    """Return a measured ratio with its quartiles and number of turns; None if it was not measured."""
    path = folder / "ratios.csv"
    frame = pd.read_csv(path) if path.is_file() else pd.DataFrame({"what": [], "on": []})
    rows = frame[(frame["what"] == what) & (frame["on"] == device)]
    if rows.empty:
        return None
    row = rows.iloc[0]
    return Estimate(float(row["ratio"]), Interval(float(row["low"]), float(row["high"])), int(row["turns"]), " turns")
