"""Write every study's tables and the blocks of REPORT.md from the record, or check that they are what it gives.

python analysis/make_tables.py [study ...] [--scale small] [--check] [--mlruns FOLDER]
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import tyro

from analysis.cells import Results, join, tidy
from analysis.report import benchmark_tables, formats, html_page, report_blocks, study_tables, verdict_tables
from analysis.report.audit_tables import audit_block
from analysis.report.bootstrap_tables import estimates_block
from analysis.report.record_differences import altered, committed_folders, differences, read_text, stale
from analysis.report.search_tables import searches_block
from analysis.report.undeclared_runs import undeclared_page
from analysis.verdicts.claims import overall
from analysis.verdicts.comparisons import judge
from cse_core.data.atomic_write import atomic_write
from experiments.cli.command import run_command
from experiments.results import csv_record
from experiments.results.manifest import ChangedFileError, Manifest
from experiments.schema.scales import SCALES
from experiments.schema.study import Study
from experiments.studies import catalogue

ROOT = Path(__file__).parents[1]
KINDS = "table|verdicts|headline|estimates|benchmarks|claims|decided|power|published|runs|searches|audit"
BLOCK = re.compile(rf"(<!-- ({KINDS}) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
OPENING = re.compile(rf"<!-- (?:{KINDS})\b.*")


class Record:
    """A record: its lines by scale, each read once, and its studies, each joined once."""

    def __init__(self, mlruns: Path) -> None:
        self.results = cache(partial(csv_record.read_results, mlruns=mlruns))
        self.runs = cache(partial(csv_record.read_runs, mlruns=mlruns))
        self._curves = cache(partial(csv_record.read_curves, mlruns=mlruns))
        self.pairs = cache(partial(csv_record.read_pairs, mlruns=mlruns))
        self.searches = cache(partial(csv_record.read_searches, mlruns=mlruns))
        self._joined: dict[tuple[str, str], Results] = {}

    def of(self, study: Study) -> Results:
        """The study's cells."""
        scale, place = study.scale.name, (study.scale.name, study.name)
        if place not in self._joined:
            self._joined[place] = join(study, self.results(scale), self._curves(scale))
        return self._joined[place]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the record is read from and tables and report are written to."""

    mlruns: Path
    tables: Path
    pages: tuple[Path, ...]  # with blocks from the record; none for a record that is not the project's own

    @classmethod
    def of(cls, mlruns: Path) -> "Places":
        """The committed tables, README.md and REPORT.md for the project's own record; another has tables beside it."""
        pages = (ROOT / "README.md", ROOT / "REPORT.md") if csv_record.is_project_record(mlruns) else ()
        return cls(mlruns=mlruns, tables=csv_record.outputs(mlruns) / "tables", pages=pages)


def documents(results: Results) -> dict[str, str]:
    """The study's files by name."""
    name = results.study.name
    files = {f"{name}.md": _page(results), f"{name}.tex": _tex(results)}
    files[f"{name}.csv"] = tidy(results).to_csv(index=False, float_format="%.4f", lineterminator="\n")
    return files


def table_block(results: Results, *, brief: bool = False) -> str:
    """The study's tables and their notes as Markdown; brief: as study_tables.notes."""
    notes = study_tables.notes(results, brief=brief)
    return "\n\n".join([*map(formats.markdown, study_tables.grids(results)), "\n".join(f"- {note}" for note in notes)])


def verdicts_block(results: Results) -> str:
    """The verdict of each claim and the comparisons that it rests on, as Markdown."""
    judged = judge(results)
    if not judged:
        return "This study compares nothing."
    claims = "\n".join(verdict_tables.overall_lines(overall(judged)))
    return "\n\n".join(
        [claims, formats.markdown(verdict_tables.verdict_grid(judged)), verdict_tables.how_judged(judged)]
    )


def studies_for(names: Sequence[str], scales: Sequence[str]) -> list[Study]:
    """The chosen studies at each scale; quickstart has one scale of its own."""
    found = [study for scale in scales for study in catalogue.choose_studies(list(names) or ["all"], scale)]
    return list({(study.scale.name, study.name): study for study in found}.values())


def generated(studies: Sequence[Study], recorded: Record, *, tables: Path) -> dict[Path, str]:
    """Every file that the studies give."""
    return {
        tables / study.scale.name / name: text
        for study in studies
        for name, text in documents(recorded.of(study)).items()
    }


def filled(report: str, recorded: Record) -> str:
    """The page with every block replaced by what the record and the benchmarks' figures give."""
    if len(OPENING.findall(report)) != len(BLOCK.findall(report)):
        raise ValueError(
            "README.md or REPORT.md: a block is not `<!-- table STUDY SCALE -->` to `<!-- end -->`; "
            "opened or named wrongly"
        )

    def fill(match: re.Match[str]) -> str:
        head, kind, name, scale, end = match.groups()
        if kind in WHOLE:  # of no single study
            return f"{head}{WHOLE[kind](name, scale, recorded)}\n{end}"
        results = recorded.of(catalogue.single(name, scale))
        if kind == "estimates":
            return f"{head}{estimates_block(results, recorded.pairs(scale))}\n{end}"
        return f"{head}{table_block(results, brief=True) if kind == 'table' else verdicts_block(results)}\n{end}"

    return BLOCK.sub(fill, report)


WHOLE: dict[str, Callable[[str, str, Record], str]] = {
    "audit": lambda name, scale, recorded: audit_block(scale),
    "benchmarks": lambda name, device, recorded: benchmark_tables.block(name, device),
    "claims": lambda name, scale, recorded: report_blocks.claims_block(
        map(recorded.of, catalogue.choose_studies([name], scale))
    ),
    "decided": lambda name, scale, recorded: report_blocks.decided_block(
        map(recorded.of, catalogue.choose_studies([name], scale))
    ),
    "headline": lambda name, scale, recorded: report_blocks.headline_block(
        map(recorded.of, catalogue.choose_studies([name], scale))
    ),
    "power": lambda name, scale, recorded: report_blocks.power_block(
        map(recorded.of, catalogue.choose_studies([name], scale))
    ),
    "published": lambda name, scale, recorded: report_blocks.PUBLISHED[name](),
    "searches": lambda name, scale, recorded: searches_block(recorded.searches(scale), scale),
    "runs": lambda name, scale, recorded: report_blocks.runs_block(
        catalogue.choose_studies([name], scale), recorded.results(scale)
    ),
}


def make(names: Sequence[str] = (), *, scale: str = "", check: bool = False, places: Places) -> list[str]:
    """Write the tables and report blocks, or with `check` only compare; returns a line for each difference found.

    Without a scale: small, and every other scale that has lines in results.csv. Stale files count, and are removed,
    only where all studies are made. Quickstart is no part of the report.
    """
    recorded = Record(places.mlruns)
    scales = [scale] if scale else recorded_scales(recorded.results("small"))
    wanted = generated(studies_for(names, scales), recorded, tables=places.tables)
    extra = []
    if not names:
        wanted |= _undeclared_pages(scales, recorded, places.tables)
        folders = [places.tables / scale] if scale else committed_folders(places.tables)
        extra = stale(folders, wanted)
    for page in places.pages if list(names) != ["quickstart"] else ():
        wanted[page] = filled(read_text(page), recorded)
    found = differences(wanted) + [f"{path}: stale, no study gives it" for path in extra]
    if not check:
        for path, text in wanted.items():
            if not path.is_file() or read_text(path) != text:
                atomic_write(path, text)
        if not names:
            _write_pages(scales, recorded, places)
        for path in extra:
            path.unlink()
        Manifest(places.tables.parent).accept(path for path in [*wanted, *extra] if path not in places.pages)
    return found


def check_all(names: Sequence[str], scale: str, places: Places) -> list[str]:
    """Return a line for each file that is not as it was written, or that the record does not give."""
    scale_of_record = "quickstart" if list(names) == ["quickstart"] else scale
    by_path = altered(csv_record.folder_for(scale_of_record, places.mlruns), places.tables.parent)
    try:
        found = make(names, scale=scale, check=True, places=places)
    except ChangedFileError as error:
        found = [f"tables and report are not compared. {error}"]
    told = [
        f"{path}: {what}" for path, what in by_path.items() if not any(line.startswith(f"{path}:") for line in found)
    ]
    return told + found


def _undeclared_pages(scales: Sequence[str], recorded: Record, tables: Path) -> dict[Path, str]:
    pages = {
        tables / scale / "undeclared-runs.md": undeclared_page(
            scale, catalogue.choose_studies(["all"], scale), recorded.runs(scale), recorded.results(scale)
        )
        for scale in scales
    }
    return {path: text for path, text in pages.items() if text}


def _write_pages(scales: Sequence[str], recorded: Record, places: Places) -> None:
    """A page of everything, with the figures as they are; it is neither compared nor committed."""
    for scale in scales:
        found = [recorded.of(study) for study in catalogue.choose_studies(["all"], scale)]
        figures = places.tables.with_name("figures") / scale
        atomic_write(places.tables.with_name(f"{scale}.html"), html_page.page(SCALES[scale], found, figures))


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
        studies: studies, papers or `quickstart`; all but quickstart if none is named.
        scale: the size; small and every recorded one if not given.
        check: write nothing, list what differs from the record or from SHA256SUMS, and fail if anything does.
        mlruns: the folder of the record.
    """
    places = Places.of(mlruns)
    if check:
        found = check_all(studies, scale, places)
        print("\n".join([*found, f"{len(found)} differences from the record"]))
        return 1 if found else 0
    found = make(studies, scale=scale, places=places)
    print(f"{len(found)} files changed under {places.tables}")
    return 0


def command() -> int:
    """The exit code of the command line."""
    return tyro.cli(main)


def _page(results: Results) -> str:
    study = results.study
    parts = [f"# {study.name}, scale {study.scale.name}", table_block(results), "## Verdicts", verdicts_block(results)]
    return "\n\n".join(parts) + "\n"


def _tex(results: Results) -> str:
    study, judged = results.study, judge(results)
    pages = [(grid, study_tables.notes(results)) for grid in study_tables.grids(results)]
    if judged:
        pages.append((verdict_tables.verdict_grid(judged), [verdict_tables.how_judged(judged)]))
    tables = []
    for i, (grid, notes) in enumerate(pages, 1):
        caption = f"{study.source}, scale {study.scale.name}. {grid.title or study.question}"
        tables.append(formats.latex(grid, label=f"{study.name}-{study.scale.name}-{i}", caption=caption, notes=notes))
    return "\n\n".join(tables) + "\n"


def recorded_scales(frame: pd.DataFrame) -> list[str]:
    recorded = set(frame["scale"].dropna())
    return [name for name in SCALES if name == "small" or (name in recorded and name != "quickstart")]


if __name__ == "__main__":
    run_command(command)
