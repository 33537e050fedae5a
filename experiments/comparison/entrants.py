"""Make the entrants and the measures of a comparison from names: methods, files with methods, tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from cse_core.data import own_pairs
from cse_core.evaluation import suite
from cse_core.evaluation.suite import find_task
from cse_core.evaluation.tasks import RankingTask, STSTask, TransferTask
from cse_core.lookup import look_up
from cse_core.method import Method
from cse_core.methods import METHODS
from cse_core.run import Run
from cse_core.space import SCORING_WEIGHT, LogUniform, Values, space_of
from cse_core.training.selection import dev_sets
from experiments.comparison.comparison import RATES, Comparison, Entrant, value_text
from experiments.schema.recipes import RUNS
from experiments.schema.rows import rank_scorer
from experiments.schema.study import Scale
from experiments.studies.own_study import load_method


def entrant(name: str, scale: Scale, backbone: str) -> Entrant:
    """Return a method by its name, or by FILE.py:CLASS, with its published settings and its space.

    The user's own method without recipes of its own gets the settings of the method that it extends, except those whose
    defaults it changes. If it extends none, it gets SimCSE's run and its own defaults.
    """
    path, colon, kind = name.partition(".py")
    if colon:
        file = Path(f"{path}.py")
        method = load_method(file, kind.removeprefix(":"))
        run, named, source = _run_of_own(method, scale, backbone), method.name, str(file.resolve())
    else:
        look_up("method", name, METHODS)
        run, named, source = RUNS[name](scale, backbone), name, ""
    if run is None:
        raise ValueError(f"method {named}: scale {scale.name} has no backbone {backbone!r}")
    return Entrant(name=named, start=run, space={}, file=source)


def _run_of_own(method: Any, scale: Scale, backbone: str) -> Run | None:
    recipe = method.recipes().get(backbone) if hasattr(method, "recipes") else None
    if recipe is not None and isinstance(recipe.method, method):
        return scale.run(recipe, backbone)
    ancestors = [name for kind in method.__mro__[1:] for name in RUNS if METHODS[name] is kind]
    run = RUNS[ancestors[0] if ancestors else "simcse"](scale, backbone)
    if run is None:
        return None
    try:
        return replace(run, method=method(**_inherited(method, run.method) if ancestors else {}))
    except TypeError as error:
        raise ValueError(f"method {method.name}: {error}; expected a default for each setting") from error


def _inherited(method: Any, parent: Method) -> dict[str, Any]:
    """Return the fields of a parent's instance whose defaults the class of a method leaves as they are."""
    defaults = {f.name: (f.default, f.default_factory) for f in fields(method)}
    return {
        f.name: getattr(parent, f.name)
        for f in fields(parent)  # ty: ignore[invalid-argument-type]
        if f.init and defaults[f.name] == (f.default, f.default_factory)
    }


def with_space(each: Entrant, scale: Scale, width: int, tasks: Sequence[str]) -> Entrant:
    """Return the entrant with its search space; scoring by ranks is left out if a task does not allow it."""
    space = space_of(each.start, width)
    if SCORING_WEIGHT in space and not _ranks_score(scale, tasks):
        del space[SCORING_WEIGHT]
    published = {name: values[0] for name, values in space.items() if isinstance(values, tuple) and len(values) == 1}
    if SCORING_WEIGHT in space:
        published[SCORING_WEIGHT] = getattr(each.start.method, "published_scoring_weight", 0.0)
    return replace(each, space=space, published=published)


def _ranks_score(scale: Scale, tasks: Sequence[str]) -> bool:
    try:
        suite.check_scorer(rank_scorer(scale), tasks)
    except ValueError:
        return False
    return True


def measures_of(names: Sequence[str], dev: str, columns: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the measures of finals: for each group, task or file, the tasks whose mean it is, without dev sets."""
    measures: dict[str, tuple[str, ...]] = {}
    chosen_by = [own_pairs.pairs_of(each) for each in dev_sets(dev)]
    for name in names:
        tasks = tuple(t for t in suite.expand_names((name,), columns) if own_pairs.pairs_of(t) not in chosen_by)
        if not tasks:
            raise ValueError(f"--evaluate {name}: these pairs choose the settings (--dev); expected others")
        others = [task for task in tasks if not isinstance(find_task(task), STSTask | RankingTask | TransferTask)]
        if others:
            raise ValueError(
                f"--evaluate {name}: {others[0]} is no score of which more is better; expected pairs, rankings or "
                "transfer tasks"
            )
        measures[f"mean of {name}" if len(tasks) > 1 else tasks[0]] = tasks
    return measures


def tasks_of(measures: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tasks of all measures."""
    return [task for tasks in measures.values() for task in tasks]


def tried_text(comparison: Comparison, each: Entrant) -> str:
    """Return in words which settings of a method a comparison tries."""
    if comparison.transfers:
        rates = ", ".join(f"{rate:.3g}" for rate in RATES)
        return f"the settings that won in {comparison.transfers.name}, with {rates} times their learning rate"
    return "; ".join(f"{name} {_values_text(values)}" for name, values in each.space.items())


def _values_text(values: Values) -> str:
    if isinstance(values, LogUniform):
        return f"{values.low:.3g} to {values.high:.3g}"
    return " or ".join(map(value_text, values))
