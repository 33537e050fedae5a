"""SHA256SUMS shows which files were changed by hand, and a kill at any moment leaves a record that can be read."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from experiments.results import csv_record
from experiments.results.csv_table import Table
from experiments.results.manifest import ChangedFileError, Manifest, write_manifests

TABLE = Table("curves.csv", {"key": str, "value": float}, ("key",))
# Merges lines of `lines` and is killed before or after the n-th file that it gives its name.
KILLED = """
import os, signal, sys
from pathlib import Path
import pandas as pd
from experiments.results.csv_table import Table
folder, keys, moment, when = Path(sys.argv[1]), sys.argv[2].split(), int(sys.argv[3]), sys.argv[4]
replace, count = Path.replace, 0
def counted(path, target):
    global count
    count += 1
    if count == moment and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(path, target)
    if count == moment and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
Path.replace = counted
lines = pd.DataFrame([{"key": key, "value": 0.5} for key in keys])
Table("curves.csv", {"key": str, "value": float}, ("key",)).merge(folder, lines)
from experiments.results.manifest import write_manifests
write_manifests()
"""


def lines(*keys: str) -> pd.DataFrame:
    return pd.DataFrame([{"key": key, "value": 0.5} for key in keys])


def keys(folder: Path) -> list[str]:
    return TABLE.read(folder)["key"].to_list()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record with a line and its manifest."""
    TABLE.merge(tmp_path, lines("a"))
    write_manifests()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("moment", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_moment_of_a_command_leaves_a_record_that_nothing_refuses(
    tmp_path: Path, moment: int, when: str
) -> None:
    """The first file is the table, the second the manifest."""
    TABLE.merge(tmp_path, lines("a", "b"))
    write_manifests()
    words = [sys.executable, "-c", KILLED, str(tmp_path), "c d", str(moment), when]
    assert subprocess.run(words, check=False).returncode == -9
    before = moment == 1 and when == "before"
    assert keys(tmp_path) == (["a", "b"] if before else ["a", "b", "c", "d"])
    Manifest(tmp_path).refuse_changes()
    sealed = moment == 2 and when == "after"
    assert list(Manifest(tmp_path).differences()) == ([] if sealed else [tmp_path / "SHA256SUMS"])
    TABLE.merge(tmp_path, lines("e"))  # the next command
    write_manifests()
    assert Manifest(tmp_path).differences() == {}


def test_what_was_changed_by_hand_is_refused_with_the_remedies(record: Path) -> None:
    path = record / "curves.csv"
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.raises(ChangedFileError) as raised:
        Manifest(record).refuse_changes()
    for part in (f"{path}: its SHA-256 is", "SHA256SUMS has", f"git checkout -- {record}", "make_tables.py --accept"):
        assert part in str(raised.value)
    assert list(Manifest(record).differences()) == [path]
    path.unlink()
    with pytest.raises(ChangedFileError, match=r"curves\.csv: missing; SHA256SUMS has [0-9a-f]{12}"):
        Manifest(record).refuse_changes()


def test_a_record_whose_command_is_at_work_is_not_refused(record: Path) -> None:
    TABLE.merge(record, lines("b"))
    Manifest(record).refuse_changes()
    Manifest(record).accept()  # make_tables.py
    TABLE.merge(record, lines("c"))
    Manifest(record).refuse_changes()
    write_manifests()
    assert Manifest(record).differences() == {}


def test_a_command_that_changes_nothing_writes_nothing(record: Path) -> None:
    (record / "curves.csv").write_text("key,value\na,0.6\n")
    assert TABLE.merge(record, lines("a")) == 0
    write_manifests()
    assert list(Manifest(record).differences()) == [record / "curves.csv"]


def test_a_file_that_the_manifest_does_not_list_is_named(record: Path) -> None:
    (record / "pairs.csv").write_text("anything\n")
    (record / "figure_data" / "k").mkdir(parents=True)
    (record / "figure_data" / "k" / "a.npz").write_text("")
    found = {path.name: what.partition(" in ")[0] for path, what in Manifest(record).differences().items()}
    assert found == {"pairs.csv": "not listed", "a.npz": "not listed"}


def test_an_older_record_is_taken_as_it_is_and_gets_a_manifest_of_everything(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("key,value\na,0.25\n")
    (tmp_path / "pairs.csv").write_text(",".join(csv_record.PAIRS) + "\n")
    (tmp_path / "figure_data" / "k").mkdir(parents=True)
    (tmp_path / "figure_data" / "k" / "a.npz").write_text("1")
    (tmp_path / "mlflow.db").write_text("")
    Manifest(tmp_path).refuse_changes()
    assert list(Manifest(tmp_path).differences()) == [tmp_path / "SHA256SUMS"]
    TABLE.merge(tmp_path, lines("b"))
    write_manifests()
    assert Manifest(tmp_path).differences() == {}
    listed = [line.split("  ")[1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines()]
    assert listed == ["curves.csv", "figure_data/k/a.npz", "pairs.csv"]


@pytest.mark.parametrize("text", ["nonsense\n", "0" * 64 + "  curves.csv", "0" * 63 + "  curves.csv\n"])
def test_a_file_that_is_no_manifest_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "SHA256SUMS").write_text(text)
    with pytest.raises(ChangedFileError, match=r"SHA256SUMS, line 1: expected a SHA-256"):
        Manifest(tmp_path).differences()


def test_sha256sum_reads_it(tmp_path: Path) -> None:
    names = ["a b.npz", "[CLS] a.npz", "\u2028.npz"]
    record = tmp_path / "record"
    targets = [record / "figure_data" / "k" / name for name in names]
    sources = {target: tmp_path / f"{i}" for i, target in enumerate(targets)}
    for i, source in enumerate(sources.values()):
        source.write_text(str(i))
    assert csv_record._copy(sources, record) == len(names)
    write_manifests()
    assert Manifest(record).differences() == {}
    words = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(words, cwd=record, check=False).returncode == 0
    targets[1].write_text("other")
    assert list(Manifest(record).differences()) == [targets[1]]


def test_outputs_are_taken_as_made_and_quickstarts_are_not_listed(tmp_path: Path) -> None:
    made = [tmp_path / "tables" / "small" / "a.md", tmp_path / "tables" / "quickstart" / "q.md"]
    for path in made:
        path.parent.mkdir(parents=True)
        path.write_text("1")
    Manifest(tmp_path).accept(made)
    made[0].write_text("2")
    assert list(Manifest(tmp_path).differences()) == [made[0]]
    Manifest(tmp_path).accept(made)
    made[0].unlink()
    assert Manifest(tmp_path).differences() != {}
    Manifest(tmp_path).accept(made)
    assert (tmp_path / "SHA256SUMS").read_text() == ""


@pytest.mark.parametrize(
    "folder", [csv_record.MLRUNS, csv_record.outputs(csv_record.MLRUNS)], ids=["record", "outputs"]
)
def test_git_has_what_the_committed_manifests_list(folder: Path) -> None:
    listed = {line.split("  ", 1)[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    words = ["git", "ls-files", "-z", "--", "*.csv", "figure_data", "tables", "figures"]
    if not shutil.which("git") or not (csv_record.MLRUNS.parent / ".git").exists():
        pytest.skip("no git checkout")
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    tracked = {name for name in done.stdout.split("\0") if name and not name.startswith("measured/")}
    assert listed == tracked
    assert Manifest(folder).differences() == {}
