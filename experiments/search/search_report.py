"""What a search prints: the list of searches, the best trials."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from experiments.cli.console import console, print_failures
from experiments.results import csv_record
from experiments.search.spaces import LogUniform, Search


def searches(chosen: Sequence[Search], mlruns: Path) -> None:
    """Every search with its space and its trials."""
    table = Table(title=f"Searches at scale {chosen[0].scale.name}")
    for heading in ("search", "source", "space"):
        table.add_column(heading)
    for heading in ("trials", "seeds", "recorded"):
        table.add_column(heading, justify="right")
    for one in chosen:
        known = csv_record.read_searches(one.scale.name, mlruns)["search"].eq(one.name).sum()
        space = "\n".join(f"{name}: {_values(values)}" for name, values in one.space.items())
        trials = one.trials or len(one.combinations())
        table.add_row(one.name, one.source, space, str(trials), str(len(one.seeds)), str(known))
    console.print(table)


def _values(space: LogUniform | tuple[float, ...]) -> str:
    return ", ".join(f"{v:g}" for v in space) if isinstance(space, tuple) else f"{space.low:g} to {space.high:g}"


def searched(search: Search, failed: Mapping[str, str], ended: bool, mlruns: Path) -> None:
    """What a search found on dev."""
    lines = csv_record.read_searches(search.scale.name, mlruns)
    mine = lines[lines["search"] == search.name].sort_values("score", ascending=False)
    states = ", ".join(f"{n} {state}" for state, n in mine["state"].value_counts().items())
    console.print(f"search {search.name}: {len(mine)} trials recorded ({states})")
    for line in mine[mine["state"] == "finished"].head(3).itertuples():
        console.print(f"  {100 * float(line.score):.2f} on {search.scale.dev}: {line.trial}")
    print_failures(failed, ended)
