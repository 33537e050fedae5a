"""Place names beside the ends of lines and beside points, where they touch nothing."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

AROUND = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


def beside_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float = 9.0) -> list[Text]:
    """Write names beside the ends of lines, (x, y, name, colour) each, at least `gap` points apart.

    The y axis must have its final limits and scale.
    """
    texts: list[Text] = [
        axes.annotate(
            name, (x, y), (5, 0), textcoords="offset points", color=_darker(colour), fontsize=7.5, va="center"
        )
        for x, y, name, colour in ends
    ]
    scale = _laid_out_figure(axes).dpi / 72
    places = [axes.transData.transform((x, y))[1] for x, y, _, _ in ends]
    spread_places = spread_apart(places, gap * scale)
    for text, place, spread_place in zip(texts, places, spread_places, strict=True):
        text.set_position((5, (spread_place - place) / scale))
    return texts


def spread_apart(places: Sequence[float], gap: float) -> list[float]:
    """Return the nearest places at least `gap` apart, in the same order: clusters are spread around their mean."""
    order = np.argsort(places, kind="stable")
    clusters: list[list[float]] = []  # sum of places minus offsets, and count, of each cluster
    for index in order:
        clusters.append([places[index], 1])
        while len(clusters) > 1:
            (before, n), (after, m) = clusters[-2:]
            if after / m - (m - 1) * gap / 2 - (before / n + (n - 1) * gap / 2) >= gap:
                break
            clusters[-2:] = [[before + after, n + m]]
    spread = [total / n + (i - (n - 1) / 2) * gap for total, n in clusters for i in range(int(n))]
    nearest = [0.0] * len(places)
    for index, place in zip(order, spread, strict=True):
        nearest[index] = place
    return nearest


def beside_points(
    axes: Axes, points: Sequence[tuple[float, float, str, str]], others: Sequence[tuple[float, float]] = ()
) -> list[Text]:
    """Write names beside points, (x, y, name, colour) each, where they cover no point, none of `others` and no name.

    If there is no such place, take the one that covers least, and among those the nearest.
    """
    offsets = [(dx * distance, dy * distance) for distance in (7, 13, 20, 28) for dx, dy in AROUND]
    size = 5 * _laid_out_figure(axes).dpi / 72
    marks = [axes.transData.transform((x, y)) for x, y, *_ in points]
    taken = [Bbox.from_bounds(x - size, y - size, 2 * size, 2 * size) for x, y in marks]
    taken += [Bbox.from_bounds(x - 1, y - 1, 2, 2) for x, y in map(axes.transData.transform, others)]
    texts = []
    for x, y, name, colour in points:
        text = axes.annotate(name, (x, y), (0, 0), textcoords="offset points", fontsize=7.5, color=_darker(colour))
        best = min(offsets, key=lambda offset: (_count_covered(text, offset, taken, axes.bbox), offsets.index(offset)))
        taken.append(_move(text, best))
        texts.append(text)
    return texts


def _move(text: Text, offset: tuple[float, float]) -> Bbox:
    dx, dy = offset
    text.set_position(offset)
    text.set_horizontalalignment("left" if dx > 0 else "right" if dx < 0 else "center")
    text.set_verticalalignment("bottom" if dy > 0 else "top" if dy < 0 else "center")
    return text.get_window_extent()


def _count_covered(text: Text, offset: tuple[float, float], taken: Sequence[Bbox], room: Bbox) -> int:
    """Return how many boxes the name would cover at an offset; leaving the panel counts as one."""
    box = _move(text, offset)
    inside = box.x0 >= room.x0 and box.x1 <= room.x1 and box.y0 >= room.y0 and box.y1 <= room.y1
    return sum(box.overlaps(other) for other in taken) + (not inside)


def _darker(colour: str) -> str:
    """Return a darker colour, as text in light colours is hard to read."""
    red, green, blue = to_rgb(colour)
    share = min(1.0, 0.5 / max(0.299 * red + 0.587 * green + 0.114 * blue, 0.01))
    return to_hex((red * share, green * share, blue * share))


def _laid_out_figure(axes: Axes) -> Figure:
    """Return the figure after its layout, when positions on it are final."""
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("expected a panel of a figure, got one without a figure")
    figure.draw_without_rendering()
    return figure
