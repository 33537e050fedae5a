"""What is tried again while storage is away, and what would fail again."""

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
def test_only_what_may_be_gone_later_is_tried_again(error: Exception, temporary: bool) -> None:
    assert is_temporary(error) == temporary
