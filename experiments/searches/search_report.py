"""Print the list of searches, and a search's best trials."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from experiments.cli.console import console, counted, print_failures
from experiments.results import csv_record
from experiments.searches.spaces import LogUniform, Search


def print_searches(chosen: Sequence[Search], mlruns: Path) -> None:
    """Print every search with its space and its number of trials."""
    table = Table(title=f"Searches at scale {chosen[0].scale.name}")
    for heading in ("search", "source", "space"):
        table.add_column(heading)
    for heading in ("trials", "seeds", "recorded"):
        table.add_column(heading, justify="right")
    for search in chosen:
        recorded = csv_record.read_searches(search.scale.name, mlruns)["search"].eq(search.name).sum()
        space = "\n".join(f"{name}: {_range_text(values)}" for name, values in search.space.items())
        trials = search.trials or len(search.combinations())
        table.add_row(search.name, search.source, space, str(trials), str(len(search.seeds)), str(recorded))
    console.print(table)


def _range_text(space: LogUniform | tuple[float, ...]) -> str:
    return ", ".join(f"{v:g}" for v in space) if isinstance(space, tuple) else f"{space.low:g} to {space.high:g}"


def print_outcome(search: Search, failed: Mapping[str, str], ended: bool, mlruns: Path) -> None:
    """Print a search's best dev scores, and its failures."""
    lines = csv_record.read_searches(search.scale.name, mlruns)
    trials = lines[lines["search"] == search.name].sort_values("score", ascending=False)
    states = ", ".join(f"{n} {state}" for state, n in trials["state"].value_counts().items())
    console.print(f"search {search.name}: {counted(len(trials), 'trial')} recorded ({states or 'none yet'})")
    for line in trials[trials["state"] == "finished"].head(3).itertuples():
        console.print(f"  {100 * float(line.score):.2f} on {search.scale.dev}: {line.trial}")
    left = (search.trials or len(search.combinations())) - len(trials)
    if left <= 0:
        console.print(f"  none is left; to begin anew: --mlruns and another folder than {mlruns}")
    elif ended and not failed:
        verb = "trial is" if left == 1 else "trials are"
        console.print(f"  {left} {verb} left; the command without --trials and --minutes makes them too")
    print_failures(failed, ended)
