"""Print which parts of the studies a command line chooses, and where its runs are recorded."""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace

from experiments.cli.cluster_form import sweep_words
from experiments.cli.console import console
from experiments.cli.sweep_options import Options, in_own_record
from experiments.schema.study import Study
from experiments.storage.record_folders import is_own_study


def print_choice(studies: Sequence[Study], asked: Options, options: Options) -> None:
    """Print the chosen rows and seeds, and the folder of the record if it is a separate one."""
    if any(map(is_own_study, asked.studies)):
        console.print(f"a study of your own: its record, tables and figures are in {options.mlruns}")
    rows = [row for study in studies for row in study.rows]
    if asked.rows or asked.backbones:
        console.print(f"rows: {'; '.join(dict.fromkeys(row.label for row in rows))}", highlight=False)
    if asked.seeds:
        seeds = dict.fromkeys(" ".join(map(str, row.seeds)) for row in rows if row.seeds)
        console.print(f"seeds: {'; '.join(seeds)}", highlight=False)
    if asked.short:
        console.print(f"runs cut short have a record of their own, {options.mlruns}; they enter no study's record")
    if asked.fresh:
        unchanged = in_own_record(replace(asked, fresh=False)).mlruns
        console.print(f"fresh: trained although recorded in {unchanged}, which does not change")
        console.print(
            f"the new runs have a record of their own, {options.mlruns}; to begin it again, delete the folder"
        )


def print_nothing_to_do(keys: Collection[str], asked: Options, options: Options) -> None:
    """Print why there is nothing to do, and the command that trains anyway."""
    if not keys:
        console.print("nothing to do: these studies train and score nothing")
        return
    many = "the run is" if len(keys) == 1 else f"all {len(keys)} runs are"
    console.print(f"nothing to do: {many} in the record, {options.mlruns}")
    if not asked.fresh:
        command = shlex.join(["python", "experiments/sweep.py", *sweep_words(replace(asked, fresh=True))])
        console.print(f"to train here anyway: {command}", highlight=False)
