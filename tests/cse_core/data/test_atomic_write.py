"""Files are replaced whole, on the disk before they have their name, and an error leaves the old one."""

import os
from pathlib import Path

import pytest

from cse_core.data.atomic_write import atomic_path, atomic_write


def test_atomic_write_replaces_text_to_the_byte(tmp_path: Path):
    path = tmp_path / "new folder" / "text.csv"
    atomic_write(path, "first")
    atomic_write(path, "ä\r\n\u2028")
    assert path.read_bytes() == "ä\r\n\u2028".encode()
    assert list(path.parent.iterdir()) == [path]


def test_atomic_path_keeps_the_old_file_after_an_error(tmp_path: Path):
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def write_half() -> None:
        with atomic_path(path) as part:
            part.write_bytes(b"half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_path_syncs_the_file_before_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, seen = tmp_path / "file", []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    atomic_write(path, b"content")
    assert seen == [("file.part", False), (tmp_path.name, True)]
