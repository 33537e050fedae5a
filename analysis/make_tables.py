"""Write every study's tables and the blocks of REPORT.md from the record, or check that they match it.

python analysis/make_tables.py [study ...] [--scale small] [--check] [--mlruns FOLDER]
"""

import gc
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import tyro

from analysis.cells import Results, join, tidy
from analysis.record.audit_tables import audit_block
from analysis.record.coverage import recorded_scales, studies_with_scores
from analysis.record.device_tables import devices_block
from analysis.record.record_differences import changed_files, committed_folders, differences, read_text, stale_files
from analysis.record.undeclared_runs import undeclared_page
from analysis.report import (
    benchmark_tables,
    contrast_tables,
    first_page,
    formats,
    plan_tables,
    report_blocks,
    study_tables,
)
from analysis.report.bootstrap_tables import estimates_block, pairs_and_seeds_block
from analysis.report.released_tables import released_block
from analysis.report.reproduction_tables import reproductions_block
from analysis.report.search_tables import searches_block
from analysis.verdicts.looks import study_verdicts
from analysis.verdicts.plan import PlanVerdicts
from cse_core.data.atomic_write import atomic_write
from experiments.cli.command import run_command
from experiments.cli.console import counted
from experiments.comparison.comparison import Comparison
from experiments.execution import step_cost
from experiments.results import csv_record
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
KINDS = (
    "table|contrasts|estimates|benchmarks|published|runs|searches|audit|reproductions|"
    "plan|plan2|page|released|means|devices|pairs-and-seeds"
)
BLOCK = re.compile(rf"(<!-- ({KINDS}) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
OPENING = re.compile(rf"<!-- (?:{KINDS})\b.*")


class Record:
    """The record: its lines by scale and its joined studies, each read once."""

    def __init__(self, mlruns: Path) -> None:
        self._mlruns = mlruns
        self._results: dict[Path, pd.DataFrame] = {}
        self.runs = cache(partial(csv_record.read_runs, mlruns=mlruns))
        self._curves = cache(partial(csv_record.read_curves, mlruns=mlruns))
        self.pairs = cache(partial(csv_record.read_pairs, mlruns=mlruns))
        self.searches = cache(partial(csv_record.read_searches, mlruns=mlruns))
        self._studies: dict[tuple[str, str], Study] = {}
        self._joined: dict[tuple[str, str], Results] = {}
        self.plan = cache(lambda scale: PlanVerdicts(tuple(chosen_results("plan", scale, self))))

    def results(self, scale: str) -> pd.DataFrame:
        """Return every score with its run, of the record that has the scale."""
        folder = csv_record.folder_for(scale, self._mlruns)
        if folder not in self._results:
            self._results[folder] = csv_record.read_results(scale, self._mlruns)
        return self._results[folder]

    def studies(self, names: Sequence[str], scale: str) -> list[Study]:
        """Return the studies of these names, each made once, so that the keys of its runs are hashed once."""
        chosen = catalogue.choose_studies(list(names), scale)
        return [self._studies.setdefault((study.scale.name, study.name), study) for study in chosen]

    def of(self, study: Study) -> Results:
        """Return a study's cells."""
        scale, key = study.scale.name, (study.scale.name, study.name)
        if key not in self._joined:
            self._joined[key] = join(study, self.results(scale), self._curves(scale))
        return self._joined[key]


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The folder of the record, the folder of tables, and the pages with generated blocks."""

    mlruns: Path
    tables: Path
    pages: tuple[Path, ...]  # none for a record that is not the committed one

    @classmethod
    def of(cls, mlruns: Path) -> "Folders":
        """Return the folders of a record; only the committed record has pages, and its tables in analysis/."""
        pages = tuple(ROOT / name for name in PAGES if csv_record.is_project_record(mlruns))
        return cls(mlruns=mlruns, tables=csv_record.outputs(mlruns) / "tables", pages=pages)


def files_of_study(results: Results) -> dict[str, str]:
    """Return the contents of a study's files by name."""
    name = results.study.name
    files = {f"{name}.md": _study_page(results), f"{name}.tex": _study_tex(results)}
    files[f"{name}.csv"] = tidy(results).to_csv(index=False, float_format="%.4f", lineterminator="\n")
    return files


def table_block(results: Results, *, brief: bool = False) -> str:
    """Return the study's tables and their notes as Markdown; brief as in study_tables.notes."""
    notes = study_tables.notes(results, brief=brief)
    return "\n\n".join([*map(formats.markdown, study_tables.grids(results)), "\n".join(f"- {note}" for note in notes)])


def studies_for(names: Sequence[str], scales: Sequence[str], record: Record) -> list[Study]:
    """Return the chosen studies at each scale; quickstart has a fixed scale."""
    studies = [study for scale in scales for study in record.studies(names or catalogue.names_at(scale), scale)]
    return list({(study.scale.name, study.name): study for study in studies}.values())


def studies_to_make(names: Sequence[str], scale: str, record: Record) -> list[Study]:
    """Return the chosen studies at the scale; without one, at small and where something of them is recorded."""
    studies = studies_for(names, _scales(scale, record), record)
    return studies if names and scale else studies_with_scores(studies, record.results) or studies


def _scales(scale: str, record: Record) -> list[str]:
    return [scale] if scale else recorded_scales(record.results("small"))


def study_files(studies: Sequence[Study], record: Record, *, tables: Path) -> dict[Path, str]:
    """Return the contents of all files of the studies, by path."""
    return {
        tables / study.scale.name / name: text
        for study in studies
        for name, text in files_of_study(record.of(study)).items()
    }


def fill_blocks(report: str, record: Record) -> str:
    """Return the page with every block generated from the record and the benchmarks' results."""
    if len(OPENING.findall(report)) != len(BLOCK.findall(report)):
        raise ValueError(
            f"{', '.join(PAGES)}: expected blocks from `<!-- table STUDY SCALE -->` to `<!-- end -->`, "
            "found one that is not closed or has another name"
        )

    def fill(match: re.Match[str]) -> str:
        head, kind, name, scale, end = match.groups()
        if kind in OF_SEVERAL_STUDIES:
            return f"{head}{OF_SEVERAL_STUDIES[kind](name, scale, record)}\n{end}"
        results = record.of(catalogue.single(name, scale))
        if kind == "estimates":
            return f"{head}{estimates_block(results, record.pairs(scale))}\n{end}"
        if kind == "contrasts":
            return f"{head}{contrast_tables.contrasts_block(results)}\n{end}"
        return f"{head}{table_block(results, brief=True)}\n{end}"

    return BLOCK.sub(fill, report)


def chosen_results(names: str, scale: str, record: Record) -> list[Results]:
    """Return the results of the studies of a name."""
    return list(map(record.of, record.studies([names], scale)))


OF_SEVERAL_STUDIES: dict[str, Callable[[str, str, Record], str]] = {
    "audit": lambda name, scale, record: audit_block(scale),
    "benchmarks": lambda name, device, record: benchmark_tables.block(name, device),
    "devices": lambda name, scale, record: devices_block(name, record.results(scale)),
    "means": lambda name, *about: report_blocks.means_block(name, lambda names: chosen_results(names, *about)),
    "page": lambda name, scale, record: first_page.page_block(
        name, lambda names: chosen_results(names, scale, record), record.plan(scale)
    ),
    "published": lambda name, scale, record: report_blocks.PUBLISHED[name](),
    "released": lambda *about: released_block(chosen_results(*about)),
    "reproductions": lambda name, scale, record: reproductions_block(name),
    "plan": lambda name, scale, record: plan_tables.plan_block(name, record.plan(scale)),
    "plan2": lambda name, scale, record: plan_tables.second_plan_block(name, chosen_results("plan2", scale, record)),
    "pairs-and-seeds": lambda name, scale, record: pairs_and_seeds_block(record.plan(scale), record.pairs(scale)),
    "searches": lambda name, scale, record: searches_block(record.searches(scale), scale),
    "runs": lambda name, scale, record: report_blocks.runs_block(record.studies([name], scale), record.results(scale)),
}


def make(names: Sequence[str] = (), *, scale: str = "", check: bool = False, folders: Folders) -> list[str]:
    """Write the tables and report blocks, or with `check` only compare; return a line for each difference.

    Without names, make all studies. Stale files are reported, and removed, only if all studies are made. The report
    has no quickstart.
    """
    record = Record(folders.mlruns)
    texts = study_files(studies_to_make(names, scale, record), record, tables=folders.tables)
    stale = []
    if not names:
        texts |= _pages_without_study(_scales(scale, record), record, folders)
        searched = [folders.tables / scale] if scale else committed_folders(folders.tables)
        stale = stale_files(searched, texts)
    for page in folders.pages if list(names) != ["quickstart"] else ():
        texts[page] = fill_blocks(read_text(page), record)
    lines = differences(texts) + [f"{path}: stale, no study gives it" for path in stale]
    if not check:
        step_cost.remember()
        for path, text in texts.items():
            if not path.is_file() or read_text(path) != text:
                atomic_write(path, text)
        for path in stale:
            path.unlink()
        Manifest(folders.tables.parent).accept(path for path in [*texts, *stale] if path not in folders.pages)
    return lines


def check_all(names: Sequence[str], scale: str, folders: Folders) -> list[str]:
    """Return a line for each file that does not match its manifest or the record."""
    scale_of_record = "quickstart" if list(names) == ["quickstart"] else scale
    by_path = changed_files(csv_record.folder_for(scale_of_record, folders.mlruns), folders.tables.parent)
    try:
        lines = make(names, scale=scale, check=True, folders=folders)
    except ChangedFileError as error:
        lines = [f"tables and report were not compared: {error}"]
    changed = [
        f"{path}: {what}" for path, what in by_path.items() if not any(line.startswith(f"{path}:") for line in lines)
    ]
    return changed + lines


def _pages_without_study(scales: Sequence[str], record: Record, folders: Folders) -> dict[Path, str]:
    """Return the pages of recorded comparisons, and of runs of neither a study nor a comparison."""
    pages = {}
    for scale in scales:
        every, runs = record.studies(catalogue.names_at(scale), scale), record.runs(scale)
        for comparison in _comparisons(scale, record):
            from analysis.comparison.pages import comparison_page, keys_of  # lazy: slow import

            pages[folders.tables / scale / f"{comparison.name}.md"] = comparison_page(comparison, folders.mlruns)
            runs = runs[~runs["key"].isin(keys_of(comparison, folders.mlruns))]
        text = undeclared_page(scale, every, runs, record.results(scale))
        pages |= {folders.tables / scale / "undeclared-runs.md": text} if text else {}
    return pages


def _comparisons(scale: str, record: Record) -> list[Comparison]:
    if record.searches(scale).empty:
        return []
    from analysis.comparison.pages import recorded_comparisons  # lazy: slow import

    return list(recorded_comparisons(scale, record.searches(scale)))


def main(
    studies: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    *,
    scale: str = "",
    check: bool = False,
    mlruns: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = csv_record.MLRUNS,
) -> int:
    """Write the tables and the blocks of REPORT.md from mlruns/*.csv.

    Args:
        studies: studies, papers or `quickstart`; without names, all but quickstart.
        scale: scale of the studies; if not given, small and every other at which something of them is recorded.
        check: write nothing; list files that differ from the record or from SHA256SUMS, and exit with 1 if any do.
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
    lines = make(studies, scale=scale, folders=folders)
    if studies:
        print_tables(studies_to_make(studies, scale, Record(mlruns)), mlruns)
    print(f"{counted(len(lines), 'file')} changed under {folders.tables}")
    return 0


def command() -> None:
    """Run the command line."""
    run_command(lambda: tyro.cli(main))


def _study_page(results: Results) -> str:
    study = results.study
    parts = [f"# {study.name}, scale {study.scale.name}", table_block(results)]
    contrasts = contrast_tables.contrasts_block(results)
    return "\n\n".join([*parts, *(["## Contrasts", contrasts] if contrasts else [])]) + "\n"


def _study_tex(results: Results) -> str:
    study, verdicts = results.study, study_verdicts(results)
    pages = [(grid, study_tables.notes(results)) for grid in study_tables.grids(results)]
    if verdicts:
        grid, how = contrast_tables.contrasts_grid(verdicts), contrast_tables.how_estimated(verdicts)
        pages.append((grid, [how]))
    tables = []
    for i, (grid, notes) in enumerate(pages, 1):
        caption = f"{study.source}, scale {study.scale.name}. {grid.title or study.question}"
        tables.append(formats.latex(grid, label=f"{study.name}-{study.scale.name}-{i}", caption=caption, notes=notes))
    return "\n\n".join(tables) + "\n"


if __name__ == "__main__":
    command()
