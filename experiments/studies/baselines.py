"""Baselines of the papers' tables against SimCSE, and controls where their papers and released code differ.

Exploratory: no claim of the four papers is about these methods' gains.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any

from cse_core.run import Run
from experiments.schema.columns import STS
from experiments.schema.contrasts import Contrast, of_rows
from experiments.schema.published_rows import BASELINES, baseline_row
from experiments.schema.recipes import RUNS, consert_run, ct_run, dclr_run, l2pcsr_run, present, simcse_run
from experiments.schema.rows import BASE, row
from experiments.schema.study import BY_TEST, Published, Row, Scale, Study, StudyAt, named

SEEDS = 5
# The table that a method's published gain is read from: one that has its row and SimCSE's.
PRINTED = {
    "SimCSE": "rankcse_table2",
    "ESimCSE": "compcse_table1",
    "MoCoSE": "compcse_table1",
    "ConSERT": "rankcse_table2",
    "CT-BERT": "whitenedcse_table1",
    "IS-BERT": "whitenedcse_table1",
    "DCLR": "rankcse_table2",
    "PCL": "rankcse_table2",
    "ArcCSE": "rankcse_table2",
    "L2P-CSR": "compcse_table1",
}
PUBLISHED_LINES = 1_000_000  # sentences of ESimCSE's runs, whose slow encoder has a decay of 0.995


def seeds_of(scale: Scale) -> tuple[int, ...]:
    """Return the scale's seeds, filled up to five with the smallest others."""
    others = (seed for seed in count(1) if seed not in scale.seeds)
    return tuple(islice((*scale.seeds, *islice(others, SEEDS)), max(SEEDS, len(scale.seeds))))


def slow_decay(scale: Scale) -> float:
    """Return the decay that leaves as much of the slow encoder's start at the end as ESimCSE's runs do."""
    return round(0.995 ** (PUBLISHED_LINES / scale.corpus.lines), 3)


def baselines(scale: Scale) -> Study:
    """Every baseline, and the effect of single lines of their code or choices of their papers."""
    rows = _methods(scale)
    controls = _controls(scale, rows)
    by_label = {each.label: each for each in (*rows.values(), *controls)}
    pairs = [*((title, "SimCSE") for title in BASELINES), *_control_pairs(slow_decay(scale))]
    return Study(
        source="this project",
        question="What do the baselines of the papers' tables gain over SimCSE, and what are their details worth?",
        rows=tuple(by_label.values()),
        columns=(*STS, "sts_avg"),
        contrasts=tuple(gain(by_label[better], by_label[worse]) for better, worse in pairs),
        view="gains",
        caption="Exploratory: no claim of the papers is about these gains.",
    )


def _methods(scale: Scale) -> dict[str, Row]:
    """Return the rows of SimCSE and the baselines by their names in the tables."""
    seeds = seeds_of(scale)
    published = {title: Published(table, "BERT-base", title) for title, table in PRINTED.items()}
    simcse = row(scale, "SimCSE", simcse_run(scale, BASE), BASE, published["SimCSE"], seeds=seeds)
    return {"SimCSE": simcse} | {
        title: baseline_row(scale, title, title, BASE, published.get(title), seeds=seeds) for title in BASELINES
    }


def _controls(scale: Scale, rows: Mapping[str, Row]) -> list[Row]:
    """Return rows of methods with one detail changed, one row per detail."""

    def with_change(title: str, detail: str, run: Run | None, **more: Any) -> Row:
        return replace(rows[title], label=f"{title}, {detail}", encoder=run, published=None, note="", **more)

    decay, simcse = slow_decay(scale), present(simcse_run(scale, BASE))
    consert, isbert = present(consert_run(scale, BASE)), present(RUNS["isbert"](scale, BASE))
    paced = partial(RUNS["esimcse"], scale, BASE, momentum=decay)
    return [
        with_change("ESimCSE", f"decay {decay:g}", paced()),
        with_change("ESimCSE", f"decay {decay:g}, random start", paced(slow_start="random")),
        with_change("MoCoSE", "chosen on the test sets", RUNS["mocose"](scale, BASE), select=BY_TEST),
        with_change("ConSERT", "Wikipedia", consert_run(scale, BASE, texts="wiki")),
        with_change("SimCSE", "the test sets' sentences", replace(simcse, corpus=consert.corpus)),
        with_change("DCLR", "no ascent", dclr_run(scale, BASE, steps=0)),
        with_change("DCLR", "ascent by steps of 1", dclr_run(scale, BASE, step_size=1.0)),
        with_change("PCL", "binary loss of logits", RUNS["pcl"](scale, BASE, positives="logit")),
        with_change("PCL", "no binary loss", RUNS["pcl"](scale, BASE, positive_weight=0.0)),
        with_change("L2P-CSR", "random masks", l2pcsr_run(scale, BASE, steps=0)),
        with_change("CT-BERT", "independent pairs", ct_run(scale, BASE, pairs="independent")),
        with_change("IS-BERT", "no ReLU", replace(isbert, pooling="ngrams_linear")),
    ]


def _control_pairs(decay: float) -> list[tuple[str, str]]:
    """Return the labels of each control's two rows; the first is what the code or the paper does."""
    paced = f"ESimCSE, decay {decay:g}"
    return [
        (f"{paced}, random start", paced),
        ("MoCoSE, chosen on the test sets", "MoCoSE"),
        ("ConSERT", "ConSERT, Wikipedia"),
        ("SimCSE, the test sets' sentences", "SimCSE"),
        *((ours, "DCLR, no ascent") for ours in ("DCLR", "DCLR, ascent by steps of 1")),
        *(("PCL", f"PCL, {detail}") for detail in ("binary loss of logits", "no binary loss")),
        ("L2P-CSR", "L2P-CSR, random masks"),
        ("CT-BERT", "CT-BERT, independent pairs"),
        ("IS-BERT", "IS-BERT, no ReLU"),
    ]


def gain(better: Row, worse: Row) -> Contrast:
    """Return one row's gain over another, seed by seed where both read the same sentences."""
    corpora = [run.corpus for run in (better.encoder, worse.encoder) if isinstance(run, Run)]
    return of_rows(better, worse, paired=len(set(corpora)) == 1)


STUDIES: dict[str, StudyAt] = named({"baselines": baselines})
