"""Write names next to the ends of lines and next to points; adjustText moves them so that they touch nothing."""

from collections.abc import Sequence
from typing import Any

from adjustText import adjust_text
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import offset_copy

from analysis.plots.style import INK

SIZE = 7.5
HALO = withStroke(linewidth=1.5, foreground="white")  # for names that lie on lines
ROUNDS = 500  # of adjustText; with a time limit, figures would depend on the machine


def beside_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write names to the right of the ends of lines, (x, y, name, colour) each; lines that coincide share a text.

    Names are moved up or down. The y axis must have its final limits and scale.
    """
    at: dict[tuple[float, float], list[tuple[str, str]]] = {}
    for x, y, *said in ends:
        at.setdefault((x, round(y, 6)), []).append((said[0], said[1]))
    right = offset_copy(axes.transData, axes.get_figure(root=True), x=5, units="points")
    look: dict[str, Any] = {"transform": right, "fontsize": SIZE, "va": "center"}
    texts = [
        axes.text(x, y, ", ".join(name for name, _ in said), color=_darker(said[0][1]), **look)
        for (x, y), said in at.items()
    ]
    _lay_out(axes)
    free: dict[str, Any] = {
        "only_move": {"text": "y", "static": "y", "explode": "y", "pull": "y"},
        "avoid_self": False,
        "ensure_inside_axes": False,
        "expand": (1, 1),
        "force_explode": (0, 0),
    }
    adjust_text(texts, ax=axes, iter_lim=ROUNDS, **free)
    for text, (x, _) in zip(texts, at, strict=True):
        text.set(x=x, ha="left")  # adjustText centres it on a place that moves with the layout


def beside_points(
    axes: Axes, points: Sequence[tuple[float, float, str]], colours: Sequence[str] = (), others: Sequence = ()
) -> None:
    """Write names near points, (x, y, name) each, with a line from each that is far from its point."""
    texts = [
        axes.text(x, y, name, fontsize=SIZE, color=_darker(colour), path_effects=[HALO])
        for (x, y, name), colour in zip(points, colours or [INK] * len(points), strict=True)
    ]
    _lay_out(axes)
    xs, ys = zip(*[(x, y) for x, y, _ in points], *others, strict=True)
    arrow = {"arrowstyle": "-", "color": INK, "linewidth": 0.5}
    adjust_text(
        texts,
        xs,
        ys,
        ax=axes,
        expand=(1.1, 1.3),
        force_explode=(0, 0),
        force_static=(0.01, 0.02),
        force_pull=(0.1, 0.1),
        iter_lim=ROUNDS,
        min_arrow_len=9,
        arrowprops=arrow,
    )


def _darker(colour: str) -> str:
    """Return a darker colour, as text in light colours is hard to read."""
    red, green, blue = to_rgb(colour)
    share = min(1.0, 0.5 / max(0.299 * red + 0.587 * green + 0.114 * blue, 0.01))
    return to_hex((red * share, green * share, blue * share))


def _lay_out(axes: Axes) -> None:
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()  # makes positions final
