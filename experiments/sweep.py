"""Run studies, or list them.

    python experiments/sweep.py quickstart
    python experiments/sweep.py rankcse-table4 --scale small --data FOLDER
    python experiments/sweep.py rankcse-table4 --rows SimCSE ListNet --seeds 10
    python experiments/sweep.py rankcse-table4 --fresh
    python experiments/sweep.py --list

A sweep trains and scores the runs of its studies that are not recorded yet, teachers and bases first. Each run saves
its state under its key, so the same command resumes after Ctrl-C, a kill or a lost worker.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.sweep")

import gc
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from experiments.cli.command import INTERRUPTED, run_command
from experiments.cli.console import console
from experiments.cli.options import flag
from experiments.cli.sweep_choice import print_choice, print_nothing_to_do
from experiments.cli.sweep_options import Options, checked, in_own_record
from experiments.execution import sweep_report
from experiments.execution.log_queue import log_results, record_results
from experiments.execution.plan import Plan, jobs_of, make_plan, scored_cells, study_by_study
from experiments.execution.sweep_setup import (
    check_room,
    chosen,
    copy_arrays,
    execution_settings,
    look_for_inputs,
    prepare_shared,
    ray_config,
    store_of,
)
from experiments.results import csv_record
from experiments.results.study_table import print_tables
from experiments.schema.study import Study
from experiments.schema.study_parts import Parts
from experiments.storage.record_folders import is_own_study
from experiments.studies.catalogue import names_at
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker

if TYPE_CHECKING:
    import pandas as pd


def _run_pending(work: Plan, results: "pd.DataFrame", options: Options) -> tuple[dict[str, str], bool]:
    execution = execution_settings(options)
    lost = look_for_inputs(work, execution.data)
    if len(lost) == len(work.pending):
        return lost, True
    if options.address == "local":
        check_room(work.pending, work.untrained, execution, options.workers)
    from experiments.execution.ray_sweep import run_plan  # lazy: slow import

    prepare_shared(options)
    return run_plan(work, results, execution, ray_config(options), Tracker(options.mlruns), lost)


def study_names(options: Options) -> list[str]:
    """Return the named studies; without names, all for --list, otherwise quickstart, with a message."""
    if options.studies or options.list:
        return list(options.studies) or names_at(options.scale)
    console.print("no study named: quickstart, a few tiny runs to test everything; --list shows all studies")
    return ["quickstart"]


def make_outputs(names: Sequence[str], studies: Sequence[Study], mlruns: Path) -> None:
    """Make the tables and figures of the named studies; print their contrasts, and where the files are."""
    from analysis import make_figures, make_tables  # lazy: slow import
    from analysis.report.blocks import Record  # lazy: slow import
    from analysis.report.contrast_tables import contrast_lines  # lazy: slow import
    from analysis.verdicts.looks import study_verdicts  # lazy: slow import

    record, folders = Record(mlruns), make_tables.Folders.of(mlruns)
    make_tables.write(names, studies[0].scale.name, folders)
    for study in studies:
        for line in contrast_lines(study_verdicts(record.of(study))):
            console.print(line, highlight=False)
        console.print(f"table: {folders.tables / study.scale.name / study.name}.md")
        for figure in make_figures.write([study], mlruns):
            if figure.suffix == ".png":
                console.print(f"{'loss curves' if study.view == 'table' else 'figure'}: {figure}")


def run_studies(asked: Options) -> int:
    """Run what is not recorded yet of the named studies, or show it; return the exit status, as `main` does."""
    names, options = study_names(asked), in_own_record(asked)
    studies = chosen(names, asked)
    if not (options.list or options.dry_run):
        csv_record.check_writable(options.mlruns)
        check_database(options.mlruns)
        record_results(store_of(options), options.mlruns, studies[0].file)
    results = csv_record.read_results(studies[0].scale.name, options.mlruns)
    print_choice(studies, asked, options)
    if options.list:
        sweep_report.print_studies(studies, results, store_of(options))
        return 0
    jobs = jobs_of(studies)
    work = make_plan(jobs, scored_cells(results), store_of(options), options.shared)
    work = study_by_study(work) if options.by_study else work
    if options.cluster:
        sweep_report.print_cluster_plan(work, results, asked)
        return 0
    cores = os.cpu_count() or 1 if options.address == "local" else 0  # a cluster's are unknown before joining it
    timed = results[results["key"].isin(jobs)] if options.short else results  # its other runs may be shorter or longer
    sweep_report.print_plan(work, timed, options.workers or cores, each=options.dry_run)
    if options.dry_run:
        return 0
    if not work.pending:
        print_nothing_to_do(jobs, asked, options)
    failed, ended = _run_pending(work, timed, options) if work.pending else ({}, True)
    failed |= copy_arrays(studies, options)
    log_results(store_of(options), Tracker(options.mlruns), studies[0].file)
    recorded = in_own_record(replace(asked, fresh=False)).mlruns if asked.fresh else None
    print_tables(studies, options.mlruns, recorded, failed)
    whole = names if asked.parts == Parts() else []  # the table of a study would not show that only a part was run
    shown = ended and not failed and any(name == "quickstart" or is_own_study(name) for name in whole)
    if shown:
        make_outputs(whole, studies, options.mlruns)
    sweep_report.print_outcome([] if shown else whole, studies, jobs, failed, ended, options.mlruns)
    return 1 if failed else 0 if ended else INTERRUPTED


def main(options: Options) -> int:
    """Run the command; return 0, 1 if a run failed, or 130 if interrupted."""
    if options.list:  # reading the record makes a million objects; by default, every 700th starts the collector
        gc.set_threshold(100_000)
    ignored = [name for name in ("dry_run", "by_study", "workers") if options.list and getattr(options, name)]
    if ignored:
        raise ValueError(f"--list: expected no {flag(ignored[0])} beside it")
    if options.cluster and not options.dry_run:
        raise ValueError(f"--cluster {options.cluster}: expected --dry-run too, as nothing is started")
    return run_studies(checked(options))


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
