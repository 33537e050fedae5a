"""Every method's gain over SimCSE: planned, exploratory with the papers' three seeds, and the tables' baselines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analysis.cells import Results
from analysis.stats.contrast_tests import difference
from analysis.stats.estimate import Estimate
from analysis.verdicts.estimates import measure
from analysis.verdicts.verdict import Verdict
from experiments.schema.contrasts import EXPLORATORY, HEADLINES, ONE_LOOK, PRIMARY, Contrast
from experiments.schema.study import Published

PLANNED, OWN, BASELINES = "planned", "exploratory", "baselines"
GROUPS = {PLANNED: "claims of the first plan", OWN: "the papers' rows, one epoch", BASELINES: "baselines of the tables"}
BASE, COLUMN, SIMCSE = "BERT-base", "sts_avg", "SimCSE"
OWN_STUDY, BASELINES_STUDY = "robustness", "baselines"
# Rows of the study `robustness`, and where their paper prints them: table, method, variant, SimCSE's variant.
PRINTED: Mapping[str, tuple[str, str, str, str] | None] = {
    "RankCSE-listNet": ("rankcse_table2", "RankCSE-listNet", "ours", ""),
    "RankCSE-listMLE": ("rankcse_table2", "RankCSE-listMLE", "ours", ""),
    "RankEncoder on SimCSE": ("rankencoder_table4", "SimCSE", "+RankEncoder", "base"),
    "WhitenedCSE": ("whitenedcse_table1", "WhitenedCSE", "", ""),
    "WhitenedCSE, dropout views": None,
    "CompCSE": ("compcse_table1", "SimCSE (w/ comp.)", "", ""),
    "DiffCSE": ("rankcse_table2", "DiffCSE", "", ""),
    "PromptBERT": ("rankencoder_table1", "PromptBERT", "", ""),
    "SNCSE": ("rankencoder_table1", "SNCSE", "", ""),
}
FIRST_ROWS = {  # of PRINTED, by paper
    "RankCSE": "RankCSE-listNet",
    "RankEncoder": "RankEncoder on SimCSE",
    "WhitenedCSE": "WhitenedCSE",
    "CompCSE": "CompCSE",
}


@dataclass(frozen=True, kw_only=True)
class MethodGain:
    """A method's STS average minus SimCSE's; `estimate` is None where nothing is recorded yet."""

    group: str
    method: str
    study: str
    claim: str = ""
    estimate: Estimate | None
    published: float | None


def gains(results: Results) -> tuple[Verdict, ...]:
    """Estimate the study's contrasts that PLAN.md does not judge, in the study's order."""
    return tuple(measure(results, each) for each in results.study.contrasts if each.role in (EXPLORATORY, ONE_LOOK))


def method_gains(studies: Iterable[Results]) -> tuple[MethodGain, ...]:
    """Return the gains that these studies declare, the planned ones first."""
    by_name = {results.study.name: results for results in studies}
    return (*_planned_gains(by_name.values()), *_exploratory_gains(by_name), *_baseline_gains(by_name))


def _planned_gains(studies: Iterable[Results]) -> list[MethodGain]:
    """Return each paper's first claim in the plan, estimated from all seeds recorded so far."""
    papers = {claim: paper for paper, claim in HEADLINES.items()}
    gains_shown = [
        _gain(PLANNED, papers[contrast.claim], results, contrast)
        for results in studies
        for contrast in results.study.contrasts
        if contrast.role == PRIMARY and contrast.claim in papers
    ]
    return sorted(gains_shown, key=lambda gain: list(HEADLINES).index(gain.method))


def _gain(group: str, method: str, results: Results, contrast: Contrast) -> MethodGain:
    found = measure(results, contrast)
    about = {"study": results.study.name, "claim": contrast.claim}
    return MethodGain(group=group, method=method, estimate=found.estimate, published=found.published, **about)


def _exploratory_gains(by_name: Mapping[str, Results]) -> list[MethodGain]:
    """Return the gains in the study of all methods: RankEncoder's seed by seed, the others by Welch's test."""
    results = by_name.get(OWN_STUDY)
    if results is None:
        return []
    base = results.cells[SIMCSE, COLUMN].scores
    gains_shown = []
    for label in PRINTED:
        gains_shown.append(
            MethodGain(
                group=OWN,
                method=label,
                study=OWN_STUDY,
                estimate=difference(results.cells[label, COLUMN].scores, base, paired=label.startswith("RankEncoder")),
                published=printed_gain(label),
            )
        )
    return gains_shown


def printed_gain(row: str) -> float | None:
    """Return the published gain of a row of PRINTED over SimCSE in the same table; None if no paper prints the row."""
    place = PRINTED.get(row)
    if place is None:
        return None
    table, method, variant, of_simcse = place
    ours = Published(table, BASE, method, variant or None).value(COLUMN)
    base = Published(table, BASE, SIMCSE, of_simcse or None).value(COLUMN)
    return None if ours is None or base is None else round(ours - base, 2)


def printed_by_paper() -> dict[str, float]:
    """Return the gain over SimCSE that each of the four papers prints first."""
    gains = {paper: printed_gain(row) for paper, row in FIRST_ROWS.items()}
    return {paper: gain for paper, gain in gains.items() if gain is not None}


def _baseline_gains(by_name: Mapping[str, Results]) -> list[MethodGain]:
    results = by_name.get(BASELINES_STUDY)
    if results is None:
        return []
    return [
        _gain(BASELINES, contrast.plus[0], results, contrast)
        for contrast in results.study.contrasts
        if contrast.minus == (SIMCSE,) and not contrast.plus[0].startswith(f"{SIMCSE},")
    ]
