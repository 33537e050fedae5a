"""Which function draws which view of a study; a table has none, and examples are printed as one."""

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from analysis.plots import curves, distributions, embeddings, hyperparameters, scores
from analysis.plots.figure_data import Drawn

VIEWS: Mapping[str, Callable[[Drawn], Figure | None]] = {
    "bars": scores.bars,
    "grid": hyperparameters.grid,
    "lines": hyperparameters.lines,
    "scatter": scores.scatter,
    "curves": curves.curves,
    "losses": curves.losses,
    "paths": curves.paths,
    "ridges": distributions.ridges,
    "neighbours": distributions.neighbours,
    "densities": distributions.densities,
    "spaces": embeddings.spaces,
    "heat": embeddings.heat,
}
