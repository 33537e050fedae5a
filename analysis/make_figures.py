"""Draw studies that are figures, and loss and dev curves of tables, from the record.

python analysis/make_figures.py [study ...] [--scale small] [--check] [--mlruns FOLDER]
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("analysis.make_figures")

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
import tyro

from analysis import cells
from analysis.plots.figure_data import FigureData, curves_of
from analysis.report.search_tables import searches_with_trials
from analysis.verdicts.gains import method_gains
from cse_core.data.atomic_write import full_disk_named
from experiments.cli.command import run_command
from experiments.cli.console import counted
from experiments.comparison.tuned import COMPARISONS
from experiments.results import csv_record, manifest
from experiments.results.manifest import Manifest
from experiments.schema.study import Row, Study
from experiments.storage.record_folders import folder_of
from experiments.studies import catalogue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE = "table"
# Names of figures about several studies. The last one has several scales and is drawn with those of `small`.
SEARCHES, FIRST_CLAIMS, FOREST, STRENGTH = "searches", "first-claims", "forest", "strength"
WITH_CURVES = ("rankcse-table4",)  # tables whose curves the report shows


def figure_data_of(study: Study, results: pd.DataFrame, curves: pd.DataFrame, mlruns: Path) -> FigureData:
    """Return the data of a study's figure: lines of results.csv and curves.csv, and arrays of the record."""
    return FigureData(
        study=study,
        results=cells.join(study, results),
        curves=curves_of(study, curves),
        arrays=partial(_arrays, csv_record.folder_for(study.scale.name, mlruns)),
        record=results,
    )


def _arrays(folder: Path, row: Row, seed: int, task: str) -> Mapping[str, np.ndarray] | None:
    path = csv_record.arrays_path(folder, row.keys()[seed], row.select, str(row.scorer), task)
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        return dict(arrays)


def draw(drawn: FigureData) -> "Figure | None":
    """Draw a study by its view, a table as its curves; return None if there is nothing to draw."""
    from analysis.plots.curves import all_curves  # lazy: slow import
    from analysis.plots.registry import VIEWS  # lazy: slow import

    view = all_curves if drawn.study.view == TABLE else VIEWS.get(drawn.study.view)
    return view(drawn) if view else None


def save(figure: "Figure", stem: Path) -> list[Path]:
    """Save the figure as PNG and SVG, with the same bytes each time."""
    from matplotlib.text import Text  # lazy: slow import

    from analysis.plots import style  # lazy: slow import

    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + suffix) for suffix in (".png", ".svg")]
    for text in figure.findobj(Text):
        if "mathdefault" not in text.get_text():  # it is in matplotlib's numbers on an axis
            text.set_parse_math("$" not in text.get_text())  # a dollar sign in a label is no formula
    with full_disk_named(stem):
        paths[0].write_bytes(style.png(figure))
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def make(studies: Sequence[Study], *, mlruns: Path = csv_record.MLRUNS, figures: Path) -> list[Path]:
    """Draw every study that has data, a table as NAME-curves; return the files."""
    import matplotlib.pyplot as plt  # lazy: slow import

    from analysis.plots import style  # lazy: slow import

    written = []
    frames = cache(lambda scale: (csv_record.read_results(scale, mlruns), csv_record.read_curves(scale, mlruns)))
    with plt.rc_context(style.RC):
        for study in studies:
            scale = study.scale.name
            figure = draw(figure_data_of(study, *frames(scale), mlruns))
            if figure is not None:
                written += save(figure, figures / scale / stem_of(study))
    return written


def write(studies: Sequence[Study], mlruns: Path) -> list[Path]:
    """Draw studies into the folder of the record's figures, and accept the files in its manifest; return the files."""
    folder = csv_record.outputs(mlruns)
    written = make(studies, mlruns=mlruns, figures=folder / "figures")
    Manifest(folder).accept(written)
    return written


def stem_of(study: Study) -> str:
    """Return the file name of a study's figure, without suffix."""
    return f"{study.name}-curves" if study.view == TABLE else study.name


def make_summaries(scale: str, *, mlruns: Path, figures: Path) -> list[Path]:
    """Draw the effects of first claims, every method's gain, and the searches of a scale if there are any."""
    import matplotlib.pyplot as plt  # lazy: slow import

    from analysis.comparison.figures import comparison_figures  # lazy: slow import
    from analysis.plots import style  # lazy: slow import
    from analysis.plots.effects import first_claims, forest  # lazy: slow import
    from analysis.plots.search_history import searches  # lazy: slow import
    from analysis.plots.strength import BACKBONES, gains_by_strength, strength  # lazy: slow import
    from analysis.report.answers import gains_shown  # lazy: slow import
    from analysis.verdicts.comparison import paper_gains, recorded_summaries  # lazy: slow import

    results, curves = csv_record.read_results(scale, mlruns), csv_record.read_curves(scale, mlruns)
    tried = csv_record.read_searches(scale, mlruns)
    compared = list(recorded_summaries(scale, tried, mlruns))
    studies = catalogue.choose_studies(["robustness", "baselines", "plan"], scale)
    measured = method_gains(cells.join(study, results, curves) for study in studies)
    with plt.rc_context(style.RC):
        written = save(forest(measured, scale), figures / scale / FOREST)
        if scale == "small":
            joined = _joined(mlruns)
            tuned = {backbone: paper_gains(compared, backbone) for backbone in BACKBONES}
            shown = gains_shown(lambda name, _: joined(name, scale), tuned["wiki-tiny"])
            written += save(first_claims(shown, scale), figures / scale / FIRST_CLAIMS)
            estimates = {
                (paper, backbone): gain.estimate
                for backbone, gains in tuned.items()
                for paper, gain in gains.items()
                if gain.estimate
            }
            written += save(strength(gains_by_strength(joined, estimates)), figures / scale / STRENGTH)
        for summary in (each for each in compared if len(each.tuned) > 1):
            for name, drawn in comparison_figures(summary).items():
                written += save(drawn, figures / scale / f"{summary.comparison.name}-{name}")
        history = searches(searches_with_trials(tried, scale))
        return written + (save(history, figures / scale / SEARCHES) if history is not None else [])


def _joined(mlruns: Path) -> Callable[[str, str], cells.Results]:
    """Return a function that joins a study at a scale with the record."""
    read = cache(lambda scale: csv_record.read_results(scale, mlruns))
    return lambda name, scale: cells.join(catalogue.single(name, scale), read(scale))


def differences(scale: str, *, mlruns: Path, figures: Path) -> list[str]:
    """Return a line for each file of the record, and each figure, that does not match its manifest or has no study.

    Nothing is drawn: with other fonts or another matplotlib, the same figure has other bytes.
    """
    differing = Manifest(csv_record.folder_for(scale, mlruns)).differences()
    for path, what in Manifest(figures.parent).differences().items():
        if path.is_relative_to(figures) or path.name == manifest.NAME:
            differing[path] = what
    stems = {stem_of(study) for study in catalogue.choose_studies(["all"], scale)} | {SEARCHES, FIRST_CLAIMS, FOREST}
    stems |= {STRENGTH} if scale == "small" else set()
    stems |= {f"{name}-{figure}" for name in COMPARISONS for figure in ("curves", "forest")}
    stale = (path for path in sorted((figures / scale).glob("*")) if path.stem not in stems)
    return [f"{path}: {what}" for path, what in differing.items()] + [
        f"{path}: stale, no study gives it" for path in stale if scale != "quickstart"
    ]


def studies_to_draw(studies: Sequence[Study]) -> list[Study]:
    """Return the studies that are drawn if none is named: the figures, and the tables whose curves the report shows."""
    return [study for study in studies if study.view != TABLE or study.name in WITH_CURVES]


def main(
    studies: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    *,
    scale: str = "small",
    check: bool = False,
    mlruns: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = csv_record.MLRUNS,
) -> int:
    """Draw studies from mlruns/*.csv: figures, and loss and dev curves of tables.

    Args:
        studies: studies, papers or `quickstart`; without names, the papers' figures and the curves in the report.
        scale: scale of the studies.
        check: draw nothing; list files that differ from SHA256SUMS, and exit with 1 if there are any.
        mlruns: folder of the record.
    """
    mlruns = csv_record.require(folder_of(studies, mlruns), scores=not studies)
    studies = studies or catalogue.fixed_at(scale)
    figures = csv_record.outputs(mlruns) / "figures"
    if check:
        lines = differences("quickstart" if studies == ("quickstart",) else scale, mlruns=mlruns, figures=figures)
        print("\n".join([*lines, f"{len(lines)} differences from {manifest.NAME}"]))
        return 1 if lines else 0
    chosen = (
        catalogue.choose_studies(list(studies), scale)
        if studies
        else studies_to_draw(catalogue.choose_studies(["all"], scale))
    )
    written = write(chosen, mlruns)
    if not studies:
        summaries = make_summaries(scale, mlruns=mlruns, figures=figures)
        Manifest(figures.parent).accept(summaries)
        written += summaries
    summary = f"{counted(len(written), 'file')} made; a study without data has none"
    print("\n".join([*map(str, written), summary]))
    return 0


def command() -> None:
    """Run the command line."""
    run_command(lambda: tyro.cli(main))
