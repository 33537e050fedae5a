"""Temporary errors of storage are tried again; others are not."""

import errno

import pytest

from experiments.storage.retries import is_temporary


@pytest.mark.parametrize(
    ("error", "temporary"),
    [
        (OSError(errno.EIO, "input/output error"), True),
        (ConnectionError("reset by peer"), True),
        (TimeoutError("no answer"), True),
        (OSError(errno.ENOSPC, "no space left"), False),
        (OSError(errno.EDQUOT, "quota exceeded"), False),
        (PermissionError("denied"), False),
        (FileNotFoundError("gone"), False),
        (ValueError("damaged"), False),
    ],
)
def test_only_errors_that_may_pass_are_tried_again(error: Exception, temporary: bool) -> None:
    assert is_temporary(error) == temporary
