"""Clauses of a sentence by punctuation and function words, and pairs of neighbouring clauses as training examples.

CompCSE (Chanchani and Huang, ACL 2023) takes elementary discourse units and their tree from a neural discourse parser,
DMRST, which is not publicly available. This is a substitute, whose cuts often differ from the paper's: `clauses` is a
rule set without discourse relations, and `subsuming` halves the list of clauses instead of following the parser's tree.

`adjacent`, `overlapping` and `subsuming` are the paper's three ways (Table 2) to make triples of a sentence's units. A
triple is an anchor and its two parts, which joined by a blank give the anchor. Equal triples are listed once.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from cse_core.text.word_lists import word_set

Triple = tuple[str, str, str]

SHORTEST = 2  # words of a clause
LONG = 5  # with this many words and no pause on either side, a comma always cuts
ASIDE = 3  # words in the shortest parenthesis that is its own clause
_OPENER = word_set("because although though while whereas when where who whom whose which whether if unless lest")
_OPENER_IF_CLAUSE = word_set("after before since as until once than")  # otherwise prepositions
_RELATIVE = word_set("which whom whose")
_COORDINATOR = word_set("and but or nor yet")
_SUBJECT = word_set("i he she it they we you there this these")
_PREPOSITION = word_set(
    "of in on at by for with from into through over under between among against about to during upon"
)
_SHARE = word_set("most some many all each both one two three none several part half much few")  # "most of which"
_INTENSIFIER = word_set("even just only especially particularly shortly soon long rather")  # "even though"
_AUXILIARY = word_set("am is are was were has have had do does did can could will would shall should may might must")
_PAST = word_set(
    "became began broke brought built came chose drew drove fell flew found fought gave got grew held kept knew laid"
    " lay led left lost made met moved paid put ran read rose said sang sat saw sent set shot sold spent spoke spread"
    " stood struck taught took told thought threw went won wore wrote"
)
_TIME = word_set("year time day month season week summer winter night same")  # "that year"
_NO_VERB = word_set(
    "king thing nothing something anything everything during spring string evening morning hundred including"
)
_PAUSE = (",", ";", ":")
_MARKS = "\"'“”\u2018\u2019()[]"


def clauses(text: str) -> list[str]:
    """Cut a text into clauses of at least two words; joined by single blanks, they give its words again.

    Cuts are after a semicolon or colon, at a dash, around a parenthesis, and before conjunctions and relative pronouns.
    A comma cuts between long pieces, or where a clause seems to begin or end. An empty text is one empty clause.
    """
    words = text.split()
    cores = [word.strip(_MARKS + ",;:.!?").lower() for word in words]
    cuts = {_include_introduction(cores, k) for k in range(1, len(words)) if _begins_clause(words, cores, k)}
    cuts = (cuts | _aside_edges(words)) - {0, len(words)}
    pieces: list[list[str]] = []
    for start, end in pairwise([0, *sorted(cuts), len(words)]):
        if pieces and min(end - start, len(pieces[-1])) < SHORTEST:
            pieces[-1] += words[start:end]
        else:
            pieces.append(words[start:end])
    return [" ".join(piece) for piece in pieces]


def _begins_clause(words: Sequence[str], cores: Sequence[str], k: int) -> bool:
    """Whether word k begins a clause."""
    before, core, mark = cores[k - 1], cores[k], _final_mark(words[k - 1])
    after = cores[k + 1] if k + 1 < len(cores) else ""
    if mark in (";", ":") or words[k] in ("-", "–", "—", "--"):
        return True
    if mark == ",":
        opens = core in _OPENER | _SUBJECT or _free_participle(words, cores, k)
        if opens or _ends_clause(words, cores, k) or _long_around(words, k):
            return True
    if core in _COORDINATOR:
        return after in _SUBJECT | _OPENER | _AUXILIARY | _PAST or after.endswith("ed")
    if before in _COORDINATOR:
        return False  # "and when": the cut is before "and"
    if core in _OPENER_IF_CLAUSE:
        return after in _SUBJECT or (core != "than" and _looks_like_participle(after))
    if core == "that":
        return before not in _PREPOSITION | _OPENER | _OPENER_IF_CLAUSE and after not in _TIME
    return core in _OPENER


def _include_introduction(cores: Sequence[str], k: int) -> int:
    """Return where the clause opened by word k begins: "most of | which" and "and even | though" are not cut."""
    if cores[k] in _RELATIVE and cores[k - 1] in _PREPOSITION:
        k -= 2 if k > 1 and cores[k - 2] in _SHARE else 1
    elif cores[k] == "that":
        k -= 1 if cores[k - 1] == "so" else 0
    elif cores[k] in _OPENER | _OPENER_IF_CLAUSE:
        k -= 1 if cores[k - 1] in _INTENSIFIER else 0
    return k - 1 if k and cores[k - 1] in _COORDINATOR else k


def _aside_edges(words: Sequence[str]) -> set[int]:
    """Return where parentheses of at least ASIDE words begin and end."""
    edges: set[int] = set()
    start = None
    for i, word in enumerate(words):
        if word.startswith("("):
            start = i
        if word.rstrip(".,;:").endswith(")") and start is not None:
            if i + 1 - start >= ASIDE:
                edges |= {start, i + 1}
            start = None
    return edges


def _final_mark(word: str) -> str:
    """Return the punctuation at a word's end, ignoring quotation marks."""
    return word.rstrip(_MARKS)[-1:]


def _looks_like_participle(core: str) -> bool:
    return core.endswith(("ing", "ed")) and len(core) > 4 and core not in _NO_VERB


def _free_participle(words: Sequence[str], cores: Sequence[str], k: int) -> bool:
    """Whether word k is a participle that opens a clause, not an adjective in a list ("gongs, singing bowls")."""
    return _looks_like_participle(cores[k]) and not any(_final_mark(word) in _PAUSE for word in words[k : k + 2])


def _ends_clause(words: Sequence[str], cores: Sequence[str], k: int) -> bool:
    """Whether the comma before word k, in no list, ends what began like a clause: "when it burnt, | he left"."""
    start = next((j for j in range(k - 1, 0, -1) if _final_mark(words[j - 1]) in _PAUSE), 0)
    listed = k + 1 == len(words) or _final_mark(words[k]) in _PAUSE or cores[k + 1] in _COORDINATOR
    return not listed and (cores[start] in _OPENER or _free_participle(words, cores, start))


def _long_around(words: Sequence[str], k: int) -> bool:
    """Whether there are LONG words without another pause on either side of the comma before word k."""
    left, right = words[max(k - LONG, 0) : k - 1], words[k : k + LONG - 1]
    long = k >= LONG and len(words) - k >= LONG
    return long and not any(_final_mark(word) in _PAUSE for word in (*left, *right))


def adjacent(units: Sequence[str]) -> list[Triple]:
    """Pair units 0 and 1, 2 and 3, ...; a last one without a partner is left out."""
    return _unique(_triple(units[i : i + 2]) for i in range(0, len(units) - 1, 2))


def overlapping(units: Sequence[str]) -> list[Triple]:
    """Pair every unit with the next one."""
    return _unique(map(_triple, pairwise(units)))


def subsuming(units: Sequence[str], balance: float = 0.5) -> list[Triple]:
    """Halve the whole list, its left half and its right half: three triples at most.

    The first half takes the odd unit. A triple is kept if | |left| - |right| | / max(|left|, |right|) < balance, with
    lengths in characters. (The released helper tests the root only, and its second halves take the odd unit.)
    """
    middle = -(-len(units) // 2)
    nodes = [node for node in (units, units[:middle], units[middle:]) if len(node) > 1]
    triples = _unique(map(_triple, nodes))
    return [(whole, a, b) for whole, a, b in triples if abs(len(a) - len(b)) < balance * max(len(a), len(b))]


def _triple(units: Sequence[str]) -> Triple:
    middle = -(-len(units) // 2)
    return " ".join(units), " ".join(units[:middle]), " ".join(units[middle:])


def _unique(triples: Iterable[Triple]) -> list[Triple]:
    return list(dict.fromkeys(triples))
