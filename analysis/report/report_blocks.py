"""The blocks of REPORT.md that are of no single study: all claims, the published tables as they are, the cost."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import median

import pandas as pd

from analysis.cells import Results
from analysis.report.formats import MINUS, Grid, markdown
from analysis.report.verdict_tables import outcome, verdict_grid
from analysis.stats import significance
from analysis.verdicts.claims import VERDICTS, count_verdicts, judge_claims
from analysis.verdicts.comparisons import Verdict, judge
from cse_core.run import Run
from experiments.execution.job import Job
from experiments.execution.plan import Done, jobs_of, missing, scored_cells
from experiments.execution.schedule_estimate import gpu_hours
from experiments.schema.columns import PUBLISHED_NAMES, STS, TRANSFER
from experiments.schema.hypotheses import Comparison
from experiments.schema.study import PUBLISHED_FOLDER, Study, published_lines

SEVEN = 7
UNDRAWN = ("table", "examples")  # views of studies that have no figure
SEVENS = {PUBLISHED_NAMES[task] for task in (*STS, *TRANSFER)}


def claims_block(found: Iterable[Results]) -> str:
    """Every claim with its verdict, as Markdown; its studies lead to the tables with figure, interval and seeds."""
    return markdown(claims_grid(found, called=lambda study: _links(study)[0]))


def claims_grid(found: Iterable[Results], called: Callable[[Study], str] = lambda study: study.name) -> Grid:
    """Every claim with its verdict over all studies that judge it, and which these are."""
    rows = []
    for claim in judge_claims(found):
        parts = [
            f"{one.reading}: {outcome(one, brief=True)}" if one.reading else outcome(one, brief=True)
            for one in claim.verdicts
        ]
        verdict = "; ".join(parts) or "**not tested** (no study)"
        rows.append((claim.id, claim.text, verdict, ", ".join(map(called, claim.studies))))
    return Grid("", ("id", "claim", "verdict", "studies"), tuple(rows))


def headline_block(found: Iterable[Results]) -> str:
    """One sentence: how many claims have which verdict. A claim of several readings counts by its strongest."""
    judged = judge_claims(found)
    counts = count_verdicts(judged)
    return f"{len(judged)} claims: {', '.join(f'{counts[verdict]} {verdict}' for verdict in VERDICTS)}."


def decided_block(found: Iterable[Results]) -> str:
    """Every comparison that supports or contradicts its claim, in each table that has it."""
    rows: list[tuple[str, ...]] = []
    for results in found:
        judged = judge(results)
        for one, line in zip(judged, verdict_grid(judged).rows, strict=True):
            if one.verdict in ("supported", "contradicted"):
                rows.append((*line[:6], line[7], one.verdict, results.study.name))
    rows.sort(key=lambda row: (row[0][0], int(row[0][1:])))
    header = ("claim", f"A {MINUS} B", "column", "difference", "95 % interval", "Holm p", "seeds", "verdict", "study")
    return markdown(Grid("", header, tuple(rows)))


def power_block(found: Iterable[Results]) -> str:
    """Of tested differences that a paper prints as well, how many are printed as large as could be detected here."""
    rows = []
    for results in found:
        judged = [one for one in judge(results) if one.p is not None]
        pairs = [
            (abs(one.published), least)
            for one in judged
            if one.published is not None and isinstance(one.estimate, significance.Paired) and _kind_of(one) == "mean"
            if (least := significance.detectable(one.estimate, len(judged))) is not None
        ]
        if pairs:
            large = sum(published >= least for published, least in pairs)
            middle = median(least for _, least in pairs)
            rows.append((results.study.name, str(len(pairs)), str(large), f"{middle:.2f}"))
    header = ("study", "tested differences that are published", "as large as detectable here", "detectable, median")
    total = [str(sum(int(row[i]) for row in rows)) for i in (1, 2)]
    return markdown(Grid("", header, (*rows, ("together", *total, ""))))


def _kind_of(one: Verdict) -> str:
    return one.comparison.kind if isinstance(one.comparison, Comparison) else ""


def averages_block() -> str:
    """Published averages that are not the mean of their row: off by more than the rounding of either allows."""
    rows = []
    for table in _tables():
        for row, lines in _rows(table).items():
            tasks = [float(line["value"]) for task, line in lines.items() if task in SEVENS]
            if "Avg" not in lines or len(tasks) != SEVEN:
                continue
            printed, mean = lines["Avg"]["value"], sum(tasks) / SEVEN
            if abs(mean - float(printed)) > 10.0 ** -len(printed.partition(".")[2]):
                rows.append((_title(table), *row[:2], f"{mean:.3f}", printed))
    return markdown(Grid("", ("table", "backbone", "method", "mean of seven", "printed"), tuple(rows)))


def copies_block() -> str:
    """Rows of one method on two backbones that share two values or more, digit for digit; one could be chance."""
    rows = []
    for table in _tables():
        for (a, first), (b, second) in combinations(_rows(table).items(), 2):
            same = [t for t in first if t in second and t in SEVENS and first[t]["value"] == second[t]["value"]]
            if a[1:] == b[1:] and a[0] != b[0] and len(same) > 1:
                shared = ", ".join(f"{task} {first[task]['value']}" for task in same)
                rows.append((_title(table), a[1], f"{a[0]}, {b[0]}", shared))
    return markdown(Grid("", ("table", "method", "backbones", "the same"), tuple(rows)))


def mismatches_block() -> str:
    """Baselines that two papers took from elsewhere and print differently."""
    rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one, other in combinations(_tables(), 2):
        mine, theirs = _rows(one), _rows(other)
        for row in mine.keys() & theirs.keys() if _kind(one) == _kind(other) else ():
            for task, line in mine[row].items() if row[2] == "imported" else ():
                if task in theirs[row] and theirs[row][task]["value"] != line["value"]:
                    place = (row[1], row[0], _title(one), _title(other))
                    rows[place].append(f"{task} {line['value']} / {theirs[row][task]['value']}")
    lines = tuple((*place, ", ".join(values)) for place, values in sorted(rows.items()))
    return markdown(Grid("", ("method", "backbone", "first", "second", "first / second"), lines))


def runs_block(studies: Sequence[Study], results: pd.DataFrame) -> str:
    """Per study: rows, unique runs with those they need, how many are in the record in full, hours of training.

    Hours are those that the record measured, at the published scale estimates for one GPU.
    """
    rows, every, done = [], {}, scored_cells(results)
    seconds = results.groupby("key")["seconds"].first()
    header, hours = "hours trained", lambda run: seconds.get(run.key, 0.0) / 3600
    if studies[0].scale.name == "paper":
        header, hours = "GPU-hours, estimated", gpu_hours
    for study in studies:
        jobs = jobs_of([study])
        every |= jobs
        claims = dict.fromkeys(one.claim for one in (*study.comparisons, *study.findings))
        rows.append((*_links(study), " ".join(claims), str(len(study.rows)), *_counts(jobs, done, hours)))
    rows.append(("together", "", "", "", *_counts(every, done, hours)))
    return markdown(Grid("", ("study", "source", "claims", "rows", "runs", "recorded", header), tuple(rows)))


def _links(study: Study) -> tuple[str, str]:
    """A study's name, which leads to its table, and its source, which leads to its figure."""
    scale = study.scale.name
    if scale == "paper":  # declared, not run
        return study.name, study.source
    drawn = study.view not in UNDRAWN
    source = f"[{study.source}](analysis/figures/{scale}/{study.name}.png)" if drawn else study.source
    return f"[{study.name}](analysis/tables/{scale}/{study.name}.md)", source


def _counts(jobs: Mapping[str, Job], done: Done, hours: Callable[[Run], float]) -> tuple[str, str, str]:
    recorded = sum(missing(job, done) is None for job in jobs.values())
    spent = sum(hours(job.encoder) for job in jobs.values() if isinstance(job.encoder, Run))
    return str(len(jobs)), str(recorded), f"{spent:.1f}"


def _tables() -> list[str]:
    return [path.stem for path in sorted(PUBLISHED_FOLDER.glob("*.csv")) if not path.stem.startswith("_")]


def _rows(table: str) -> dict[tuple[str, str, str], dict[str, dict[str, str]]]:
    """Lines by task of each row: backbone, method, variant."""
    found: dict[tuple[str, str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    for line in published_lines(table):
        found[line["backbone"], line["method"], line["variant"]][line["task"]] = line
    return found


def _kind(table: str) -> bool:
    return any(line["task"] == "MR" for line in published_lines(table))


def _title(table: str) -> str:
    line = published_lines(table)[0]
    return f"{line['paper']}, {line['table'].replace('Table', 'Table ')}"


PUBLISHED = {"averages": averages_block, "copies": copies_block, "mismatches": mismatches_block}
