"""Files are replaced whole, on the disk before they have their name, and an error leaves the old one."""

import errno
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from cse_core.data.atomic_write import atomic_path, atomic_write, full_disk_named
from tests.support.full_disk import files_of_at_most

LARGE = torch.zeros(1_000_000)
FULL = Path("/dev/full")  # no disk: each write to it fails as on a full one


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


def _save_numpy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, LARGE.numpy())


def _save_arrow(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file:
        file.write(LARGE.numpy().tobytes())


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(LARGE.numpy().tobytes()),
        lambda path: torch.save(LARGE, path),
        lambda path: save_file({"a": LARGE}, path),
        _save_numpy,
        _save_arrow,
    ],
    ids=["python", "torch", "safetensors", "numpy", "arrow"],
)
def test_a_write_that_finds_no_room_names_the_file_and_leaves_the_old_one(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with files_of_at_most(100_000), pytest.raises(OSError) as caught, atomic_path(path) as part:
        write(part)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert caught.value.filename == str(path)
    assert "MiB free on this file's disk); make room there, then run the same command again" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_kernels_own_error_of_a_full_disk_is_named_once_and_survives_pickling(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, full_disk_named(tmp_path / "outer"), full_disk_named(tmp_path / "new" / "a"):
        FULL.write_bytes(b"x")
    free = shutil.disk_usage(tmp_path).free / 2**20
    said = str(pickle.loads(pickle.dumps(caught.value)))
    assert said.startswith("[Errno 28] No space left on device (")
    assert said.endswith(f": '{tmp_path}/new/a'")
    assert said.count("MiB free") == 1
    assert abs(float(said.split("(")[1].split(" MiB")[0].replace(",", "")) - free) < 1024


@pytest.mark.parametrize("error", [ValueError("No space left on device"), RuntimeError("x"), PermissionError(13, "No")])
def test_other_errors_are_left_as_they_are(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, full_disk_named(tmp_path):
        raise error
    assert caught.value is error
