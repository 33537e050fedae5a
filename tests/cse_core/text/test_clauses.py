"""Clauses: expected cuts of invented sentences, and what holds for every text. The three pairings in closed form."""

import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cse_core.text.clauses import adjacent, clauses, overlapping, subsuming

VOCABULARY = """
the a mill river of in by was and but or that which who when after as than most even so it they running
painted , ; : – -
(old stone) (1850) wall, end; note: moved burnt he year not because " said “yes” until then. although
"""
texts = st.one_of(
    st.lists(st.sampled_from(VOCABULARY.split()), max_size=25).map(" ".join),
    st.text('ab,;:–() \n\u00a0"that.', max_size=40),
)
Pairing = Callable[[Sequence[str]], list[tuple[str, str, str]]]
unit_lists = st.lists(st.sampled_from(["a", "bb", "ccc dd", "e f g h", "ii jj kk"]), max_size=9)


@pytest.mark.parametrize(
    "cut",
    [
        # punctuation
        "The mill burnt down; | nobody lived there.",
        "Two rivers meet here: | the Elm and the Ash.",
        "The mill | – a ruin today | – stood by the weir.",
        "The mill | (a former ruin) | burnt down.",
        "The mill (1850) burnt down.",
        # commas
        "When the mill burnt down, | the miller left.",
        "The mill, | owned by his father, | burnt down.",
        "Wheat, rye, barley and oats grow here.",
        "They sold gongs, singing bowls, and bells.",
        "They left, nothing else was known.",
        "The mill, red with rust, burnt.",
        "The miller, | who sold rye, oats and wheat, left town.",
        "The show, | which was held in Kiel, Holstein, was long.",
        "The old mill by the river burnt down in 1850, | a year of long drought and fire.",
        "In the dry summer of 1850, the mill burnt down.",
        # openers
        "The man | to whom it belonged was rich.",
        "They bred ducks, | most of which were sold.",
        "They kept sheep, | and in which fold is unknown.",
        "It stood | even though the roof was gone.",
        "He stayed | so that she could leave.",
        "They asked | whether it was so.",
        "He worked | until he died.",
        "He worked until his death.",
        "He left | before finding work.",
        "It was older | than they thought.",
        "It was older than expected.",
        # that
        "He said | that the mill was old.",
        "The walls of that mill were thick.",
        "They moved that year to Kiel.",
        # coordination
        "The mill burnt down | and was never rebuilt.",
        "The mill burnt down | but he stayed.",
        "The mill burnt down | and became a ruin.",
        "The mill burnt down | and reopened in 1860.",
        "The mill burnt down | and, when the war ended, | was sold.",
        "He came | and when she left he stayed.",
        # two words at least
        "He, who was old, | left town.",
        "Stop; go | because she said so.",
        "She came; left.",
    ],
)
def test_a_text_is_cut_where_it_is_expected(cut: str) -> None:
    text = cut.replace("| ", "")
    assert " | ".join(clauses(text)) == cut


@pytest.mark.parametrize(("text", "expected"), [("", [""]), (" \n ", [""]), ("mill", ["mill"]), ("; –", ["; –"])])
def test_a_text_of_hardly_any_words_is_one_clause(text: str, expected: list[str]) -> None:
    assert clauses(text) == expected


@given(texts)
def test_clauses_are_the_text_in_order(text: str) -> None:
    found = clauses(text)
    assert " ".join(found).split() == text.split()
    assert all(clause == " ".join(clause.split()) for clause in found)
    assert len(found) == 1 or min(len(clause.split()) for clause in found) >= 2


@pytest.mark.parametrize(("pairing", "step"), [(overlapping, 1), (adjacent, 2)])
@given(units=unit_lists)
def test_overlapping_is_every_neighbouring_pair_and_adjacent_every_second(
    pairing: Pairing, step: int, units: list[str]
) -> None:
    expected = []
    for i in range(0, len(units) - 1, step):
        triple = (units[i] + " " + units[i + 1], units[i], units[i + 1])
        if triple not in expected:
            expected.append(triple)
    assert pairing(units) == expected


@given(unit_lists, st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.5]))
def test_subsuming_is_the_root_and_its_two_halves(units: list[str], balance: float) -> None:
    """The definition step by step: the node, its halves, the test of their lengths."""
    first = len(units) // 2 + len(units) % 2
    expected = []
    for node in (units, units[:first], units[first:]):
        if len(node) < 2:
            continue
        half = len(node) // 2 + len(node) % 2
        left, right = " ".join(node[:half]), " ".join(node[half:])
        if abs(len(left) - len(right)) / max(len(left), len(right)) < balance:
            triple = (left + " " + right, left, right)
            if triple not in expected:
                expected.append(triple)
    assert subsuming(units, balance) == expected


def test_the_three_pairings_of_four_or_five_units() -> None:
    assert adjacent(["a", "b", "c", "d", "e"]) == [("a b", "a", "b"), ("c d", "c", "d")]
    assert overlapping(list("abcd")) == [("a b", "a", "b"), ("b c", "b", "c"), ("c d", "c", "d")]
    assert subsuming(list("abcde"), 1.0) == [("a b c d e", "a b c", "d e"), ("a b c", "a b", "c"), ("d e", "d", "e")]


@pytest.mark.parametrize(
    ("left", "kept"), [("x", False), ("xx", False), ("xxx", True), ("xxxxxxx", True), ("x" * 8, False)]
)
def test_halves_must_be_of_similar_length(left: str, kept: bool) -> None:
    """|a - b| / max < 1/2 with b = 4: strictly, so that neither 2 nor 8 will do."""
    assert subsuming([left, "yyyy"]) == ([(f"{left} yyyy", left, "yyyy")] if kept else [])


def test_time_grows_with_the_length() -> None:
    text = " ".join(["the", "mill", "(and", "that,", "of", "which"] * 1000)
    start = time.process_time()
    assert len(clauses(text)) > 1000
    assert time.process_time() - start < 10
