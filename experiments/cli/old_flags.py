"""Name the command that an old flag of sweep.py has become; the flags go with the next release."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise

SEARCH = ("--search", "--trials", "--minutes")
AUDIT = ("--audit", "--rerun", "--audit-seed", "--audit-report")
SHOWN = ("--plan", "--list", "--dry-run", "--by-study")
ESTIMATE = ("--plan", "--gpus", "--price", "--seconds-per-run")


def refuse_old_flags(words: Sequence[str]) -> None:
    """End with 2 and print the new command if one of the words is a flag that sweep.py had."""
    flags = [word.partition("=")[0] for word in words]
    if old := next((flag for flag in flags if flag in (*SEARCH, *AUDIT, *ESTIMATE)), None):
        new = shlex.join(["python", *new_command(old, words)])
        print(f"sweep.py has no {old} any more; the command is now: {new}", file=sys.stderr)
        sys.exit(2)


def new_command(old: str, words: Sequence[str]) -> list[str]:
    """Return the script and the words that do what sweep.py did with these words, one of which is `old`."""
    if old in AUDIT:
        return ["experiments/audit.py", *_audit_words(words)]
    if old in SEARCH:
        listed = ["--list" if word == "--dry-run" else word for word in words]  # both listed the searches
        return ["experiments/search.py", *(word for word in listed if word != "--search")]
    return ["experiments/estimate.py", *(word for word in words if word not in SHOWN)]  # it shows both orders


def _audit_words(words: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--rerun", nargs="+", default=[])
    parser.add_argument("--audit")
    for name in ("seed", "report"):
        parser.add_argument(f"--audit-{name}")
    given, rest = parser.parse_known_args(words)
    count = {"count": given.audit, "seed": given.audit_seed, "report": given.audit_report}
    # All options that are left take one value each, so any other word is a study.
    named = [
        word.startswith("-") or (before.startswith("--") and "=" not in before)
        for before, word in pairwise(["", *rest])
    ]
    others = [
        part for word, option in zip(rest, named, strict=True) for part in ([word] if option else ["--study", word])
    ]
    return [*given.rerun, *(part for name, value in count.items() if value for part in (f"--{name}", value)), *others]
