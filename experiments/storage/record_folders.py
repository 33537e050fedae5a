"""Folders that hold a record: the committed one, one for the user's own study, those of fresh and of short runs."""

from collections.abc import Sequence
from pathlib import Path

MLRUNS = Path(__file__).parents[2] / "mlruns"
FRESH, TRIAL = "fresh", "trial"
RESULTS_OF_OWN = "{}-results"  # next to a study's file


def is_own_study(name: str) -> bool:
    """Return whether a study is the user's own, which is named by its file."""
    return name.endswith(".py")


def folder_of(studies: Sequence[str], mlruns: Path) -> Path:
    """Return the folder of the studies' record; the user's own study has one next to its file, unless one is given."""
    if not any(map(is_own_study, studies)):
        return mlruns
    if len(studies) > 1:
        raise ValueError(
            f"{' '.join(studies)}: a study of your own has a record of its own; run it without other studies"
        )
    path = Path(studies[0]).resolve()
    return path.with_name(RESULTS_OF_OWN.format(path.stem)) if mlruns.resolve() == MLRUNS.resolve() else mlruns
