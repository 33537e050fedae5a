"""Make the first page of REPORT.md from the record: what was decided, what the testbed sees, a line for each paper."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from analysis.cells import Results
from analysis.report import report_blocks
from analysis.report.blocks import block
from analysis.report.formats import DASH, interval, number
from analysis.report.plan_tables import planned_sentence
from analysis.report.reproduction_tables import BASELINE, many_seeds, read_reproductions
from analysis.stats.estimate import Estimate
from analysis.stats.significance import ALPHA, summary
from analysis.verdicts.estimates import measure
from analysis.verdicts.gains import gains, method_gains
from analysis.verdicts.plan import PlanVerdicts
from analysis.verdicts.verdict import BETTER, Verdict
from cse_core.run import Run
from experiments.plan.pilots import SCORING
from experiments.schema.contrasts import POSITIVE

Choose = Callable[[str], list[Results]]  # the results of the studies of a name
ALL = "all"
ON_TEST_SENTENCES = "SimCSE, the test sets' sentences over SimCSE"  # of the study of the baselines


@block("page summary", of=lambda ask: (ask.choose, ask.plan))
def summary_block(choose: Choose, plan: PlanVerdicts) -> str:
    """Return what was decided, at which scale, and what the positive controls showed."""
    results = choose(ALL)
    scale = results[0].study.scale
    counted = [*results, *plan.planned, *choose("pilots"), *choose("pilots-transfer")]
    lines = [
        f"**Verdicts.** {planned_sentence(plan)}",
        f"**Scale.** `{scale.name}`: {scale.title}; {_count_trained(counted)} trained encoders with scores. Every "
        'score is our own measurement, unless a table says "published".',
        f"**What the testbed sees.** {_controls_sentence(plan.contrasts)}",
        "**The papers' own tables.** Three seeds, after one epoch: differences with their intervals, and no verdict.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _count_trained(results: Iterable[Results]) -> int:
    keys: set[str] = set()
    for each in results:
        recorded = set(each.lines["key"].tolist())
        runs = (row for row in each.study.rows if isinstance(row.encoder, Run))
        keys |= {key for row in runs for key in row.keys().values() if key in recorded}
    return len(keys)


def _controls_sentence(planned: Iterable[Verdict]) -> str:
    """Say of each family's positive control what it gains, and whether the plan's test detects it."""
    controls = [verdict for verdict in planned if verdict.contrast.role == POSITIVE]
    parts = [f"{control.contrast.family} {_control_text(control)}" for control in controls]
    return f"Gains of treatments that must help, and whether the plan's test detects them: {'; '.join(parts)}."


def _control_text(control: Verdict) -> str:
    if control.estimate is None:
        return "not run"
    detected = "detected" if control.word == BETTER else "not detected"
    return f"{_mean_text(control.estimate)} ({detected}; {control.estimate.n} seeds)"


def _mean_text(estimate: Estimate) -> str:
    return f"{number(estimate.mean, sign=True)} {interval(estimate.interval, sign=True)}"


@block("page findings", of=lambda ask: (ask.choose,))
def findings_block(choose: Choose) -> str:
    """Return what needs no GPU, a line and a number each."""
    lines = [
        _leakage(choose("overlap")[0]),
        f"**Averages.** {_count_rows(report_blocks.averages_block())} printed averages are not the mean of their row; "
        f"{_count_rows(report_blocks.copies_block())} rows repeat values of another backbone; "
        f"{_count_rows(report_blocks.mismatches_block())} rows differ between two papers.",
        _released_code_line(choose("robustness")[0]),
        _reruns(),
        _test_sentences(choose("pilots"), choose("baselines")[0]),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _count_rows(table: str) -> int:
    return len(table.splitlines()) - 2


def _leakage(overlap: Results) -> str:
    counts = [
        [overlap.cells[label, f"sts{year}_shared"].scores.values() for year in (12, 13, 14, 15, 16)]
        for label in ("pairs that STS-B dev has too", "pairs that STS-B train has too")
    ]
    if not all(all(cells) for cells in counts):
        return f"**Leakage.** {DASH}: not counted at this scale."
    dev, train = (sum(map(sum, cells)) for cells in counts)
    return (
        f"**Leakage.** {dev:,.0f} test pairs of STS12 to STS16 stand in STS-B's dev set of 1,500, by which "
        f"all four papers choose checkpoints (RankEncoder by SICK-R's too); {train:,.0f} stand in its train set."
    )


def _released_code_line(robustness: Results) -> str:
    parts = [
        f"{gain.contrast.name.replace(' over ', ' less ')} {_mean_text(gain.estimate)} points"
        for gain in gains(robustness)
        if gain.estimate and "released code" in gain.contrast.name
    ]
    return (
        "**Released code** (RankCSE's is the community's) departs from each paper's text. What that is worth here: "
        f"{'; '.join(parts) or DASH}."
    )


def _reruns() -> str:
    values = many_seeds(read_reproductions())
    reached = sum(value >= BASELINE for value in values)
    about = summary(values)
    return (
        f"**Re-runs.** SimCSE's {BASELINE}, which most headline gains are counted from, is reached by {reached} of "
        f"{about.n} seeds of a re-implementation (mean {number(about.mean)}, SD {number(about.sd)})."
    )


def _test_sentences(pilots: Sequence[Results], baselines: Results) -> str:
    contrasts = [(results, contrast) for results in pilots for contrast in results.study.contrasts]
    shown = [measure(*each) for each in contrasts if each[1].family == SCORING][:2]
    parts = [
        f"{verdict.contrast.name.partition(' over ')[0].rpartition(',')[0]}: {_mean_text(verdict.estimate)}"
        for verdict in shown
        if verdict.estimate
    ]
    trained = [gain.estimate for gain in gains(baselines) if gain.contrast.name == ON_TEST_SENTENCES]
    gained = "; ".join(_mean_text(each) for each in trained if each)
    return (
        "**Knowing the test sentences**, without labels, beside the same encoder's cosine: "
        f"{'; '.join(parts) or DASH}. SimCSE trained on them, over SimCSE trained on Wikipedia: {gained or DASH}."
    )


@block("page limits", of=lambda ask: (ask.choose,))
def limits_block(choose: Choose) -> str:
    """Return what the numbers can't say, as a quoted box."""
    measured = method_gains(choose("robustness"))
    least = sorted(least for gain in measured if gain.estimate and (least := gain.estimate.detectable(ALPHA)))
    text = f"{median(least):.1f} points in the median ({least[0]:.1f} to {least[-1]:.1f})" if least else DASH
    inside = [gain.published_inside for gain in measured if gain.published_inside is not None]
    lines = [
        "**What these numbers can't say.**",
        "- Whether a published number can be repeated: nothing here was trained at the published scale.",
        f"- Whether a method helps a little: with three seeds a gain over SimCSE of {text} is detected with 80 % "
        "power, one test at a time. The control of whitening and composition is a collapse without dropout: that it is "
        "seen says nothing about small gains.",
        f"- Why a gain is absent: {inside.count(False)} of {len(inside)} intervals over SimCSE exclude what the papers "
        "print, at a scale at which some of the causes that the papers name are absent too.",
        "- What other pairs of sentences would show: intervals are over seeds, and all seeds share their test pairs; "
        "for some contrasts both are drawn anew ([table](#the-plans-verdicts)).",
        "- What other teachers would give: RankCSE's planned students (but for R5) share two teachers, trained for one "
        "epoch, and are compared with SimCSE of eight.",
    ]
    return "\n".join(f"> {line}" for line in lines)
