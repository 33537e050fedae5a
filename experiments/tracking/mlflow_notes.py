"""Names and descriptions in MLflow: of experiments, and of runs, with links to their teachers and bases."""

import shlex
import sys
from collections.abc import Mapping

from experiments.results.csv_record import MANUAL_RUNS
from experiments.schema.scales import SCALES
from experiments.storage.credentials import redact_credentials
from experiments.tracking.run_content import RunContent

PREFIX = "cse-study "
FILTER = "tags.studies LIKE '% {} %'"  # the runs of a study
EXPERIMENT_NOTE = """{about}

**Compare methods**: group runs by `approach`, their label in a table, or by the tag `setting`, which is equal for all
seeds of the same settings and no others, and sort by `STS average`. `dev score` is that of the kept checkpoint,
`Curves/...` are loss terms and dev scores in training. All other scores of a run are in its artifact `scores.csv`.
A student is shown under its teacher unless the list is sorted by a metric. To show one study's runs, search
`tags.studies LIKE '% rankcse-table4 %'`."""


def experiment_name(scale: str) -> str:
    """Return the name of the MLflow experiment with the runs of a scale, or with those made by hand, of scale `own`."""
    return PREFIX + scale


def scale_of(experiment: str) -> str:
    """Return the scale of an MLflow experiment; empty if it is not one of this project's."""
    return experiment.removeprefix(PREFIX) if experiment.startswith(PREFIX) else ""


def experiment_note(scale: str) -> str:
    """Return the description of a scale's experiment."""
    return EXPERIMENT_NOTE.format(
        about=f"{SCALES[scale].title}. {SCALES[scale].notes}"
        if scale in SCALES
        else "Runs of run.py and search.py, and scores of evaluate.py."
        if scale == MANUAL_RUNS
        else f"Runs of scale {scale}."
    )


def command_line() -> str:
    """Return the command of this process, a script or a command of `cse`, without credentials."""
    script, *words = sys.argv
    start = script if script.startswith("cse ") else f"python {shlex.quote(script)}"
    return redact_credentials(" ".join([start, *map(shlex.quote, words)]))


def run_note(content: RunContent, pages: Mapping[str, str], command: str) -> str:
    """Return the description on a run's page; `pages` are the addresses of teachers' pages by key."""
    tags = content.tags
    teachers = [f"[{key}]({pages[key]})" if key in pages else f"`{key}`" for key in content.teachers]
    lines = [
        *([f"Needs the runs {', '.join(teachers)}"] if teachers else []),
        f"Command: `{command}`",
        f"Settings that are not default: {tags['changed'] or 'none'}",
        f"All seeds: search `tags.setting = '{tags['setting']}'`",
        f"Studies: {tags['studies'].strip() or 'none, made by hand'}",
    ]
    return "\n\n".join(lines)
