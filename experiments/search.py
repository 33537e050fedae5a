"""Search hyperparameters by dev scores; every trial is recorded, and the same command resumes.

python experiments/search.py rankcse --scale small
python experiments/search.py simcse --trials 5 --minutes 10
python experiments/search.py --list
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.search")

import math
from dataclasses import dataclass, replace

import tyro

from experiments.cli.command import INTERRUPTED, run_command
from experiments.cli.options import above_zero, at_least
from experiments.cli.sweep_options import RayOptions, check_ray
from experiments.execution.log_queue import log_results
from experiments.execution.sweep_setup import execution_settings, prepare_shared, ray_config, require_inputs
from experiments.results import csv_record
from experiments.searches import search_report
from experiments.searches.spaces import choose_searches
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker


@dataclass(frozen=True, kw_only=True)
class Options(RayOptions):
    """Run hyperparameter searches by dev scores."""

    searches: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of searches, a method for all of its searches, or `all`."""
    trials: int | None = None
    """Make at most this number of further trials of each search."""
    minutes: float | None = None
    """Begin no further trial of a search after these minutes; those in progress end."""
    list: bool = False
    """List the searches and exit: source, space, trials, recorded trials."""


def main(options: Options) -> int:
    """Run searches one after the other; return 0, 1 if a trial failed, or 130 if interrupted."""
    check_ray(options)
    at_least(1, trials=options.trials)
    above_zero(minutes=options.minutes)
    searches = choose_searches(options.searches or ("all",) * options.list, options.scale)
    if options.list:
        search_report.print_searches(searches, options.mlruns)
        return 0
    from experiments.searches.ray_search import run_search, trials_left  # lazy: slow import

    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    execution, tracker = execution_settings(options), Tracker(options.mlruns)
    left = [each for each in searches if trials_left(each, options.mlruns)]
    jobs = [job for each in left for job in (*each.nested_jobs(), *each.jobs(each.default_settings))]
    require_inputs(jobs, {job.key for job in jobs}, execution.data)
    prepare_shared(options)
    cluster = ray_config(options)
    execution = replace(execution, device=cluster.start())
    status = 0
    for each in searches:
        failed, ended = run_search(
            each, execution, cluster, tracker, trials=options.trials, seconds=60 * (options.minutes or math.inf)
        )
        search_report.print_outcome(each, failed, ended, options.mlruns)
        if not ended:
            return INTERRUPTED
        if failed:
            status = 1
    log_results(execution.store, tracker)
    return status


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)))
