"""Make a comparison's tables: the gains, the settings that its searches found, the spaces."""

from collections.abc import Mapping, Sequence
from functools import cache

from analysis.report.blocks import Record, block
from analysis.report.formats import DASH, Grid, estimate_text, markdown, number
from analysis.verdicts.comparison import Summary, Tuned, recorded_summaries
from experiments.cli.console import counted
from experiments.comparison.comparison import PUBLISHED, Comparison, Settings, settings_text
from experiments.comparison.entrants import tried_text

SHARES, FINAL = "shares in its loss, %", "key of its first final"


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
    ended, every = sum(t.ended for t in summary.tuned), comparison.budget.runs * len(comparison.entrants)
    runs = f"{ended} of {every} runs are recorded; `python experiments/compare.py {name}` runs the rest."
    return comparison_text(
        summary, f"# Comparison {name}, scale {scale}", f"../../figures/{scale}/{name}-", before=(runs,)
    )


def comparison_text(
    summary: Summary, title: str, figures: str = "", before: Sequence[str] = (), after: Sequence[str] = ()
) -> str:
    """Return a comparison as Markdown; `figures` is the prefix of links to figures, if there are any."""
    drawn, took_over = len(summary.tuned) > 1, summary.comparison.transfers
    parts = [
        title,
        setting_text(summary.comparison),
        *before,
        markdown(gains_grid(summary)),
        *([f"![Gains]({figures}forest.png)"] if drawn else ()),
        "## What the searches found",
        *([f"![Expected best dev score after k trials]({figures}curves.png)"] if drawn and not took_over else ()),
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
        f'{counted(tested, "method")}; equivalent means within {comparison.margin:g} points. A gain "found with 80 % '
        'power" is found by four of five such comparisons, given how much the searches differ; a smaller one can be '
        "there and not be found. Core-hours are those of training, also of teachers and bases, which methods may share."
    )


def spaces_grid(summary: Summary) -> Grid:
    """Return a row for each method: the settings that its searches could try."""
    rows = ((each.entrant.name, tried_text(summary.comparison, each.entrant)) for each in summary.tuned)
    return Grid("", ("method", "space"), tuple(rows))


def gains_grid(summary: Summary) -> Grid:
    """Return a row for each method: scores with fresh seeds, gains, verdict, cost."""
    measures = list(summary.comparison.measures)
    heading = ("method", "dev, fresh seeds", *measures, *(f"gain, {name}" for name in measures))
    rows = tuple(_gains_row(summary, each) for each in summary.tuned)
    return Grid("", (*heading, "verdict", "found with 80 % power", "runs", "core-hours"), rows)


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


def _mean(values: Mapping[int, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None
