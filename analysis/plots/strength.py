"""Draw each paper's gain over SimCSE against the strength of the backbone; what was not run is shown as missing."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.cells import Results
from analysis.plots import style
from analysis.report.answers import contrast_of
from analysis.report.reproduction_tables import many_seeds, read_reproductions
from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval, summary
from analysis.verdicts.estimates import measure
from analysis.verdicts.gains import COLUMN, SIMCSE, printed_by_paper
from experiments.schema.contrasts import HEADLINES

Choose = Callable[[str, str], Results]  # a study's results at a scale
MISSING = "not run"
PUBLISHED = "BERT-base, published"
ALIKE, TUNED = "same settings as SimCSE's", "tuned as SimCSE is"
# From the weakest backbone to the strongest: its name, and its scale where the record has runs of the papers' methods.
BACKBONES = {"wiki-tiny": "small", "wiki-medium": "small", "minilm-remasked": "minilm", PUBLISHED: ""}
# By backbone and paper: the study, the row, and SimCSE's row to compare with.
ROWS: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "wiki-tiny": {
        "RankCSE": ("plan2-first-plan", "ListNet, one epoch", "SimCSE, one epoch"),
        "RankEncoder": ("plan2-disjoint", "RankEncoder", "SimCSE"),
        "WhitenedCSE": ("plan2-whitening", "WhitenedCSE, dropout views", "SimCSE"),
        "CompCSE": ("plan2-first-plan", "CompCSE", "SimCSE, ten seeds"),
    },
    "wiki-medium": {
        "WhitenedCSE": ("plan2-six-layers", "WhitenedCSE, dropout views", "SimCSE"),
        "CompCSE": ("plan2-six-layers", "CompCSE", "SimCSE"),
    },
    "minilm-remasked": {
        "RankCSE": ("plan2-quality", "ListNet", "SimCSE"),
        "RankEncoder": ("plan2-quality", "RankEncoder", "SimCSE"),
        "WhitenedCSE": ("plan2-quality", "WhitenedCSE, dropout views", "SimCSE"),
        "CompCSE": ("plan2-quality", "CompCSE", "SimCSE"),
    },
}
CAPTION = (
    "Points of the average of seven STS sets, with 95 % intervals over seeds, or over searches where both are tuned. "
    "Filled: tuned as SimCSE is, on wiki-medium both with what won on wiki-tiny; open: the same settings as SimCSE's; "
    "diamonds: published, with the deviation of one re-run of SimCSE-BERT-base from another. WhitenedCSE has the views "
    "of its released code. Open circles of RankEncoder have the paper's weight on minilm-remasked, 50 times that on "
    "wiki-tiny. On wiki-medium RankCSE and RankEncoder have too few seeds in the same settings. "
    "minilm-remasked descends from a supervised encoder. Below a backbone's name: SimCSE's score there in its "
    "published settings. wiki-mini has one seed, and is left out."
)


@dataclass(frozen=True)
class Gain:
    """A paper's gain over SimCSE on a backbone; `scored` is SimCSE's own average there, where it is known."""

    paper: str
    backbone: str
    how: str
    estimate: Estimate
    scored: float | None = None


def gains_by_strength(choose: Choose, tuned: Mapping[tuple[str, str], Estimate]) -> list[Gain]:
    """Return the recorded and the published gains; `tuned` has the gains with equal tuning by (paper, backbone)."""
    sd = (summary(many_seeds(read_reproductions())).sd or 0.0) * math.sqrt(2)
    printed = {paper: Estimate(gain, Interval(gain - sd, gain + sd)) for paper, gain in printed_by_paper().items()}
    found = [Gain(paper, PUBLISHED, PUBLISHED, estimate) for paper, estimate in printed.items()]
    for backbone, scale in BACKBONES.items():
        for paper, (study, row, base) in ROWS.get(backbone, {}).items():
            results = choose(study, scale)
            estimate = measure(results, contrast_of(results, row, base)).estimate
            scores = list(results.cells[base, COLUMN].scores.values())
            if estimate and not results.cells[row, COLUMN].missing:  # no gain is looked at before its last run
                found.append(Gain(paper, backbone, ALIKE, estimate, mean(scores) if scores else None))
    return found + [Gain(paper, backbone, TUNED, estimate) for (paper, backbone), estimate in tuned.items()]


def strength(gains: Sequence[Gain]) -> Figure:
    """Draw a panel for each paper: its gains from the weakest backbone to the strongest."""
    figure, panels = style.panels(len(HEADLINES), 2, height=2.1, sharex=True, sharey=True)
    for axes, paper in zip(panels, HEADLINES, strict=True):
        _panel(axes, [gain for gain in gains if gain.paper == paper])
        axes.set_title(paper)
    scored = {gain.backbone: f"\n{gain.scored:.1f}" for gain in gains if gain.scored is not None}
    for axes in panels:
        axes.set_xticks(
            range(len(BACKBONES)), [f"{name.replace(', ', chr(10))}{scored.get(name, '')}" for name in BACKBONES]
        )
        axes.tick_params(axis="x", labelsize=6)
    for axes in panels[::2]:
        axes.set_ylabel("gain over SimCSE")
    heading = f"Does a stronger backbone show more of each paper's gain over {SIMCSE}?"
    return style.add_title_and_caption(figure, heading, CAPTION)


def _panel(axes: Axes, gains: Sequence[Gain]) -> None:
    axes.axhline(0, color=style.FAINT, linewidth=0.8)
    places = {name: place for place, name in enumerate(BACKBONES)}
    for gain in gains:
        x = places[gain.backbone] + (0.15 if gain.how == TUNED else 0.0)
        if gain.estimate.interval:
            axes.plot((x, x), gain.estimate.interval, color=style.INK, linewidth=1.2)
        face = style.INK if gain.how == TUNED else "white"
        axes.plot(x, gain.estimate.mean, "D" if gain.how == PUBLISHED else "o", color=style.INK, markerfacecolor=face)
    known = {gain.backbone for gain in gains}
    for name, place in places.items():
        if name not in known:
            axes.annotate(MISSING, (place, 0), (0, 6), textcoords="offset points", ha="center", fontsize=6)
