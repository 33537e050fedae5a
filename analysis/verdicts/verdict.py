"""A verdict: what is tested, its estimate, and the word that follows from it."""

from dataclasses import dataclass

from analysis.stats.estimate import Estimate
from experiments.schema.contrasts import Contrast
from experiments.schema.hypotheses import Finding

# A planned contrast has one of the first three or last three words; any other claim has one of the last five.
BETTER, WORSE, EQUIVALENT = "better", "worse", "equivalent"
SUPPORTED, CONTRADICTED = "supported", "contradicted"
INCONCLUSIVE, NOT_TESTABLE, NOT_RUN = "inconclusive", "not testable here", "not run yet"
DECIDED = (BETTER, WORSE, EQUIVALENT)
WITHIN = ", by less than the margin"  # added to a verdict of better or worse


def with_size(word: str, estimate: Estimate | None, margin: float | None) -> str:
    """Return a verdict's word, with a note if the estimate of a difference (not its interval) is within the margin."""
    within = estimate is not None and margin is not None and abs(estimate.mean) < margin
    return word + WITHIN if within and word in (BETTER, WORSE) else word


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A contrast or a finding with its estimate; exploratory ones have no word.

    `reason` says why there is no estimate, or why a rule overrules the estimate. `published` is the paper's effect.
    """

    tested: Contrast | Finding
    estimate: Estimate | None = None
    word: str = ""
    reason: str = ""
    published: float | None = None
    difference_p: float | None = None  # corrected by Holm, and in the plan sequential
    equivalence_p: float | None = None  # the same, of equivalence within the margin
    detectable: float | None = None  # with 80 % power at the first step of Holm's correction
    declared: int = 0  # seeds of each row
    own: str = ""  # the verdict of its own test, where its family's controls overrule it

    @property
    def contrast(self) -> Contrast:
        """What is tested, if it is a contrast."""
        assert isinstance(self.tested, Contrast)
        return self.tested

    @property
    def published_inside(self) -> bool | None:
        """Whether the 95 % interval holds the paper's effect; None without an interval or a published effect."""
        return self.estimate.holds(self.published) if self.estimate else None

    @property
    def so_far(self) -> str:
        """The seeds of the last complete look in words, if its rows declare more; otherwise empty."""
        if self.estimate is None or self.estimate.n >= self.declared:
            return ""
        return f"so far, with {self.estimate.n} of {self.declared} seeds"

    @property
    def text(self) -> str:
        """The word, with a note if the difference is smaller than the margin."""
        margin = self.tested.margin if isinstance(self.tested, Contrast) else None
        return with_size(self.word, self.estimate, margin)

    @property
    def with_own_test(self) -> str:
        """The text, with the verdict of its own test where its family's controls overrule it."""
        return f"{self.word}; its own test: {self.own}" if self.own else self.text
