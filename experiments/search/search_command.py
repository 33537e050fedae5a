"""Run the searches that a command line names."""

import math
from dataclasses import replace

from experiments.cli.command import INTERRUPTED
from experiments.cli.sweep_options import Options
from experiments.execution.log_queue import log_results
from experiments.execution.sweep_setup import execution_settings, prepare_shared, ray_config, require_inputs
from experiments.results import csv_record
from experiments.search import search_report
from experiments.search.spaces import choose_searches
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker


def search(options: Options) -> int:
    """Run searches one after the other; return 0, 1 if a trial failed, or 130 if interrupted."""
    from experiments.search.ray_search import run_search, trials_left  # lazy: slow import

    searches = choose_searches(options.studies, options.scale)
    if options.dry_run or options.list:
        search_report.print_searches(searches, options.mlruns)
        return 0
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
