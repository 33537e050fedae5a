"""Names beside lines' ends and beside points, where they touch nothing."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

AROUND = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


def beside_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float = 9.0) -> list[Text]:
    """Names beside the ends of lines, (x, y, name, colour) each, pushed `gap` points apart where they would touch.

    The y axis must have its final limits and scale.
    """
    texts: list[Text] = [
        axes.annotate(
            name, (x, y), (5, 0), textcoords="offset points", color=_darker(colour), fontsize=7.5, va="center"
        )
        for x, y, name, colour in ends
    ]
    scale = _drawn(axes).dpi / 72
    places = [axes.transData.transform((x, y))[1] for x, y, _, _ in ends]
    wanted_places = apart(places, gap * scale)
    for text, place, wanted in zip(texts, places, wanted_places, strict=True):
        text.set_position((5, (wanted - place) / scale))
    return texts


def apart(places: Sequence[float], gap: float) -> list[float]:
    """The nearest places at least `gap` apart, in the same order: clusters are spread about their mean."""
    order = np.argsort(places, kind="stable")
    clusters: list[list[float]] = []  # of each: sum of places less their offsets, count
    for index in order:
        clusters.append([places[index], 1])
        while len(clusters) > 1:
            (before, n), (after, m) = clusters[-2:]
            if after / m - (m - 1) * gap / 2 - (before / n + (n - 1) * gap / 2) >= gap:
                break
            clusters[-2:] = [[before + after, n + m]]
    spread = [total / n + (i - (n - 1) / 2) * gap for total, n in clusters for i in range(int(n))]
    found = [0.0] * len(places)
    for index, place in zip(order, spread, strict=True):
        found[index] = place
    return found


def beside_points(
    axes: Axes, points: Sequence[tuple[float, float, str, str]], others: Sequence[tuple[float, float]] = ()
) -> list[Text]:
    """Names beside points, (x, y, name, colour) each, where they cover no point, none of `others` and no name.

    Where there is no such place, the one that covers least, and of those the nearest.
    """
    offsets = [(dx * away, dy * away) for away in (7, 13, 20, 28) for dx, dy in AROUND]
    size = 5 * _drawn(axes).dpi / 72
    marks = [axes.transData.transform((x, y)) for x, y, *_ in points]
    taken = [Bbox.from_bounds(x - size, y - size, 2 * size, 2 * size) for x, y in marks]
    taken += [Bbox.from_bounds(x - 1, y - 1, 2, 2) for x, y in map(axes.transData.transform, others)]
    texts = []
    for x, y, name, colour in points:
        text = axes.annotate(name, (x, y), (0, 0), textcoords="offset points", fontsize=7.5, color=_darker(colour))
        best = min(offsets, key=lambda offset: (_covered(text, offset, taken, axes.bbox), offsets.index(offset)))
        taken.append(_moved(text, best))
        texts.append(text)
    return texts


def _moved(text: Text, offset: tuple[float, float]) -> Bbox:
    dx, dy = offset
    text.set_position(offset)
    text.set_horizontalalignment("left" if dx > 0 else "right" if dx < 0 else "center")
    text.set_verticalalignment("bottom" if dy > 0 else "top" if dy < 0 else "center")
    return text.get_window_extent()


def _covered(text: Text, offset: tuple[float, float], taken: Sequence[Bbox], room: Bbox) -> int:
    """How many boxes the name would cover there; leaving the panel counts as one."""
    box = _moved(text, offset)
    inside = box.x0 >= room.x0 and box.x1 <= room.x1 and box.y0 >= room.y0 and box.y1 <= room.y1
    return sum(box.overlaps(other) for other in taken) + (not inside)


def _darker(colour: str) -> str:
    """Light colours are hard to read as words."""
    red, green, blue = to_rgb(colour)
    share = min(1.0, 0.5 / max(0.299 * red + 0.587 * green + 0.114 * blue, 0.01))
    return to_hex((red * share, green * share, blue * share))


def _drawn(axes: Axes) -> Figure:
    """The figure, laid out: only then are places on it known."""
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("names are put on a panel of a figure, got a panel without one")
    figure.draw_without_rendering()
    return figure
