"""Studies to plan, and records of finished runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import save_file

from cse_core.evaluation import suite
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.metrics import correlation
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.checkpoint import write_manifest
from cse_core.training.run_state import Checkpoint, History
from experiments.execution.job import Job
from experiments.results import csv_record
from experiments.schema.study import Row, Scale, Study

BASE = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 100))


TAUGHT = replace(BASE, method=RankCSE(teachers=(Teacher(BASE, select="stsb_dev"),)))


SCALE = Scale(name="test", title="", backbones={}, corpus=BASE.corpus, seeds=(42, 1))


def study(*rows: Row, name: str = "one", columns: tuple[str, ...] = ("stsb",)) -> Study:
    return Study(name=name, source="", question="", scale=SCALE, rows=rows, columns=columns)


def row(label: str, run: Run, **more: object) -> Row:
    return Row(label=label, encoder=run, seeds=(42, 1), **more)  # ty: ignore[invalid-argument-type]


def lines(job: Job, *, skip: str = "") -> list[dict[str, object]]:
    empty: dict[str, object] = {**dict.fromkeys(csv_record.RESULTS, "x"), "scale": job.scale, "key": job.key}
    empty |= {
        "version": correlation.VERSION,
        "score": 0.5,
        "method": "simcse",
        "backbone": "wiki-tiny",
        "device": "a processor, 2 cores",
        "seconds": 10.0,
    }
    cells = [(s.select, str(s.scorer), task) for s in job.scorings for task in s.tasks if task != skip]
    names = ("select", "scorer", "task", "metric")
    return [
        empty | dict(zip(names, (*cell, metric), strict=True)) | {"version": suite.version(cell[2])}
        for cell in cells
        for metric in suite.TASKS[cell[2]].metrics
        if metric not in csv_record.UNRECORDED
    ]


def frame(*jobs: Job, skip: str = "") -> pd.DataFrame:
    found = pd.DataFrame([one for job in jobs for one in lines(job, skip=skip)], columns=csv_record.RESULTS)
    columns = {name: kind for table in csv_record.TABLES for name, kind in table.columns.items() if name in found}
    return found.astype({name: "string" for name, kind in columns.items() if kind is str})  # as it is read


def weights(store: Path, run: Run, *rules: str) -> None:
    history = History(steps=1)
    for rule in rules:
        (store / run.key / rule).mkdir(parents=True)
        save_file({"weight": np.zeros(1)}, store / run.key / rule / "model.safetensors")
        manifest = write_manifest(store / run.key / rule, key=run.key, rule=rule, step=1)
        history.kept[rule] = Checkpoint(1, None, manifest.weights)
    history.write(store / run.key)
