"""Make the first page of REPORT.md from the record: what was decided, what the testbed sees, a line for each paper."""

from collections.abc import Callable, Iterable

from analysis.cells import Results
from analysis.report import report_blocks
from analysis.report.blocks import block
from analysis.report.findings import Seeds
from analysis.report.formats import DASH, estimate_text, number
from analysis.report.plan_tables import planned_sentence
from analysis.report.reproduction_tables import BASELINE, many_seeds, read_reproductions
from analysis.stats.significance import summary
from analysis.verdicts.gains import gains
from analysis.verdicts.plan import PlanVerdicts
from analysis.verdicts.verdict import BETTER, Verdict
from cse_core.run import Run
from experiments.plan.pilots import SCORING
from experiments.schema.contrasts import NEGATIVE, POSITIVE

Choose = Callable[[str], list[Results]]  # the results of the studies that a name selects
ALL = "all"
ON_TEST_SENTENCES = "SimCSE, the test sets' sentences over SimCSE"  # in the study `baselines`


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
    return f"{estimate_text(control.estimate)} ({detected}; {control.estimate.n} seeds)"


@block("page findings", of=lambda ask: (ask.choose, ask.plan, Seeds.of(ask.record)))
def findings_block(choose: Choose, plan: PlanVerdicts, simcse: Seeds) -> str:
    """Return the findings that need no GPU, a line with numbers for each."""
    lines = [
        _leakage(choose("overlap")[0]),
        f"**Averages.** {len(report_blocks.averages_grid().rows)} printed averages are not the mean of their row; "
        f"{len(report_blocks.copies_grid().rows)} rows repeat values of another backbone; "
        f"{len(report_blocks.mismatches_grid().rows)} rows differ between two papers. "
        "An error that is copied counts each time.",
        _reruns(),
        _test_sentences(plan, choose("baselines")[0]),
        _choosing(simcse),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _leakage(overlap: Results) -> str:
    counts = [
        [overlap.cells[label, f"sts{year}_shared"].scores.values() for year in (12, 13, 14, 15, 16)]
        for label in ("pairs that STS-B dev has too", "pairs that STS-B train has too")
    ]
    if not all(all(cells) for cells in counts):
        return f"**Leakage.** {DASH}: not counted at this scale."
    dev, train = (sum(map(sum, cells)) for cells in counts)
    return (
        f"**Leakage.** {dev:,.0f} test pairs of STS12 to STS16 are also in STS-B's dev set of 1,500, with which all "
        f"four papers choose checkpoints (RankEncoder with SICK-R's too). {train:,.0f} are in its train set."
    )


def _reruns() -> str:
    values = many_seeds(read_reproductions())
    reached = sum(value >= BASELINE for value in values)
    about = summary(values)
    return (
        f"**Re-runs.** Most headline gains are counted from SimCSE's {BASELINE}. This is reached by {reached} of "
        f"{about.n} seeds of a re-implementation (mean {number(about.mean)}, SD {number(about.sd)}), which reaches no "
        "printed score of SimCSE on the three other backbones, so it may be lower for another reason than luck."
    )


def _choosing(simcse: Seeds) -> str:
    five, ten = (number(simcse.gained_by_dev(n), sign=True) for n in (5, 10))
    return (
        f"**Choosing among seeds.** On average the best of five seeds of SimCSE by dev scores {five} points over the "
        f"mean seed on the test sets, and the best of ten {ten}."
    )


def _test_sentences(plan: PlanVerdicts, baselines: Results) -> str:
    """Say how much the plan's controls of scoring, and a baseline, gain from the test sentences."""
    controls = {each.contrast.role: each.estimate for each in plan.contrasts if each.contrast.family == SCORING}
    fitted = [controls.get(role) for role in (POSITIVE, NEGATIVE)]
    trained = [gain.estimate for gain in gains(baselines) if gain.contrast.name == ON_TEST_SENTENCES]
    there, elsewhere, gained = map(estimate_text, (*fitted, *(trained or [None])))
    return (
        f"**Knowing the test sentences**, without labels. Whitening changes SimCSE's score by {there} if fitted on "
        f"them, and by {elsewhere} if fitted on the training sentences. SimCSE trained on the test sentences "
        f"gains {gained} over SimCSE trained on Wikipedia. Other sentences of their kind were not tried."
    )
