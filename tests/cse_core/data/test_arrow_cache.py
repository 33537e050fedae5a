"""Arrow tables are written once, whole or not at all, by any number of processes."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from cse_core.data.arrow_cache import arrow_table
from tests.support.processes import at_once


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def after_a_batch(content: bytes) -> bytes:
    """The stream up to one of its batches: without a word, a shorter table."""
    for end in range(len(content) - 1, 0, -1):
        try:
            if 0 < len(pa.ipc.open_stream(content[:end]).read_all()) < 1000:
                return content[:end]
        except (pa.ArrowInvalid, OSError):
            continue
    raise AssertionError("no end within the stream gives a table")


DAMAGES = {
    "empty": lambda content: b"",
    "not a table": lambda content: b"not arrow",
    "cut in the middle": lambda content: content[: len(content) // 2],
    "cut at its end": lambda content: content[:-1],
    "cut after a batch": after_a_batch,
    "a bit flipped": flipped,
}


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(values)})


class TestArrowTable:
    def test_interrupted_writing_leaves_nothing(self, tmp_path: Path):
        def interrupted():
            yield batch(1, 2)
            raise KeyboardInterrupt

        folder = tmp_path / "tables" / "one"
        with pytest.raises(KeyboardInterrupt):
            arrow_table(folder, interrupted)
        assert list(folder.iterdir()) == []
        assert arrow_table(folder, lambda: [batch(1, 2), batch(3)])["n"][:] == [1, 2, 3]

    def test_the_rest_of_a_killed_writer_is_overwritten(self, tmp_path: Path):
        folder = tmp_path / "one"
        folder.mkdir()
        (folder / "table.arrow.part").write_bytes(b"half a table")
        assert arrow_table(folder, lambda: [batch(7)])["n"][:] == [7]
        assert [path.name for path in folder.iterdir()] == ["table.arrow"]

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_damaged_table_is_made_again_with_a_warning_that_names_it(
        self, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ):
        values = [list(range(start, start + 100)) for start in range(0, 1000, 100)]
        batches = [batch(*part) for part in values]
        whole = arrow_table(tmp_path / "one", lambda: batches)["n"][:]
        path = tmp_path / "one" / "table.arrow"
        before = path.read_bytes()
        path.write_bytes(DAMAGES[damage](before))
        assert arrow_table(tmp_path / "one", lambda: batches)["n"][:] == whole == list(range(1000))
        assert path.read_bytes() == before
        (said,) = caplog.messages
        assert said.startswith(f"{path} is not as this version wrote it")
        assert arrow_table(tmp_path / "one", lambda: [])["n"][:] == whole  # and is whole from now on
        assert len(caplog.messages) == 1

    def test_a_table_of_an_earlier_version_is_made_again(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        path = tmp_path / "one" / "table.arrow"
        path.parent.mkdir()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch(1).schema) as writer:
            writer.write_batch(batch(1))
        assert arrow_table(path.parent, lambda: [batch(1), batch(2)])["n"][:] == [1, 2]
        assert len(caplog.messages) == 1

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    @pytest.mark.slow
    def test_of_two_processes_one_writes_and_both_read(self, tmp_path: Path):
        def write(me: int) -> list[int]:
            def batches():
                for n in range(5):
                    time.sleep(0.05)
                    yield batch(n, me)

            return arrow_table(tmp_path / "one", batches)["n"][:]

        first, second = at_once(write, 2)
        assert first == second
        assert first in ([item for n in range(5) for item in (n, me)] for me in (0, 1))
