"""Compare recorded runs with the same runs on another kind of device, from files in analysis/measured."""

import pandas as pd

from analysis.benchmark_ratios import FOLDER
from analysis.report.blocks import block
from analysis.report.formats import estimate_text, mean_and_deviation, table
from analysis.stats.contrast_tests import difference
from analysis.stats.significance import summary
from experiments.results.csv_record import CELL

POINTS = 100


@block("devices", of=lambda ask: (ask.name, ask.record.results(ask.scale)))
def devices_block(name: str, recorded: pd.DataFrame) -> str:
    """Return each row's average over tasks on both kinds of device, and its mean difference over seeds, as Markdown.

    `name` is the name of a file in analysis/measured. The record must have every score of the file.
    """
    again = pd.read_csv(FOLDER / f"{name}.csv")
    both = again.merge(recorded[[*CELL, "score"]], on=CELL, suffixes=("_again", "_recorded"), validate="one_to_one")
    if len(both) != len(again):
        raise ValueError(f"{name}.csv: has {len(again)} scores, the record has {len(both)} of them")
    rows = []
    for _, lines in both.groupby(["row", "machine"], sort=False):
        row, machine = lines[["row", "machine"]].iloc[0]
        averages = POINTS * lines.groupby("seed")[["score_again", "score_recorded"]].mean()
        test = difference(*(averages[column].to_dict() for column in averages), paired=True)
        here, before = (mean_and_deviation(summary(averages[column].tolist()), len(averages)) for column in averages)
        assert test  # both sides have all seeds
        rows.append((row, before, here, machine, estimate_text(test)))
    return table(("row", "as recorded", "trained again", "on", "difference"), rows)
