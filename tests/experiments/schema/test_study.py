"""Studies, scales and rows have names that can name files and fit into tables."""

from dataclasses import replace

import pytest

from tests.support.toy_study import toy_study


@pytest.mark.parametrize("name", ["toy", "rankcse-table4", "my_study.v2", "2026", "Übung"])
def test_a_study_may_have_letters_digits_and_three_signs_in_its_name(name: str) -> None:
    assert replace(toy_study(), name=name).name == name


@pytest.mark.parametrize(
    "name", ["", "../../x", "..", ".hidden", "-x", "a/b", "a\\b", "[/x]", "two words", "line\n", "a\0", "x" * 101]
)
def test_a_name_that_would_be_another_file_or_markup_is_refused(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        replace(toy_study(), name=name)
    with pytest.raises(ValueError, match=r"^scale .*: expected a name of at most 100 letters"):
        replace(toy_study().scale, name=name)
    assert str(caught.value).startswith(f"study {name!r}: expected a name of at most 100 letters, digits, ")


@pytest.mark.parametrize("label", ["two\nlines", "a\ttab"])
def test_a_label_that_would_break_a_table_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="expected a label of one line, for tables"):
        replace(toy_study().rows[0], label=label)
