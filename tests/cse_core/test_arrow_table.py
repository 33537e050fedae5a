"""Arrow tables are written once, whole or not at all, whoever writes them."""

import multiprocessing
import time
from pathlib import Path

import pyarrow as pa
import pytest

from cse_core import data


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(values)})


def write(home: Path, me: int, barrier, results) -> None:
    def batches():
        for n in range(5):
            time.sleep(0.05)
            yield batch(n, me)

    barrier.wait(30)
    results.put(data.arrow_table(home / "one", batches)["n"][:])


class TestArrowTable:
    def test_interrupted_writing_leaves_nothing(self, tmp_path: Path):
        def interrupted():
            yield batch(1, 2)
            raise KeyboardInterrupt

        folder = tmp_path / "tables" / "one"
        with pytest.raises(KeyboardInterrupt):
            data.arrow_table(folder, interrupted)
        assert list(folder.iterdir()) == []
        assert data.arrow_table(folder, lambda: [batch(1, 2), batch(3)])["n"][:] == [1, 2, 3]

    def test_the_rest_of_a_killed_writer_is_overwritten(self, tmp_path: Path):
        folder = tmp_path / "one"
        folder.mkdir()
        (folder / "table.part").write_bytes(b"half a table")
        assert data.arrow_table(folder, lambda: [batch(7)])["n"][:] == [7]
        assert [path.name for path in folder.iterdir()] == ["table.arrow"]

    def test_a_damaged_table_names_its_file(self, tmp_path: Path):
        data.arrow_table(tmp_path / "one", lambda: [batch(7)])
        (tmp_path / "one" / "table.arrow").write_bytes(b"not arrow")
        with pytest.raises(ValueError, match=r"one/table\.arrow: not a readable Arrow table .*; delete it"):
            data.arrow_table(tmp_path / "one", lambda: [])

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_of_two_processes_one_writes_and_both_read(self, tmp_path: Path):
        fork = multiprocessing.get_context("fork")  # a new interpreter would spend seconds on imports
        barrier, results = fork.Barrier(2), fork.Queue()
        children = [fork.Process(target=write, args=(tmp_path, me, barrier, results), daemon=True) for me in (1, 2)]
        for child in children:
            child.start()
        first, second = results.get(timeout=30), results.get(timeout=30)
        for child in children:
            child.join(30)
        assert first == second
        assert first in ([item for n in range(5) for item in (n, me)] for me in (1, 2))
