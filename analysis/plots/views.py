"""Which function draws which view of a study; a table has none, and examples are printed as one."""

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from analysis.plots import pairs, scores, settings, spaces, training
from analysis.plots.drawn import Drawn

VIEWS: Mapping[str, Callable[[Drawn], Figure | None]] = {
    "bars": scores.bars,
    "grid": settings.grid,
    "lines": settings.lines,
    "scatter": scores.scatter,
    "curves": training.curves,
    "losses": training.losses,
    "paths": training.paths,
    "ridges": pairs.ridges,
    "neighbours": pairs.neighbours,
    "densities": pairs.densities,
    "spaces": spaces.spaces,
    "heat": spaces.heat,
}
