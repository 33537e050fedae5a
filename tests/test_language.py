"""Docstrings, comments and messages have none of a few phrases that have plainer words, and headings are short."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = re.compile(  # each with what to say in its place
    r"""\b( told | tells? | telling          # warn, report; "tell apart" is distinguish
    | whom | whoever | nobody | patiently
    | wants? | wanted                       # require(s), must be, expected
    | (go|goes|going|gone|went)\ on         # resume, continue
    | (is|are|was|were|be)\ away            # unreachable
    | be\ had                               # available
    | so\ (many|much)\ (?!as\b|that\b)      # the number given
    | (stand|stands|stood)\ for             # mean, represent
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
WORD_LISTS = {"synthetic.py", "clauses.py", "negation.py", "word_lists.py", "dataset_facts.py"}  # English as data
RECORDED = {"wanted"}  # a column of measured/ratios.csv


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Every string and comment of a file, with its line."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in RECORDED:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_prose_has_none_of_these_phrases() -> None:
    files = [
        path
        for package in ("cse_core", "experiments", "analysis")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "assets" not in path.parts and path.name not in WORD_LISTS
    ]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match.group()}"
        for path in files
        for line, text in prose(path)
        for match in PHRASES.finditer(" ".join(text.split()))
    ]
    assert found == []
    assert PHRASES.search("pooling 'mask' wants a template")


def test_no_heading_has_taken_in_the_paragraph_below_it() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*.md")]
    assert len(pages) > 10
    for page in pages:
        headings = re.findall(r"^#+ .*", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
        assert headings, page
        assert max(map(len, headings)) < 80, page
