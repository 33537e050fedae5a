"""The functions that draw each view of a study; the views `table` and `examples` are printed as tables."""

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from analysis.plots import curves, distributions, effects, embeddings, hyperparameters, ladder, scores
from analysis.plots.figure_data import FigureData

VIEWS: Mapping[str, Callable[[FigureData], Figure | None]] = {
    "dots": scores.dots,
    "gains": effects.gain_intervals,
    "ladder": ladder.teacher_ladder,
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
