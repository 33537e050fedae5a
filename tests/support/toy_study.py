"""A small study with every kind of row, and its record."""

import pandas as pd

from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from experiments.results import csv_record
from experiments.schema.columns import STS
from experiments.schema.hypotheses import beats, varies_less
from experiments.schema.study import Published, Row, Scale, Study, pretrained_key

CORPUS = Corpus("toy_sentences", 1000)
TINY = Pretrained("toy-backbone")
SEEDS = (42, 1, 2)
# A row's sts12 score by seed. Each next task is one point higher, so an average is sts12's score plus three points.
FIRST = {"SimCSE": {42: 0.50, 1: 0.51, 2: 0.52}, "Better": {42: 0.60, 1: 0.61, 2: 0.63}, "One seed": {42: 0.55}}
COLUMNS = {"sts_avg": "STS Avg", "transfer_avg": "TR Avg"}


def toy_run(temperature: float) -> Run:
    return Run(method=SimCSE(temperature=temperature), backbone=TINY, corpus=CORPUS)


def toy_study(columns: tuple[str, ...] = ("sts_avg", "transfer_avg"), scale: str = "small") -> Study:
    def published(method: str) -> Published:
        return Published("rankcse_table4", "BERT-base", method, columns=COLUMNS)

    rows = (
        Row(label="SimCSE", encoder=toy_run(0.05), seeds=SEEDS, published=published("SimCSE")),
        Row(label="Better", encoder=toy_run(0.1), seeds=SEEDS, published=published("RankCSE-listNet full")),
        Row(label="One seed", encoder=toy_run(0.2), seeds=(42,)),
        Row(label="As it is", encoder=TINY, select="as is"),
        Row(label="Elsewhere", encoder=None, why="imported: as printed", published=published("RankCSE w/o rank")),
        Row(label="Absent", encoder=None, why="not run: no stand-in for RoBERTa"),
    )
    simcse, better, one_seed, *_, absent = rows
    contrasts = (
        *(beats(row, simcse, "R1") for row in (better, one_seed, absent)),
        beats(simcse, better, "R6"),
        varies_less(simcse, better, "R10"),
    )
    return Study(
        name="toy",
        source="A paper, Table 4",
        question="Does the machinery work?",
        scale=Scale(
            name=scale, title="a toy", backbones={"toy": TINY}, corpus=CORPUS, seeds=SEEDS, notes="Nothing real."
        ),
        rows=rows,
        columns=columns,
        contrasts=contrasts,
    )


def toy_lines() -> pd.DataFrame:
    """What results.csv holds for the toy study: everything but the transfer tasks."""
    lines = []
    for row in toy_study().rows:
        keys = {0: pretrained_key(TINY)} if row.label == "As it is" else row.keys()
        for seed, key in keys.items():
            for i, task in enumerate(STS):
                score = FIRST.get(row.label, {0: 0.40})[seed] + i / 100
                lines.append(toy_line(key, task, score, seed=seed, select=row.select))
    return pd.DataFrame(lines, columns=csv_record.RESULTS)


def toy_line(key: str, task: str, score: float, *, seed: int = 42, select: str = "stsb_dev") -> dict[str, object]:
    shared = {
        "scale": "small",
        "key": key,
        "method": "simcse",
        "backbone": "toy-backbone",
        "seed": seed,
        "settings": "",
    }
    cell = {"select": select, "scorer": "cosine", "task": task, "metric": "spearman.all", "score": score, "pairs": 9}
    return shared | cell | {"step": 1, "version": 1, "commit": "0123456789", "device": "a CPU", "seconds": 1.0}
