"""The claims of CLAIMS.md."""

import re
from functools import cache
from pathlib import Path

PAPERS = {"R": "RankCSE", "E": "RankEncoder", "W": "WhitenedCSE", "C": "CompCSE", "S": "this study's own"}  # by id
CLAIMS = Path(__file__).parents[2] / "experiments/CLAIMS.md"


@cache
def claims() -> dict[str, str]:
    """Return the claims of CLAIMS.md by id."""
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| .+ \|$", CLAIMS.read_text(encoding="utf-8"), re.MULTILINE))
