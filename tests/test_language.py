"""Names and prose are plain English: the words of the field, and none that a reader would have to learn here."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cse_core", "experiments", "analysis")
FILES = [
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if "assets" not in path.parts  # how the backbones were made: a record, left as it ran
]
TESTS = [  # without this file, which lists the phrases, and one that has a recorded column's name
    path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if path.name not in ("test_language.py", "measure.py")
]
PHRASES = re.compile(  # each with what to say in its place
    r"""\b( told | tells? | telling          # warn, report; "tell apart" is distinguish
    | whom | whoever | nobody | patiently
    | wants? | wanted                       # require(s), must be, expected
    | (go|goes|going|gone|went)\ on         # resume, continue
    | (is|are|was|were|be)\ away            # unreachable
    | be\ had                               # available
    | so\ (many|much)\ (?!as\b|that\b)      # the number given
    | (stand|stands|stood)\ for             # mean, represent
    | alone                                 # only
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
OPENERS = re.compile(r"(^|[.?:] )(Of|So that)\b")  # no sentence begins with them


def words(text: str) -> set[str]:
    return set(text.split())


# A summary is an imperative sentence, a noun phrase or a question; these begin none of the three.
NO_FIRST_WORDS = words(
    "of so that as by in at on to up down if when where whose from with under for it its they returns makes gives "
    "raises takes writes reads refuses says keeps holds computes loads saves puts gets"
)
NO_NAMES = words("told tell wants wanted whom away there found known mine theirs own one some untold")
PARTICIPLES = words(  # the irregular ones; others end in -ed
    "based begun bought bound brought built chosen come done drawn driven fed fit given gone grown heard held kept "
    "known laid led left lent lost made meant met paid put run said seen sent shown sold sorted spent spoken "
    "stood taken taught thought thrown told understood unread won worn written"
) - {"fit", "put", "run", "come"}  # verbs too
# Names that other files, recorded runs or their readers depend on, and data.
ALLOWED_NAMES = {
    "nested": "the runs inside a run or a search: used by every package",
    "substituted": "a property of methods, which results name: what replaces a piece of the paper",
}
RECORDED = {  # labels of runs, a column of measured/ratios.csv
    " alone",
    "cons alone",
    "consistency alone",
    "first half alone",
    "ListNet alone, teachers of its seed",
    "wanted",
}
WORD_LISTS = {  # their strings are English to be parsed or written, not messages
    "cse_core/data/synthetic.py",
    "cse_core/text/clauses.py",
    "cse_core/text/negation.py",
    "cse_core/text/word_lists.py",
    "cse_core/evaluation/dataset_facts.py",
}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def docstrings(name: str) -> Iterator[tuple[ast.AST, str, int]]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield node, text, node.body[0].lineno


def prose(name: str) -> Iterator[tuple[int, str]]:
    """Every docstring, comment and other string of a file, with its line; lines that belong together are one text."""
    yield from ((line, text) for _, text, line in docstrings(name))
    skip = {line for _, _, line in docstrings(name)}
    if name not in WORD_LISTS:
        constants = (node for node in ast.walk(tree(name)) if isinstance(node, ast.Constant))
        strings = ((n.lineno, n.value) for n in constants if isinstance(n.value, str) and n.lineno not in skip)
        yield from ((line, text) for line, text in strings if text not in RECORDED)
    yield from comments(name)


def comments(name: str) -> Iterator[tuple[int, str]]:
    """Every comment of a file, with its line."""
    last = 0
    for token in tokenize.generate_tokens(io.StringIO((ROOT / name).read_text()).readline):
        if token.type == tokenize.COMMENT:
            # A comment's second line may begin with any word.
            yield token.start[0], token.string.lstrip("# ") if token.start[0] != last + 1 else f"_{token.string}"
            last = token.start[0]


def names(name: str) -> Iterator[tuple[int, str]]:
    """Names that a file makes: functions, classes, arguments and what is assigned."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def dialect(texts: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Phrases in texts that have plainer words, each with its line."""
    lines = [(line, " ".join(text.split())) for line, text in texts]
    return [(line, m.group()) for line, text in lines for m in (*PHRASES.finditer(text), *OPENERS.finditer(text))]


@pytest.mark.parametrize("name", FILES)
def test_prose_is_plain(name: str) -> None:
    assert dialect(prose(name)) == []


@pytest.mark.parametrize("name", TESTS)
def test_tests_are_named_and_explained_in_plain_words(name: str) -> None:
    assert dialect((line, text) for _, text, line in docstrings(name)) == []
    assert dialect(comments(name)) == []
    # Names are no sentences: with the underscore no word of theirs opens one.
    functions = (node for node in ast.walk(tree(name)) if isinstance(node, ast.FunctionDef | ast.ClassDef))
    assert dialect((node.lineno, f"_ {node.name.replace('_', ' ')}") for node in functions) == []


@pytest.mark.parametrize("name", FILES)
def test_docstrings_are_imperatives_or_nouns(name: str) -> None:
    first = [(line, text.split()[0]) for node, text, line in docstrings(name) if not isinstance(node, ast.Module)]
    assert [(line, word) for line, word in first if word.lower().strip(",.:") in NO_FIRST_WORDS] == []


@pytest.mark.parametrize("name", FILES)
def test_names_are_words_of_the_field(name: str) -> None:
    assert [(line, made) for line, made in names(name) if made.strip("_").lower() in NO_NAMES] == []
    functions = [n for n in ast.walk(tree(name)) if isinstance(n, ast.FunctionDef) and n.name not in ALLOWED_NAMES]
    bare = [(n.lineno, n.name, n.name.strip("_")) for n in functions]
    assert [
        (line, full) for line, full, word in bare if word in PARTICIPLES or re.fullmatch(r"(?!embed)[a-z]+[^e]ed", word)
    ] == []


def test_the_rules_catch_what_they_name() -> None:
    assert PHRASES.search("pooling 'mask' wants a template")
    assert PHRASES.search("the run goes on")
    assert not PHRASES.search("stands in for the parser; as many as fit, so much that it hurts")
    assert OPENERS.search("Of runs that failed.")
    assert OPENERS.search("One thing. So that another.")
    assert not OPENERS.search("The size Of it")
