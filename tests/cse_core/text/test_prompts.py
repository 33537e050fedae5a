"""Templates around sentences: the ids of the filled-in text, cuts, and the closing full stop."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AddedToken, AutoTokenizer

from cse_core.methods import promptbert, sncse
from cse_core.models.pretrained import ASSETS
from cse_core.text.prompts import check_template, prompt_ids, sides, with_final_period

BERT = (*promptbert.TEMPLATES["bert"], *sncse.TEMPLATES, "{} [MASK]", "so it says: {}, that is [MASK] and no more")
ROBERTA = (*promptbert.TEMPLATES["roberta"], *sncse.TEMPLATES)
SENTENCES = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9), min_size=1, max_size=9).map(
    " ".join
)
TOKENIZER: Any = AutoTokenizer.from_pretrained(ASSETS / "wiki-tiny")


@pytest.fixture(scope="module")
def bytewise(roberta: Path) -> Any:
    """A byte-level tokenizer whose mask takes the blank before it, as RoBERTa's does."""
    tokenizer: Any = AutoTokenizer.from_pretrained(roberta)
    tokenizer.add_special_tokens({"mask_token": AddedToken("<mask>", lstrip=True)})
    return tokenizer


def filled(text: str, template: str, tokenizer: Any) -> list[int]:
    return tokenizer(template.replace("{}", text).replace("[MASK]", tokenizer.mask_token))["input_ids"]


@pytest.mark.parametrize(
    "template",
    [
        "",
        "[MASK]",
        "{}",
        "[MASK] {}",
        "{} {} [MASK]",
        "{} [MASK] {}",
        "{} [MASK] [MASK]",
        "[MASK] {} [MASK]",
        "{} <mask>",
    ],
)
def test_a_template_has_one_place_and_one_mask_after_it(template: str) -> None:
    with pytest.raises(ValueError, match=r"a template has one \{\} and one \[MASK\] after it, got") as caught:
        check_template(template)
    assert str(caught.value).endswith(repr(template))
    with pytest.raises(ValueError, match="a template has one"):
        sides(template, TOKENIZER)


@given(SENTENCES, st.sampled_from(BERT))
def test_ids_are_those_of_the_filled_in_text(text: str, template: str) -> None:
    assert prompt_ids([text], template, TOKENIZER, 200) == [filled(text, template, TOKENIZER)]


def test_ids_are_those_of_the_filled_in_text_where_blanks_are_parts_of_words(bytewise: Any) -> None:
    @given(SENTENCES, st.sampled_from(ROBERTA))
    def same(text: str, template: str) -> None:
        assert prompt_ids([text], template, bytewise, 200) == [filled(text, template, bytewise)]

    same()


@given(SENTENCES, st.sampled_from(BERT), st.integers(1, 12))
def test_only_the_sentence_is_cut(text: str, template: str, words: int) -> None:
    before, after = template.replace("[MASK]", TOKENIZER.mask_token).split("{}")
    left, inner, right = (TOKENIZER(part, add_special_tokens=False)["input_ids"] for part in (before, text, after))
    expected = [TOKENIZER.cls_token_id, *left, *inner[:words], *right, TOKENIZER.sep_token_id]
    assert prompt_ids([text, "a b"], template, TOKENIZER, words)[0] == expected
    assert sides(template, TOKENIZER) == ([TOKENIZER.cls_token_id, *left], [*right, TOKENIZER.sep_token_id])


def test_word_pieces_are_as_worked_out_by_hand(bytewise: Any) -> None:
    template = 'This sentence of "{}" means [MASK].'
    (ids,) = prompt_ids(["A cat sat down."], template, TOKENIZER, 3)
    pieces = ["[CLS]", "this", "sentence", "of", '"', "a", "cat", "sat", '"', "means", "[MASK]", ".", "[SEP]"]
    assert TOKENIZER.convert_ids_to_tokens(ids) == pieces
    left, right = sides("This ' {} ' is [MASK].", bytewise)
    ids = prompt_ids(["A dog"], "This ' {} ' is [MASK].", bytewise, 50)[0]
    assert (ids[: len(left)], ids[-len(right) :]) == (left, right)
    assert bytewise.decode(left) == "<s>This '"
    assert [bytewise.decode([i]) for i in right[-3:]] == ["<mask>", ".", "</s>"]
    inner = ids[len(left) : -len(right)]
    assert bytewise.decode(inner) == " A dog"
    assert bytewise.convert_ids_to_tokens(inner)[0].startswith("Ġ")
    assert bytewise.convert_ids_to_tokens(right)[0].startswith("Ġ")
    assert ids.count(bytewise.mask_token_id) == 1


def test_no_blank_is_put_before_a_sentence_that_has_none_in_the_template(bytewise: Any) -> None:
    left, right = sides('This "{}" is [MASK].', bytewise)
    ids = prompt_ids(["dog"], 'This "{}" is [MASK].', bytewise, 50)[0]
    assert bytewise.decode(ids[len(left) : -len(right)]) == "dog"


@pytest.mark.parametrize("words", [0, -4])
def test_a_length_without_room_for_the_sentence_is_refused(words: int) -> None:
    with pytest.raises(ValueError, match=rf"'.*' leaves room for {words} word pieces of the sentence, .* at least one"):
        prompt_ids(["a cat"], BERT[0], TOKENIZER, words)


def test_empty_special_and_very_long_texts_have_ids() -> None:
    left, right = sides(BERT[0], TOKENIZER)
    mask, sep = TOKENIZER.mask_token_id, TOKENIZER.sep_token_id
    ids = prompt_ids(["", "  ", "[MASK]", "[SEP]", "{}", "cat " * 5_000], BERT[0], TOKENIZER, 7)
    assert all(row[: len(left)] == left and row[-len(right) :] == right for row in ids)
    inner = [row[len(left) : -len(right)] for row in ids]
    assert inner[:4] == [[], [], [mask], [sep]]
    assert inner[4] == [TOKENIZER.unk_token_id] * 2  # the braces themselves
    assert len(inner[5]) == 7
    assert prompt_ids(["", "a"], BERT[0], TOKENIZER, 7) == [
        left + right,
        prompt_ids(["a"], BERT[0], TOKENIZER, 7)[0],
    ]


@pytest.mark.parametrize(
    ("text", "tight", "apart"),
    [
        ("a cat", "a cat.", "a cat ."),
        ("a cat \t", "a cat.", "a cat ."),
        ("a cat,", "a cat,.", "a cat, ."),
        ("a. cat", "a. cat.", "a. cat ."),
        *((text, text, text) for text in ("a cat.", "a cat .", "a cat?", "a cat!", 'a "cat"', "a 'cat'", "a cat. ")),
        *((text, text, text) for text in ("", "  ", ".")),
    ],
)
def test_a_full_stop_closes_what_nothing_else_closes(text: str, tight: str, apart: str) -> None:
    for template in promptbert.TEMPLATES["bert"]:
        assert with_final_period(text, template) == tight
    for template in sncse.TEMPLATES:
        assert with_final_period(text, template) == apart


@given(st.text("a .?!\"',"), st.sampled_from(BERT))
def test_a_closed_sentence_stays_as_it_is(text: str, template: str) -> None:
    closed = with_final_period(text, template)
    assert with_final_period(closed, template) == closed
    assert closed.startswith(text.rstrip())
    assert len(closed.rstrip()) - len(text.rstrip()) <= 2
