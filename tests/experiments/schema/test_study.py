"""What a study may be named: its tables and figures are files of this name."""

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
    assert str(caught.value).startswith(f"study {name!r}: expected a name of at most 100 letters, digits, ")
