"""The plan's verdict on every claim: by a contrast of means or, if none decides the claim, by its own test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from analysis.cells import Results
from analysis.verdicts.estimates import measure, supports
from analysis.verdicts.looks import blocked_families, first_seeds, judge
from analysis.verdicts.verdict import NOT_RUN, NOT_TESTABLE, Verdict
from experiments.plan.plan_orders import FAMILY_OF
from experiments.schema.contrasts import EXPLORATORY, MEAN, ONE_LOOK, PRIMARY, Contrast, looks_at
from experiments.schema.hypotheses import Finding


@dataclass(frozen=True)
class PlanVerdicts:
    """The plan's verdicts at a scale, each computed once, on first use."""

    planned: tuple[Results, ...]

    @cached_property
    def _contrasts(self) -> dict[Contrast, Results]:
        return {c: each for each in self.planned for c in each.study.contrasts if c.role != EXPLORATORY}

    @cached_property
    def contrasts(self) -> tuple[Verdict, ...]:
        """The verdicts on primaries and controls."""
        return judge(self._contrasts)

    @cached_property
    def moderated(self) -> tuple[Verdict, ...]:
        """The same with moderated variances."""
        return judge(self._contrasts, moderated=True)

    @property
    def primaries(self) -> tuple[Verdict, ...]:
        """The verdicts on claims that a contrast decides."""
        return tuple(verdict for verdict in self.contrasts if verdict.contrast.role == PRIMARY)

    @cached_property
    def blocked(self) -> Mapping[str, tuple[str, str]]:
        """The verdict on all claims of a family whose controls failed or are missing, and why, by family."""
        return blocked_families(self.contrasts)

    @cached_property
    def others(self) -> tuple[Verdict, ...]:
        """The verdict on each claim that an order, a trend, a spread, a correlation or a cost decides.

        If a family's controls failed, its claims are not testable; if they are not run, its claims are not run. Claims
        of a family that is only explored at this scale have no verdict. Costs are benchmarks and have no family.
        """
        judged: dict[str, Verdict] = {}
        explored = self._explored_families()
        for results in self.planned:
            for tested in _others_of(results):
                if tested.claim in judged:
                    raise ValueError(f"{results.study.name}: expected one test of claim {tested.claim} in the plan")
                family = FAMILY_OF.get(tested.claim, "")
                if family in explored:
                    continue
                verdict = _judge_at_last_look(results, tested)
                if family in self.blocked and verdict.word != NOT_TESTABLE:
                    verdict = replace(verdict, word=self.blocked[family][0])
                judged[tested.claim] = verdict
        return tuple(judged.values())

    def _explored_families(self) -> set[str]:
        """Return the families whose contrasts, controls included, are all exploratory at this scale."""
        contrasts = [contrast for results in self.planned for contrast in results.study.contrasts]
        return {each.family for each in contrasts if each.family} - {each.family for each in self._contrasts}

    def of_claims(self) -> dict[str, str]:
        """Return the verdict on every claim in words."""
        return {each.tested.claim: each.with_own_test for each in (*self.primaries, *self.others)}


def judge_stage(studies: Iterable[Results], stage: str) -> tuple[Verdict, ...]:
    """Judge a stage of the second plan: all primaries whose names begin with its letter, such as A1, together."""
    return judge(
        {
            contrast: results
            for results in studies
            for contrast in results.study.contrasts
            if contrast.role == ONE_LOOK and contrast.claim.startswith(stage)
        }
    )


def _others_of(results: Results) -> Sequence[Contrast | Finding]:
    contrasts = (contrast for contrast in results.study.contrasts if contrast.kind != MEAN)
    return (*contrasts, *results.study.findings)


def _judge_at_last_look(results: Results, tested: Contrast | Finding) -> Verdict:
    """Judge with the seeds of the last look that is complete in all cells read; before the first, not run yet."""
    cells = [results.cells[place] for place in tested.cells]
    planned = looks_at(results.study.scale.name)
    looks = [n for n in planned if all(len(first_seeds(cell, n)) == min(n, cell.declared_seeds) for cell in cells)]
    if not looks:
        return Verdict(tested=tested, word=NOT_RUN)
    cut = {place: replace(cell, scores=first_seeds(cell, looks[-1])) for place, cell in results.cells.items()}
    verdict = measure(replace(results, cells=cut), tested)
    band = verdict.estimate.interval if verdict.estimate else None
    return replace(verdict, word=supports(tested, band) if band else NOT_TESTABLE)
