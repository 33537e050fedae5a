"""The claims of CLAIMS.md."""

import re
from functools import cache
from pathlib import Path

CLAIMS = Path(__file__).parents[2] / "experiments/CLAIMS.md"


@cache
def claims() -> dict[str, str]:
    """Return the claims of CLAIMS.md by id."""
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| .+ \|$", CLAIMS.read_text(encoding="utf-8"), re.MULTILINE))
