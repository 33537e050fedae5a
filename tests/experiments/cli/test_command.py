"""On a full disk a command ends with one line, whichever library writes."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from experiments.cli.command import run_command


def _fill_database() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA max_page_count = 1")
    database.execute("CREATE TABLE a (b)")


@pytest.mark.parametrize(
    "write",
    [
        lambda: Path("/dev/full").write_bytes(b"x"),
        lambda: torch.save(torch.zeros(100_000), "/dev/full"),
        _fill_database,
    ],
    ids=["python", "torch", "sqlite"],
)
def test_a_full_disk_is_one_line_that_names_a_folder_and_its_space(write: Callable[[], None]) -> None:
    with pytest.raises(SystemExit) as stop:
        run_command(write)
    said = str(stop.value.code)
    assert said.startswith("error: [Errno 28] No space left on device (")
    assert " MiB free on this file's disk); make room there, then run the same command again: '/" in said
    assert "\n" not in said
