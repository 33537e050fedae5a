"""Write every study's tables and the blocks of REPORT.md from the record, or check that they match it.

python analysis/make_tables.py [study ...] [--scale small] [--check] [--mlruns FOLDER]
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("analysis.make_tables")

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from analysis.cells import Results, tidy
from analysis.record import audit_tables, device_tables  # noqa: F401  they register blocks
from analysis.record.coverage import recorded_scales, studies_with_scores
from analysis.record.record_differences import changed_files, committed_folders, differences, read_text, stale_files
from analysis.record.undeclared_runs import undeclared_page
from analysis.report import (  # noqa: F401  some only register blocks
    answers,
    benchmark_tables,
    bootstrap_tables,
    contrast_tables,
    findings,
    first_page,
    formats,
    plan_tables,
    released_tables,
    report_blocks,
    reproduction_tables,
    search_tables,
    study_tables,
    values,
)
from analysis.report.blocks import Record, fill_page
from analysis.report.comparison_tables import comparison_page, summaries
from analysis.report.formats import Grid
from analysis.verdicts.looks import study_verdicts
from analysis.verdicts.verdict import Verdict
from cse_core.data.atomic_write import atomic_write
from experiments.cli.command import run_command
from experiments.cli.console import counted
from experiments.execution import step_cost
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.results.csv_table import DamagedFileError
from experiments.results.manifest import ChangedFileError, Manifest
from experiments.results.study_table import print_tables
from experiments.schema.study import Study
from experiments.storage.record_folders import folder_of
from experiments.studies import catalogue

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "REPORT.md",
    "APPENDIX.md",
    "experiments/PLAN.md",
    "experiments/PLAN2.md",
    "docs/methods.md",
    "docs/released.md",
    "docs/rehearsal.md",
)


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The folder of the record, the folder of tables, and the pages with generated blocks."""

    mlruns: Path
    tables: Path
    pages: tuple[Path, ...]  # none, unless the record is the committed one

    @classmethod
    def of(cls, mlruns: Path) -> "Folders":
        """Return the folders of a record; only the committed record has pages, and its tables in analysis/."""
        pages = tuple(ROOT / name for name in PAGES if csv_record.is_project_record(mlruns))
        return cls(mlruns=mlruns, tables=csv_record.outputs(mlruns) / "tables", pages=pages)


def files_of_study(results: Results) -> dict[str, str]:
    """Return the contents of a study's files by name."""
    study, grids, notes = results.study, study_tables.grids(results), study_tables.notes(results)
    verdicts = study_verdicts(results)
    return {
        f"{study.name}.md": _study_page(study, grids, notes, verdicts),
        f"{study.name}.tex": _study_tex(study, grids, notes, verdicts),
        f"{study.name}.csv": tidy(results).to_csv(index=False, float_format="%.4f", lineterminator="\n"),
    }


def studies_to_make(names: Sequence[str], scale: str, record: Record) -> list[Study]:
    """Return the chosen studies at the scale; without a scale, at small and at each scale where they have scores."""
    scales = _scales(scale, record)
    if names and not scale:  # a study with its own scale is chosen at any other
        scales = [each for each in scales if not catalogue.fixed_at(each)]
    chosen = [study for scale in scales for study in record.studies(names or catalogue.names_at(scale), scale)]
    studies = list({(study.scale.name, study.name): study for study in chosen}.values())
    return studies if names and scale else studies_with_scores(studies, record.results) or studies


def _scales(scale: str, record: Record) -> list[str]:
    return [scale] if scale else recorded_scales(record.results("small"))


def make(names: Sequence[str] = (), *, scale: str = "", check: bool = False, folders: Folders) -> list[str]:
    """Write the tables and report blocks, or with `check` only compare; return a line for each difference.

    Without names, make all studies. Stale files are reported, and removed, only if all studies are made. Pages show
    no quickstart.
    """
    record = Record(folders.mlruns)
    texts = {
        folders.tables / study.scale.name / name: text
        for study in studies_to_make(names, scale, record)
        for name, text in files_of_study(record.of(study)).items()
    }
    stale = []
    if not names:
        texts |= _pages_without_study(_scales(scale, record), record, folders)
        searched = [folders.tables / scale] if scale else committed_folders(folders.tables)
        stale = stale_files(searched, texts)
    for page in folders.pages if list(names) != ["quickstart"] else ():
        texts[page] = fill_page(read_text(page), record)
    lines = differences(texts) + [f"{path}: stale, no study gives it" for path in stale]
    if not check:
        for path, text in texts.items():
            if not path.is_file() or read_text(path) != text:
                atomic_write(path, text)
        for path in stale:
            path.unlink()
        Manifest(folders.tables.parent).accept(path for path in [*texts, *stale] if path not in folders.pages)
    return lines


def write(names: Sequence[str], scale: str, folders: Folders, *, accept: bool = False) -> list[str]:
    """Make studies from a record that matches its manifest, or with `accept` from any; return what changed, by line."""
    manifest = Manifest(_folder_of_record(names, scale, folders))
    if accept:
        manifest.path.unlink(missing_ok=True)
    manifest.refuse_changes()
    lines = make(names, scale=scale, folders=folders)
    manifest.accept()
    return lines


def _folder_of_record(names: Sequence[str], scale: str, folders: Folders) -> Path:
    return csv_record.folder_for("quickstart" if list(names) == ["quickstart"] else scale, folders.mlruns)


def check_all(names: Sequence[str], scale: str, folders: Folders) -> list[str]:
    """Return a line for each file that does not match its manifest or the record."""
    by_path = changed_files(_folder_of_record(names, scale, folders), folders.tables.parent)
    try:
        lines = make(names, scale=scale, check=True, folders=folders)
    except (ChangedFileError, DamagedFileError) as error:
        lines = [f"tables and report were not compared: {error}"]
    changed = [
        f"{path}: {what}" for path, what in by_path.items() if not any(line.startswith(f"{path}:") for line in lines)
    ]
    return changed + lines


def _pages_without_study(scales: Sequence[str], record: Record, folders: Folders) -> dict[Path, str]:
    """Return the pages of recorded comparisons, and the page of runs that belong to no study or comparison."""
    pages = {}
    for scale in scales:
        declared = set(jobs_of(record.studies(catalogue.names_at(scale), scale)))
        for summary in summaries(record, scale):
            pages[folders.tables / scale / f"{summary.comparison.name}.md"] = comparison_page(summary)
            declared.update(key for each in summary.tuned for key in each.keys)
        text = undeclared_page(scale, declared, record.runs(scale), record.results(scale))
        pages |= {folders.tables / scale / "undeclared-runs.md": text} if text else {}
    return pages


def main(
    studies: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    *,
    scale: str = "",
    check: bool = False,
    accept: bool = False,
    mlruns: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = csv_record.MLRUNS,
) -> int:
    """Write the tables and the blocks of REPORT.md from mlruns/*.csv.

    Args:
        studies: studies, papers or `quickstart`; without names, all but quickstart.
        scale: scale of the studies; if not given, small and every other at which something of them is recorded.
        check: write nothing; list files that differ from the record or from SHA256SUMS, and exit with 1 if any do.
        accept: take the record as it is, though its files are not those of SHA256SUMS.
        mlruns: folder of the record.
    """
    gc.set_threshold(100_000)  # the record's studies are a million objects: every 700th would start the collector
    catalogue.choose_studies(list(studies), scale or "small")  # refuses unknown names before the record is read
    mlruns = csv_record.require(folder_of(studies, mlruns), scores=not studies)
    studies = studies or catalogue.fixed_at(scale)
    folders = Folders.of(mlruns)
    if check:
        lines = check_all(studies, scale, folders)
        print("\n".join([*lines, f"{counted(len(lines), 'difference')} from the record"]))
        return 1 if lines else 0
    lines = write(studies, scale, folders, accept=accept)
    if folders.pages:
        step_cost.remember()
    if studies:
        print_tables(studies_to_make(studies, scale, Record(mlruns)), mlruns)
    print(f"{counted(len(lines), 'file')} changed under {folders.tables}")
    return 0


def command() -> None:
    """Run the command line."""
    run_command(lambda: tyro.cli(main))


def _study_page(study: Study, grids: Sequence[Grid], notes: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    parts = [f"# {study.name}, scale {study.scale.name}", *map(formats.markdown, grids)]
    parts.append("\n".join(f"- {note}" for note in notes))
    contrasts = contrast_tables.contrasts_text(study, verdicts)
    return "\n\n".join([*parts, *(["## Contrasts", contrasts] if contrasts else [])]) + "\n"


def _study_tex(study: Study, grids: Sequence[Grid], notes: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    pages = [(grid, notes) for grid in grids]
    if verdicts:
        pages.append((contrast_tables.contrasts_grid(verdicts), [contrast_tables.how_estimated(verdicts)]))
    tables = []
    for i, (grid, below) in enumerate(pages, 1):
        caption = f"{study.source}, scale {study.scale.name}. {grid.title or study.question}"
        tables.append(formats.latex(grid, label=f"{study.name}-{study.scale.name}-{i}", caption=caption, notes=below))
    return "\n\n".join(tables) + "\n"
