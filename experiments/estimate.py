"""Estimate how long a sweep takes on GPUs, and what it costs, before anything is started.

python experiments/estimate.py all --scale paper --gpus 1 8 64 --price 2
python experiments/estimate.py rankcse --scale paper --gpus 4 --gpus-per-run 0.25
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.estimate")

import tyro

from experiments.cli.command import run_command
from experiments.cli.sweep_options import EstimateOptions, check_estimate, checked, in_own_record
from experiments.execution.plan import jobs_of, make_plan, scored_cells
from experiments.execution.sweep_report import print_forecast
from experiments.execution.sweep_setup import chosen, store_of
from experiments.results import csv_record


def main(asked: EstimateOptions) -> int:
    """Simulate the runs of the named studies that are not recorded yet."""
    asked = checked(asked)
    check_estimate(asked)
    if not asked.studies:
        raise ValueError("no study named; `python experiments/sweep.py --list` shows all")
    options, studies = in_own_record(asked), chosen(asked.studies, asked)
    results = csv_record.read_results(studies[0].scale.name, options.mlruns)
    work = make_plan(jobs_of(studies), scored_cells(results), store_of(options), options.shared)
    print_forecast(work, results, options)
    return 0


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(EstimateOptions)))
