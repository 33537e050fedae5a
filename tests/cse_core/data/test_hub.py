"""Where data is found: in folders, in the cache, and on a hub that a small server imitates for a real process."""

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub
import pytest

from cse_core.data import locate
from tests.support.archives import add, member
from tests.support.hub_server import hub_environment, hub_server

PREFIX = f"/datasets/{locate.REPOSITORY}/resolve/main/"
CORPUS = b"The first line.\n\nThe third line.\n"
CHILD = """
import json, sys
from pathlib import Path
from cse_core.data import corpora, locate, senteval
from cse_core.run import Corpus
folder, seen = Path(sys.argv[1]), {}
name = "wiki1m_for_simcse"
seen["folder"] = str(locate.locate_corpus(name, folder))
seen["fetched"] = locate.locate_corpus(name).read_text()
seen["again"] = locate.locate_corpus(name).read_text()
seen["folder_before_cache"] = str(locate.locate_corpus(name, folder))
seen["sentences"] = corpora.sentences(Corpus(name, 3))["text"][:]
if sys.argv[2] == "archive":
    locate.locate_senteval(), locate.locate_senteval()
    seen["counts"] = {task: len(senteval.pairs(task).table) for task in senteval.STS_TEST}
    seen["counts"]["cr"] = len(senteval.labelled_sentences("cr").table)
    try:
        senteval.labelled_sentences("subj")
    except senteval.TruncatedTask as error:
        seen["refused"] = str(error)
else:
    try:
        locate.locate_senteval()
    except FileNotFoundError as error:
        seen["absent"] = str(error)
print(json.dumps(seen))
"""


def in_new_process(code: str, *arguments: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the hub has: a small corpus and, where the real data is at hand, an archive of it with SUBJ cut short."""
    found = {"wiki1m_for_simcse.txt": CORPUS}
    if os.environ.get("CSE_DATA"):
        root = locate.locate_senteval(Path(os.environ["CSE_DATA"]))
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for path in sorted(path for path in root.rglob("*") if path.is_file()):
                content = path.read_bytes()
                if path.name == "subj.subjective":
                    content = b"".join(content.splitlines(keepends=True)[:20])
                add(tar, f"some/export/{path.relative_to(root)}", content)
        found["senteval.tar"] = stream.getvalue()
    return found


@pytest.fixture(scope="module")
def hub(files: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """The address of a server with these files, and the requests made so far."""
    with hub_server({f"datasets/{locate.REPOSITORY}/{name}": content for name, content in files.items()}) as served:
        yield served


@pytest.fixture(scope="module")
def seen(hub: tuple[str, list[str]], files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a new process with empty caches sees, in the order of CHILD."""
    home = tmp_path_factory.mktemp("home")
    (home / "data").mkdir()
    (home / "data" / "wiki1m_for_simcse.txt").write_text("From the folder.\n")
    environment = {name: value for name, value in hub_environment(hub[0], home).items() if name != "CSE_DATA"}
    kind = "archive" if "senteval.tar" in files else "none"
    done = in_new_process(CHILD, home / "data", kind, env=environment)
    assert done.returncode == 0, done.stderr
    requests = [request.replace(PREFIX, "") for request in hub[1]]
    return json.loads(done.stdout) | {"home": str(home), "requests": requests}


class TestLocate:
    @pytest.mark.parametrize("suffix", ["", ".txt", ".txt.xz", ".txt.gz"])
    def test_a_corpus_is_found_in_the_folder_with_any_suffix(self, suffix: str, tmp_path: Path, cache: Path):
        (tmp_path / f"mine{suffix}").write_bytes(b"x")
        assert locate.locate_corpus("mine", tmp_path) == tmp_path / f"mine{suffix}"

    def test_the_argument_goes_before_the_variable(self, tmp_path: Path, cache: Path, monkeypatch):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "mine.txt").write_text(name)
        monkeypatch.setenv("CSE_DATA", str(tmp_path / "a"))
        assert locate.locate_corpus("mine").read_text() == "a"
        assert locate.locate_corpus("mine", tmp_path / "b").read_text() == "b"

    def test_a_path_is_a_name(self, tmp_path: Path, cache: Path):
        (tmp_path / "mine.txt").touch()
        assert locate.locate_corpus(str(tmp_path / "mine.txt")) == tmp_path / "mine.txt"

    def test_a_missing_corpus_says_where_it_was_looked_for(self, tmp_path: Path, cache: Path):
        with pytest.raises(FileNotFoundError, match=r"corpus mine: .*mine\.txt\.xz.*; name the folder .*CSE_DATA"):
            locate.locate_corpus("mine", tmp_path)

    def test_a_missing_data_folder_is_an_error(self, tmp_path: Path, cache: Path, monkeypatch):
        assert locate.data_folder(None) is None
        monkeypatch.setenv("CSE_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(FileNotFoundError, match="nowhere: no such folder; correct"):
            locate.data_folder(None)

    @pytest.mark.parametrize("layout", ["senteval/downstream", "SentEval/data/downstream", "."])
    def test_senteval_is_found_in_any_layout(self, layout: str, tmp_path: Path, cache: Path):
        (tmp_path / layout / "STS").mkdir(parents=True)
        assert locate.locate_senteval(tmp_path) == tmp_path / layout


@pytest.mark.slow
def test_a_folder_goes_before_the_cache_and_the_cache_before_the_hub(seen: dict):
    local = f"{seen['home']}/data/wiki1m_for_simcse.txt"
    assert (seen["folder"], seen["folder_before_cache"]) == (local, local)
    assert seen["fetched"] == seen["again"] == CORPUS.decode()
    corpus = [request for request in seen["requests"] if "wiki1m" in request]
    assert corpus == [*["HEAD wiki1m_for_simcse.txt"] * 2, "GET wiki1m_for_simcse.txt"]  # asked first, then fetched


@pytest.mark.slow
def test_the_fetched_corpus_is_read(seen: dict):
    assert seen["sentences"] == ["The first line.", " ", "The third line."]


def test_the_archive_is_fetched_and_unpacked_once(seen: dict, real_data: Path):
    archive = [request for request in seen["requests"] if "senteval" in request]
    assert archive == [*["HEAD senteval.tar"] * 2, "GET senteval.tar"]
    unpacked = Path(seen["home"]) / "cache" / "senteval"
    assert (unpacked / "some" / "export" / "CR" / "custrev.pos").is_file()
    assert not list(unpacked.parent.glob("unpacking-*"))


def test_a_cut_archive_refuses_its_task_and_no_other(seen: dict, real_data: Path):
    expected = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186, "stsb": 1379, "sickr": 4927}
    assert seen["counts"] == expected | {"cr": 3775}
    assert "subj.subjective: 20 sentences of class 0, expected 5,000" in seen["refused"]
    assert "SimCSE issue 84" in seen["refused"]
    assert "CSE_DATA" in seen["refused"]


def test_an_archive_that_the_hub_does_not_have_is_an_error(seen: dict):
    if os.environ.get("CSE_DATA"):
        pytest.skip("with real data this hub has the archive")
    assert seen["absent"].startswith("senteval.tar: not among")


@pytest.mark.parametrize("find", [locate.locate_senteval, lambda: locate.locate_corpus("wiki1m_for_simcse")])
def test_offline_with_nothing_cached_the_error_names_the_ways_out(find: Callable[[], Path], cache: Path):
    with pytest.raises(FileNotFoundError) as caught:
        find()
    for word in ("not in the Hugging Face cache", locate.REPOSITORY, "HF_HUB_OFFLINE", "HF_ENDPOINT", "CSE_DATA"):
        assert word in str(caught.value)


@pytest.fixture
def archive(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a download of SentEval's archive gives: each test writes its own."""
    path = tmp_path / "senteval.tar"
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *args, **kwargs: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **kwargs: str(path))
    return path


HOSTILE = {
    "climbs": ([member("STS/a.txt"), member("../outside.txt")], "outside"),
    "is a bomb": ([member("STS/a.txt"), member("STS/b.txt", size=3 << 30)], "at most 100 of 2,147,483,648"),
    "is a swarm": ([member(f"STS/{n}.txt") for n in range(101)], "101 members"),
    "has no STS": ([member("MR/a.txt")], "has no folder STS"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_that_is_refused_leaves_nothing(name: str, archive: Path, cache: Path, monkeypatch):
    members, reason = HOSTILE[name]
    with tarfile.open(archive, "w") as tar:
        for item in members:
            tar.fileobj.write(item.tobuf())  # only the header: no test writes three gigabytes
    monkeypatch.setattr(locate, "MOST_MEMBERS", 100)
    with pytest.raises(ValueError, match=rf"senteval\.tar: refused \(.*{reason}"):
        locate.locate_senteval()
    assert [path.name for path in cache.rglob("*")] == ["senteval.lock"]
    assert not list(archive.parent.rglob("outside*"))


def test_an_archive_that_is_cut_is_refused(archive: Path, cache: Path):
    with tarfile.open(archive, "w") as tar:
        add(tar, "STS/a.txt", b"x" * 5000)
    archive.write_bytes(archive.read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"senteval\.tar: refused"):
        locate.locate_senteval()
    assert not (cache / "senteval").exists()


@pytest.mark.parametrize("top", ["STS", "./STS", "a/b/c/STS"])
def test_any_top_folder_will_do_and_links_are_left_out(top: str, archive: Path):
    with tarfile.open(archive, "w") as tar:
        add(tar, f"{top}/a.txt", b"content")
        tar.addfile(member(f"{top}/link", type=tarfile.SYMTYPE, linkname="a.txt"))
    found = locate.locate_senteval()
    assert sorted(path.name for path in (found / "STS").iterdir()) == ["a.txt"]
    assert (found / "STS" / "a.txt").read_bytes() == b"content"


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
def test_a_hub_that_cannot_be_reached_gives_one_message_within_seconds(endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    gone = {"CSE_DATA", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
    environment = {name: value for name, value in os.environ.items() if name not in gone}
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and says nothing
        url = endpoint if endpoint.startswith("http") else f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment |= {"HF_ENDPOINT": url, "NO_PROXY": "*", "CSE_CACHE": str(tmp_path / "cache")}
        environment |= {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_CACHE": str(tmp_path / "hf" / "hub")}
        done = in_new_process(UNREACHABLE, tmp_path / "data", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    corpus, archive = done.stdout.splitlines()
    for line, name in ((corpus, "wiki1m_for_simcse.txt"), (archive, "senteval.tar")):
        seconds, _, said = line.partition(" ")
        assert float(seconds) < 15  # a tenth of a second where names are not resolved; with retries it took 27
        assert said.startswith(f"{name}: not among {tmp_path / 'data'}/")
        assert "name a folder that holds the data with --data or CSE_DATA" in said


UNPACKED = {
    "a file is empty": lambda root: (root / "STS" / "a.txt").write_bytes(b""),
    "a file is gone": lambda root: (root / "STS" / "a.txt").unlink(),
    "the list is cut": lambda root: (root / locate.UNPACKED).write_bytes(b'{"STS'),
    "the list is gone": lambda root: (root / locate.UNPACKED).unlink(),
}


@pytest.mark.parametrize("damage", UNPACKED)
def test_a_damaged_folder_of_an_archive_is_unpacked_again(damage: str, archive: Path, cache: Path, caplog) -> None:
    with tarfile.open(archive, "w") as tar:
        add(tar, "STS/a.txt", b"content")
    found = locate.locate_senteval()
    assert caplog.messages == []
    UNPACKED[damage](found)
    assert (locate.locate_senteval() / "STS" / "a.txt").read_bytes() == b"content"
    assert caplog.messages
    assert all(str(cache / "senteval") in said for said in caplog.messages)
    caplog.clear()
    locate.locate_senteval()
    assert caplog.messages == []
