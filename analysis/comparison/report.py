"""Write a comparison's table, figures and pages from its record."""

import base64
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from analysis.comparison.summary import Summary, Tuned, recorded_summaries, summarise
from analysis.report.blocks import Record, block
from analysis.report.formats import DASH, Grid, estimate_text, markdown, number
from cse_core.data.atomic_write import atomic_write
from experiments.cli.console import counted
from experiments.comparison.comparison import PUBLISHED, Comparison, Settings, settings_text
from experiments.comparison.entrants import space_text
from experiments.results import csv_record
from experiments.results.run_card import CARD

SHARES, FINAL = "shares in its loss, %", "key of its first final"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #8884; text-align: left; vertical-align: top; }}
img {{ max-width: 100%; background: white; }}
</style></head><body>
{body}
</body></html>
"""


def write_report(comparison: Comparison, mlruns: Path, store: Path, failed: Collection[str] = ()) -> list[str]:
    """Write comparison.md, page.html and the figures; return lines to print: the table of gains and the files' paths.

    The files are in the record's folder; in the project's own record, in comparisons/NAME. `failed` are keys of runs
    that failed just now and are not recorded.
    """
    import matplotlib.pyplot as plt  # lazy: slow import
    from markdown import markdown as html_of  # lazy: slow import

    from analysis.comparison import figures  # lazy: slow import
    from analysis.plots import style  # lazy: slow import

    folder = mlruns / "comparisons" / comparison.name if csv_record.is_project_record(mlruns) else mlruns
    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(comparison, mlruns, failed)
    with plt.rc_context(style.RC):
        images = {name: style.png(figure) for name, figure in figures.comparison_figures(summary).items()}
    for name, content in images.items():
        atomic_write(folder / f"{name}.png", content)
    text = report_text(summary, folder, store)
    atomic_write(folder / "comparison.md", text)
    for name, content in images.items():  # embedded, so that the page is one file to send
        text = text.replace(f"({name}.png)", f"(data:image/png;base64,{base64.b64encode(content).decode()})")
    body = html_of(text, extensions=["tables"])
    atomic_write(folder / "page.html", PAGE.format(title=f"Comparison {comparison.name}", body=body))
    where = f"report: {folder / 'comparison.md'}; the same as one file to send: {folder / 'page.html'}"
    return [*markdown(gains_grid(summary)).splitlines(), where]


def report_text(summary: Summary, folder: Path, store: Path) -> str:
    """Return the report as Markdown, with links from its folder to the store."""
    cards = ("## Model cards", "\n".join(_cards(summary, folder, store)))
    return _text(summary, f"# Comparison {summary.comparison.name}", after=cards)


@cache
def summaries(record: Record, scale: str) -> tuple[Summary, ...]:
    """Return a summary of each declared comparison that a scale's record has."""
    return tuple(recorded_summaries(scale, record.searches(scale), record.mlruns))


@block("comparison", of=lambda ask: (ask.name, summaries(ask.record, ask.scale)))
def comparison_block(name: str, recorded: Sequence[Summary]) -> str:
    """Return a recorded comparison's table of gains as Markdown."""
    found = [markdown(gains_grid(summary)) for summary in recorded if summary.comparison.name == name]
    return found[0] if found else "No run of it is recorded yet."


def comparison_page(summary: Summary) -> str:
    """Return the comparison's page in the folder of the studies' tables, with links to its figures."""
    comparison = summary.comparison
    name, scale = comparison.name, comparison.scale.name
    ended, every = sum(t.ended for t in summary.tuned), comparison.budget.runs * len(summary.tuned)
    runs = (
        f"{ended} of {every} runs of these methods are recorded; `python experiments/compare.py {name}` runs the rest."
    )
    return _text(summary, f"# Comparison {name}, scale {scale}", f"../../figures/{scale}/{name}-", before=(runs,))


def _text(
    summary: Summary, title: str, figures: str = "", before: Sequence[str] = (), after: Sequence[str] = ()
) -> str:
    """Return a comparison as Markdown; `figures` is the prefix of links to figures, if there are any."""
    drawn = len(summary.tuned) > 1
    parts = [
        title,
        setting_text(summary.comparison),
        *before,
        markdown(gains_grid(summary)),
        *([f"![Gains]({figures}forest.png)"] if drawn else ()),
        "## What the searches found",
        *([f"![Expected best dev score after k trials]({figures}curves.png)"] if drawn else ()),
        markdown(settings_grid(summary)),
        "## In what was searched",
        markdown(spaces_grid(summary)),
        *after,
    ]
    return "\n\n".join(parts) + "\n"


def setting_text(comparison: Comparison) -> str:
    """Say how the settings were chosen, and what a gain and a verdict are."""
    budget, tested = comparison.budget, len(comparison.tested) or len(comparison.entrants) - 1
    more = f", the best {budget.promoted} of them with {budget.more_seeds} more seeds" if budget.more_seeds else ""
    return (
        f"Each method has {counted(budget.searches, 'independent search', 'independent searches')} of "
        f"{counted(budget.trials, 'trial')}{more}. {comparison.dev} chooses the settings. A trial that fails can't "
        "win. Each winner and the published settings are then trained with "
        f"{counted(budget.finals, 'fresh seed')}, and only these runs are scored on the test sets. The gain is the "
        "difference of the means over searches, with its 95 % interval (Welch, not corrected), once all finals of both "
        f"methods are there. A verdict is about {next(iter(comparison.measures))}, with Holm's correction over "
        f'{counted(tested, "method")}; equivalent means within {comparison.margin:g} points. "80 % power for" is the '
        "gain that the test would have found with 80 % power, given how much the searches differ; a smaller one can be "
        "there and not be found. Core-hours are those of training, also of teachers and bases, which methods "
        "may share."
    )


def spaces_grid(summary: Summary) -> Grid:
    """Return a row for each method: its search space."""
    return Grid("", ("method", "space"), tuple((t.entrant.name, space_text(t.entrant.space)) for t in summary.tuned))


def gains_grid(summary: Summary) -> Grid:
    """Return a row for each method: scores with fresh seeds, gains, verdict, cost."""
    measures = list(summary.comparison.measures)
    heading = ("method", "dev, fresh seeds", *measures, *(f"gain, {name}" for name in measures))
    rows = tuple(_gains_row(summary, each) for each in summary.tuned)
    return Grid("", (*heading, "verdict", "80 % power for", "runs", "core-hours"), rows)


def _gains_row(summary: Summary, each: Tuned) -> tuple[str, ...]:
    gains = [summary.gains.get((each.entrant.name, name)) for name in summary.comparison.measures]
    shown = [estimate_text(gain.estimate if gain else None) for gain in gains]
    verdict, detectable = each.no_gain or "baseline", "–"
    if gains[0]:
        verdict, detectable = gains[0].verdict, number(gains[0].detectable)
    failed = f" ({each.failed} failed)" if each.failed else ""
    return (
        each.entrant.name,
        number(each.mean(each.dev)),
        *(number(each.mean(each.measures[name])) for name in each.measures),
        *shown,
        verdict,
        detectable,
        f"{each.ended}{failed}",
        f"{each.core_hours:.2f}" if each.ended else "–",
    )


def settings_grid(summary: Summary) -> Grid:
    """Return a row for each search: the settings that won, their scores, and the key of the first final, to export.

    If there are any, a column has the first measure of winners that are scored by ranks, scored by the cosine; another
    has the terms of a loss that are shares, such as the share of steps in which RankEncoder's rank loss is the larger.
    """
    measures = list(summary.comparison.measures)
    cosine = (f"{measures[0]}, by the cosine",) if any(any(each.by_cosine.values()) for each in summary.tuned) else ()
    rows, shares = [], (SHARES,) if any(each.shares for each in summary.tuned) else ()
    for each in summary.tuned:
        for search in (*range(summary.comparison.budget.searches), PUBLISHED):
            settings, chosen = each.winners.get(search, ({}, None))
            name = "published setting" if search == PUBLISHED else f"search {search + 1}"
            scores = [_mean(each.measures[measure].get(search, {})) for measure in measures]
            fresh = _mean(each.dev.get(search, {}))
            text = "–" if not settings else settings_text(_short(settings)).strip("{}").replace('"', "")
            scores += [_mean(each.by_cosine.get(search, {}))] if cosine else []
            shown = [shares_text(each.shares.get(search, {}))] if shares else []
            shown += [each.finals[search][0] if fresh is not None else DASH]
            rows.append((each.entrant.name, name, text, number(chosen), number(fresh), *map(number, scores), *shown))
    header = ("method", "search", "settings", "dev when chosen", "dev, fresh seeds", *measures, *cosine, *shares, FINAL)
    return Grid("", header, tuple(rows))


def shares_text(shares: Mapping[str, float]) -> str:
    """Return the mean shares in percent: `rank_larger 26, chosen 43`."""
    return ", ".join(f"{name} {number(100 * share, digits=0)}" for name, share in shares.items()) or DASH


def _short(settings: Settings) -> dict[str, object]:
    return {name: float(f"{v:.3g}") if isinstance(v, float) else v for name, v in settings.items()}


def _cards(summary: Summary, folder: Path, store: Path) -> Iterator[str]:
    """Yield a line for each method, with a link to the card of its winner with the best dev score when chosen."""
    for each in summary.tuned:
        best = max(each.winners, key=lambda search: each.winners[search][1], default=None)
        finals = () if best is None else each.finals[best]
        keys = [key for key in finals if (store / key / CARD).is_file()]
        if keys and best is not None:
            link = Path(os.path.relpath(store.resolve() / keys[0] / CARD, folder.resolve())).as_posix()
            yield f"- {each.entrant.name}: [{keys[0]}]({link}), one of the finals of search {best + 1}"
        else:
            yield f"- {each.entrant.name}: no checkpoint is here"


def _mean(values: Mapping[int, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None
