"""The plan's verdicts on claims that no contrast of means decides: orders, trends, spreads and costs."""

from collections import defaultdict
from collections.abc import Iterable

from analysis.cells import Results
from analysis.verdicts.claims import overall
from analysis.verdicts.comparisons import Verdict, judge
from analysis.verdicts.primaries import INCONCLUSIVE, NOT_RUN, NOT_TESTABLE
from cse_core.run import Run
from experiments.schema.contrasts import LOOKS
from experiments.schema.hypotheses import Untested

SUPPORTED, CONTRADICTED = "supported", "contradicted"
WORDS = {SUPPORTED: SUPPORTED, CONTRADICTED: CONTRADICTED, "undecided": INCONCLUSIVE}


def judge_uncontrasted(planned: Iterable[Results]) -> dict[str, str]:
    """Return the verdict on each claim that the plan's studies judge by a comparison or a finding."""
    judged: dict[str, list[Verdict]] = defaultdict(list)
    not_run: set[str] = set()
    for results in planned:
        for verdict in judge(results):
            claim = verdict.comparison.claim
            judged[claim].append(verdict)
            if not isinstance(verdict.comparison, Untested) and not _is_run(results):
                not_run.add(claim)
    words = {claim: WORDS.get(overall(verdicts)[0].verdict, NOT_TESTABLE) for claim, verdicts in judged.items()}
    return words | dict.fromkeys(not_run, NOT_RUN)


def _is_run(results: Results) -> bool:
    """Whether each trained row of a study has scores of the first look's seeds, in the column that has most."""
    for row in results.study.rows:
        scored = max(len(cell.scores) for cell in results.of(row))
        if isinstance(row.encoder, Run) and scored < min(LOOKS[0], len(row.seeds)):
            return False
    return True
