"""A hub that can't be reached, and an unpacked archive that is damaged."""

import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import huggingface_hub
import pytest

from cse_core.data import locate
from tests.support.archives import add

UNREACHABLE = """
import sys
from pathlib import Path
from cse_core.data import locate
import time
for find in (lambda f: locate.locate_corpus("wiki1m_for_simcse", f), locate.locate_senteval):
    start = time.monotonic()
    try:
        find(Path(sys.argv[1]))
    except FileNotFoundError as error:
        print(time.monotonic() - start, error)
"""


@pytest.mark.parametrize("endpoint", ["http://nowhere.invalid", "http://127.0.0.1:9", "a server that never answers"])
@pytest.mark.slow
def test_a_hub_that_can_not_be_reached_is_one_message_within_seconds(endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    gone = {"CSE_DATA", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
    environment = {name: value for name, value in os.environ.items() if name not in gone}
    with socket.create_server(("127.0.0.1", 0)) as silent:  # which takes connections and says nothing
        url = endpoint if endpoint.startswith("http") else f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment |= {"HF_ENDPOINT": url, "NO_PROXY": "*", "CSE_CACHE": str(tmp_path / "cache")}
        environment |= {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_CACHE": str(tmp_path / "hf" / "hub")}
        command = [sys.executable, "-c", UNREACHABLE, str(tmp_path / "data")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    corpus, archive = done.stdout.splitlines()
    for line, name in ((corpus, "wiki1m_for_simcse.txt"), (archive, "senteval.tar")):
        seconds, _, said = line.partition(" ")
        assert float(seconds) < 15  # a tenth of a second where names are not resolved; with retries it took 27
        assert said.startswith(f"{name}: not among {tmp_path / 'data'}/")
        assert "name a folder that holds the data with --data or CSE_DATA" in said


def damage_one(root: Path) -> None:
    (root / "STS" / "a.txt").write_bytes(b"")


UNPACKED = {
    "a file is empty": damage_one,
    "a file is gone": lambda root: (root / "STS" / "a.txt").unlink(),
    "the list is cut": lambda root: (root / locate.UNPACKED).write_bytes(b'{"STS'),
    "the list is gone": lambda root: (root / locate.UNPACKED).unlink(),
}


@pytest.mark.parametrize("damage", UNPACKED)
def test_a_damaged_folder_of_an_archive_is_unpacked_again(
    damage: str, tmp_path: Path, cache: Path, monkeypatch, caplog
) -> None:
    archive = tmp_path / "senteval.tar"
    with tarfile.open(archive, "w") as tar:
        add(tar, "STS/a.txt", b"content")
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *args, **kwargs: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **kwargs: str(archive))
    found = locate.locate_senteval()
    assert caplog.messages == []
    UNPACKED[damage](found)
    assert (locate.locate_senteval() / "STS" / "a.txt").read_bytes() == b"content"
    assert caplog.messages
    assert all(str(cache / "senteval") in said for said in caplog.messages)
    caplog.clear()
    locate.locate_senteval()
    assert caplog.messages == []
