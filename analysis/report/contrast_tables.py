"""Show what a study compares: each contrast with its difference, its interval and its seeds."""

from collections.abc import Sequence

from analysis.cells import Results
from analysis.report.blocks import block
from analysis.report.formats import DASH, MINUS, Grid, interval, markdown, number
from analysis.verdicts.estimates import AGREES, FEWEST_BINS
from analysis.verdicts.looks import study_verdicts
from analysis.verdicts.verdict import Verdict
from experiments.schema.columns import column
from experiments.schema.contrasts import BINS, MEAN, PRIMARY, SPREAD, Contrast
from experiments.schema.hypotheses import Cost, Finding, Order, Trend, Untested
from experiments.schema.study import Study

HOW = {
    "paired": "Paired: seed by seed, over seeds that both rows have.",
    "Welch": "Welch: the rows' seeds are independent samples.",
    "one run": "One run: against the score of the run that taught all seeds.",
    "spread": "Spread: ratio of deviations with the F test's interval, which takes the two rows as independent though "
    "runs of one seed share their order of sentences.",
    "bins": f"Bins: a rank correlation's normal approximation for {FEWEST_BINS} bins, as all seeds share the pairs.",
    "order": f"Order: Kendall's tau of the rows' means, with seeds resampled; from {AGREES} two orders count as alike.",
    "trend": "Trend: Spearman's rho of mean gains over columns, normal approximation, as all seeds share the columns.",
    "cost": "Cost: median and quartiles of a benchmark's turns.",
}
EXPLORED = "Intervals are over all recorded seeds, in the column's units, and not corrected for their number."
DECLARED = "Verdicts: of contrasts with a margin, when all seeds are scored; corrected by Holm over these contrasts."


@block("contrasts", of=lambda ask: (ask.results,))
def contrasts_block(results: Results) -> str:
    """Return the study's contrasts as Markdown, and how they were estimated; "" if it has none."""
    return contrasts_text(results.study, study_verdicts(results))


def contrasts_text(study: Study, verdicts: Sequence[Verdict]) -> str:
    """Return the same from the verdicts."""
    parts = []
    if any(contrast.role == PRIMARY for contrast in study.contrasts):
        parts.append("The plan judges this study's contrasts; REPORT.md has the verdicts of scale small.")
    if verdicts:
        parts += [markdown(contrasts_grid(verdicts)), how_estimated(verdicts)]
    return "\n\n".join(parts)


def contrasts_grid(verdicts: Sequence[Verdict]) -> Grid:
    """Return a line for each contrast that no plan judges; with verdicts if a margin was declared."""
    header = ["claim", "contrast", "column", "difference", "95 % interval", "seeds", "by", "published"]
    lines = [[verdict.tested.claim, *_texts(verdict)] for verdict in verdicts]
    if any(verdict.word for verdict in verdicts):
        header += ["margin", "verdict"]
        lines = [[*line, *_verdict_texts(verdict)] for line, verdict in zip(lines, verdicts, strict=True)]
    first = 0 if any(line[0] for line in lines) else 1
    return Grid("", tuple(header[first:]), tuple(tuple(line[first:]) for line in lines))


@block("disjoint", of=lambda ask: (study_verdicts(ask.results),))
def disjoint_grid(verdicts: Sequence[Verdict]) -> Grid:
    """Return a line for each contrast: its difference on all pairs, and on the disjoint ones."""
    lines: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        assert isinstance(verdict.tested, Contrast)
        difference, band = estimate_texts(verdict)
        line = lines.setdefault(contrast_text(verdict.tested), {})
        line |= {verdict.tested.column: f"{difference} {band}", f"seeds {verdict.tested.column}": _texts(verdict)[4]}
    columns = ("sts_avg", "seeds sts_avg", "sts_disjoint_avg", "seeds sts_disjoint_avg")
    rows = tuple((name, *(line.get(each, DASH) for each in columns)) for name, line in lines.items())
    return Grid("", ("contrast", "all pairs", "seeds", "disjoint pairs", "seeds"), rows)


def contrast_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a line to print for each contrast: difference, interval, seeds; with verdicts if a margin was declared."""
    judged = any(verdict.word for verdict in verdicts)
    lines = []
    for verdict in verdicts:
        what, _, difference, between, seeds, *_ = _texts(verdict)
        outcome = f": {_verdict_texts(verdict)[1]}" if judged else ""
        lines.append(f"{what}: {difference} {between}, {seeds} seeds{outcome}")
    return lines


def how_estimated(verdicts: Sequence[Verdict]) -> str:
    """Explain how the estimates were made."""
    kinds = dict.fromkeys(_kind(verdict.tested) for verdict in verdicts)
    declared = [DECLARED] if any(verdict.word for verdict in verdicts) else []
    return " ".join([EXPLORED, *(HOW[kind] for kind in kinds if kind in HOW), *declared])


def contrast_text(contrast: Contrast) -> str:
    """Return the contrast as a sum of rows' labels."""
    parts = []
    for label, weight in contrast.weights.items():
        size = "" if abs(weight) == 1 else f"{abs(weight):g} "
        parts.append(f"{MINUS if weight < 0 else '+'} {size}{label}")
    return " ".join(parts).removeprefix("+ ")


def tested_texts(tested: Contrast | Finding) -> tuple[str, str]:
    """Return what is tested, and in which column."""
    match tested:
        case Order():
            other = f"{column(tested.other).heading}{tested.suffix}"
            return f"order of {len(tested.labels)} rows, and by {other}", column(tested.column).heading
        case Trend():
            gain = f"gain of {tested.better} over {tested.worse}"
            return f"{gain}, by what {tested.row} has", f"{len(tested.over)} columns"
        case Cost():
            return f"{tested.what}{f', at most {tested.times:g}' if tested.at_most else ''}", "times as long"
        case Untested():
            return tested.what, DASH
    heading = column(tested.column).heading
    if tested.kind == SPREAD:
        first, second = tested.rows
        return f"sd of {first} / sd of {second}", heading
    seed = "" if tested.teacher_seed is None else f", seed {tested.teacher_seed}"
    return contrast_text(tested) + seed, heading


def estimate_texts(verdict: Verdict) -> tuple[str, str]:
    """Return the texts of estimate and interval."""
    estimate, tested = verdict.estimate, verdict.tested
    if estimate is None:
        return DASH, DASH
    if not isinstance(tested, Contrast) or tested.kind in (SPREAD, BINS):
        return number(estimate.value), interval(estimate.interval)
    sign, digits = bool(tested.minus), _digits(tested)
    return number(estimate.value, sign=sign, digits=digits), interval(estimate.interval, sign=sign, digits=digits)


def _digits(tested: Contrast | Finding) -> int:
    return max(2, column(tested.column).digits or 2) if isinstance(tested, Contrast) and tested.kind == MEAN else 2


def _texts(verdict: Verdict) -> tuple[str, ...]:
    tested, kind = verdict.tested, _kind(verdict.tested)
    what, where = tested_texts(tested)
    if isinstance(tested, Untested):
        what = f"{what} (not tested: {tested.why})"
    seeds = verdict.estimate.seeds if verdict.estimate else "0"
    published = number(verdict.published, sign=kind in ("paired", "Welch", "one run"), digits=_digits(tested))
    return (what, where, *estimate_texts(verdict), seeds, kind, published)


def _verdict_texts(verdict: Verdict) -> tuple[str, str]:
    margin = verdict.tested.margin if isinstance(verdict.tested, Contrast) else None
    words = ": ".join(filter(None, (verdict.text, verdict.reason if verdict.word else "")))
    return DASH if margin is None else f"{margin:g}", words or DASH


def _kind(tested: Contrast | Finding) -> str:
    if isinstance(tested, Untested):
        return DASH
    if not isinstance(tested, Contrast):
        return type(tested).__name__.lower()
    if tested.kind in (SPREAD, BINS):
        return tested.kind
    if not tested.minus:
        return "seeds"
    return "one run" if tested.teacher_seed is not None else "paired" if tested.paired else "Welch"
