"""What a run ran on is told as far as it is known."""

import pytest

from experiments.environment import commit


def test_the_commit_is_this_checkouts() -> None:
    assert len(commit()["commit"]) == 40


def test_a_machine_without_git_has_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() == {"commit": "unknown", "dirty": "false"}
