"""What the papers print for contrasts whose line of the plan has no published effect.

Added on 2026-11-27, after the runs: the plan's lines stay as they were when they were judged. The effects are shown
beside the intervals and enter no verdict.
"""

from functools import cache

from experiments.plan.plan_rankencoder import HEADING, SIMILAR
from experiments.schema.study import Published

LOWER_THRESHOLD = 0.17  # RankEncoder, footnote 3: what filtering dissimilar pairs adds (E8)


@cache
def added_effects() -> dict[str, float]:
    """Return the effects by claim, in the direction of its contrast, in points."""
    student = _value("rankcse_table4", "RankCSE-listNet w/o consistency,infoNCE", column="STS Avg")
    larger_teacher = _value("rankcse_table2", "SimCSE", backbone="BERT-large")
    both, base, large = (
        _value("rankcse_table5", "RankCSE-listNet", f"teacher={teacher}", column="STS Avg")
        for teacher in ("SimCSE-base+SimCSE-large", "SimCSE-base", "SimCSE-large")
    )
    whitened, simcse, two, more_views = (
        _value("whitenedcse_table6", "WhitenedCSE", variant)
        for variant in (
            "WhitenedCSE (SGW, m=3)",
            "SimCSE",
            "SimCSE + SGW (m=2)",
            "SimCSE + multi-positive k=3 (dropout)",
        )
    )
    retrained, ranks = (
        _value("rankencoder_table5", "SimCSE", variant, column=HEADING[SIMILAR])
        for variant in ("retrain (Eq5)", "RankEncoder_E1 (Eq2)")
    )
    effects = {
        "R5": student - larger_teacher,
        "R8": both - (base + large) / 2,
        "W5": whitened + simcse - two - more_views,
        "E2": retrained - ranks,
        "E8": LOWER_THRESHOLD,
    }
    return {claim: round(effect, 4) for claim, effect in effects.items()}


def _value(
    table: str, method: str, variant: str | None = None, *, backbone: str = "BERT-base", column: str = "Avg"
) -> float:
    value = Published(table, backbone, method, variant, {"sts_avg": column}).value("sts_avg")
    if value is None:
        raise ValueError(f"{table}: no {column} of {method}, {variant}")
    return value
