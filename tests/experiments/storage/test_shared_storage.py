"""Run folders on shared storage: nothing is lost or written twice, and a late machine spoils nothing."""

import json
import shutil
import threading
import uuid
from pathlib import Path

import pytest
import torch

from cse_core.training.checkpoint import MANIFEST, WEIGHTS, CheckpointError, write_manifest
from cse_core.training.run_state import Checkpoint, History
from experiments.execution.job import Job
from experiments.storage import retries
from experiments.storage.retries import retry
from experiments.storage.shared_storage import COMPLETE, Shared
from tests.support import tiny_study
from tests.support.shared_folders import FILES, RULES, content, fill, prepared, saved


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Empty shared storage, in a folder or in memory."""
    return prepared((tmp_path / "shared").as_uri() if request.param == "file" else f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def shared(url: str, tmp_path: Path) -> Shared:
    """Shared storage with FILES as version 1 of run "key"; they are also in tmp_path / "a"."""
    shared = Shared(url)
    assert shared.publish(fill(tmp_path / "a" / "key"), 0)
    return shared


def cut(shared: Shared, file: str) -> None:
    """Cut the last byte of a file of version 1, or of the file "1" that names its folder."""
    path = f"{shared.root}/key/1" if file == "1" else f"{shared._folder('key', 1)}/{file}"
    shared.files.pipe_file(path, shared.files.cat_file(path)[:-1])


def resumed_at(store: Path) -> int:
    """The step of the run's state in a store."""
    return torch.load(store / "key" / "state.pt")["step"]


def test_a_published_folder_is_found_whole_by_others(url: str, tmp_path: Path) -> None:
    assert Shared(url).fetch("key", tmp_path / "b") == 0
    assert not (tmp_path / "b").exists()
    folder = fill(tmp_path / "a" / "key")
    (folder / "state.part").touch()  # under way
    assert Shared(url).publish(folder, 0)
    assert Shared(url).fetch("key", tmp_path / "b") == 1
    assert content(tmp_path / "b" / "key") == FILES
    Shared(url).fetch("key", tmp_path / "c", weights=False)
    assert content(tmp_path / "c" / "key") == {k: v for k, v in FILES.items() if not k.startswith("stsb_dev")}
    Shared(url).fetch("key", tmp_path / "c")  # now with weights, as another run on that machine needs them
    assert content(tmp_path / "c" / "key") == FILES


def test_a_machine_that_finishes_late_changes_nothing(url: str, tmp_path: Path) -> None:
    late, first = Shared(url), Shared(url)
    assert first.publish(fill(tmp_path / "a" / "key", result_json=b"first"), 0)
    assert not late.publish(fill(tmp_path / "b" / "key", result_json=b"late"), 0)
    late.share_state(saved(tmp_path / "late" / "key", 7), RULES)
    assert len(late._states("key")) == 1
    Shared(url).fetch("key", tmp_path / "c")
    assert content(tmp_path / "c" / "key") == FILES | {"result.json": b"first"}


def test_of_many_machines_that_publish_at_once_one_wins(tmp_path: Path) -> None:
    url, won = prepared((tmp_path / "shared").as_uri()), []
    folders = [fill(tmp_path / str(i) / "key", result_json=str(i).encode()) for i in range(8)]
    ready = threading.Barrier(len(folders))

    def publish(folder: Path) -> None:
        ready.wait()
        if Shared(url).publish(folder, 0):
            won.append(folder)

    threads = [threading.Thread(target=publish, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    Shared(url).fetch("key", tmp_path / "found")
    assert content(tmp_path / "found" / "key") == content(won[0])


def test_further_scores_make_a_later_version(shared: Shared, url: str, tmp_path: Path) -> None:
    more = Shared(url)
    last = more.fetch("key", tmp_path / "b")
    assert more.publish(fill(tmp_path / "b" / "key", result_json=b"more"), last)
    assert Shared(url).fetch("key", tmp_path / "a") == 2  # where version 1 came from
    assert (tmp_path / "a" / "key" / "result.json").read_bytes() == b"more"


def test_a_run_resumes_from_the_furthest_whole_state(url: str, tmp_path: Path) -> None:
    one, other = Shared(url), Shared(url)
    for step in (4, 12, 8):
        one.share_state(saved(tmp_path / "a" / "key", step), RULES)
    for _ in range(2):  # the same one again
        other.share_state(saved(tmp_path / "a" / "key", 5), RULES)
    assert len(other._states("key")) == 2
    other._upload(saved(tmp_path / "a" / "key", 99), f"{other.root}/key/state-99-last+stsb_dev-0123456789ab")
    other.files.rm(f"{other.root}/key/state-99-last+stsb_dev-0123456789ab/complete")  # written last
    Shared(url).fetch("key", tmp_path / "b", rules=RULES)
    assert resumed_at(tmp_path / "b") == 8  # the last state of `one`, whose earlier states are gone
    assert one.publish(fill(tmp_path / "c" / "key"), 0)
    assert not one._states("key")


@pytest.mark.parametrize(("own", "brought", "found"), [(4, 8, 8), (8, 4, 8), (8, 8, 8)])
def test_a_run_resumes_from_the_further_of_a_machines_own_and_the_shared_state(
    url: str, tmp_path: Path, own: int, brought: int, found: int
) -> None:
    Shared(url).share_state(saved(tmp_path / "a" / "key", brought), RULES)
    saved(tmp_path / "b" / "key", own)
    Shared(url).fetch("key", tmp_path / "b", rules=RULES)
    assert resumed_at(tmp_path / "b") == found


def test_states_of_other_selection_rules_are_neither_fetched_nor_kept(url: str, tmp_path: Path) -> None:
    Shared(url).share_state(saved(tmp_path / "a" / "key", 12, ("last",)), ("last",))
    Shared(url).fetch("key", tmp_path / "b", rules=RULES)
    assert not (tmp_path / "b").exists()
    Shared(url).share_state(saved(tmp_path / "c" / "key", 4), RULES)
    mine = saved(tmp_path / "b" / "key", 8, ("last",))
    Shared(url).fetch("key", tmp_path / "b", rules=RULES[::-1])
    found = torch.load(mine / "state.pt")
    assert (found["step"], found["keep"]) == (4, sorted(RULES))


def test_a_state_that_was_half_uploaded_is_uploaded_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, folder = Shared(url), saved(tmp_path / "a" / "key", 4)

    def unreachable(place: str, content: bytes) -> None:
        raise OSError(place)

    monkeypatch.setattr(shared.files, "pipe_file", unreachable)
    with pytest.raises(OSError, match=COMPLETE):
        shared.share_state(folder, RULES)
    monkeypatch.undo()
    Shared(url).fetch("key", tmp_path / "b", rules=RULES)
    assert not (tmp_path / "b").exists()
    shared.share_state(folder, RULES)
    Shared(url).fetch("key", tmp_path / "b", rules=RULES)
    assert resumed_at(tmp_path / "b") == 4


@pytest.mark.parametrize("why", ["it is torn", "its checkpoint is missing"])
def test_a_machines_own_state_that_can_not_be_resumed_gives_way(url: str, tmp_path: Path, why: str) -> None:
    Shared(url).share_state(saved(tmp_path / "a" / "key", 4), RULES)
    if why == "it is torn":
        mine = saved(tmp_path / "b" / "key", 8) / "state.pt"
        mine.write_bytes(mine.read_bytes()[:100])
    else:
        saved(tmp_path / "b" / "key", 8, last=Checkpoint(8, None))
    Shared(url).fetch("key", tmp_path / "b", rules=RULES)
    assert resumed_at(tmp_path / "b") == 4


def test_a_state_that_is_deleted_while_it_is_fetched_is_looked_for_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Shared(url)
    other.share_state(saved(tmp_path / "a" / "key", 4), RULES)
    download = Shared._download

    def late(self: Shared, source: str, folder: Path, *, weights: bool) -> None:
        monkeypatch.setattr(Shared, "_download", download)
        assert other.publish(fill(tmp_path / "c" / "key"), 0)  # and the states go
        download(self, source, folder, weights=weights)

    monkeypatch.setattr(Shared, "_download", late)
    assert Shared(url).fetch("key", tmp_path / "b", rules=RULES) == 1
    assert content(tmp_path / "b" / "key") == FILES


@pytest.mark.parametrize(
    "file", ["stsb_dev/model.safetensors", "history.json", "complete", "result.json", "pair_scores/x.npz"]
)
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "altered"])
def test_a_damaged_version_is_set_aside_and_a_later_one_heals_it(
    shared: Shared, url: str, tmp_path: Path, file: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{shared._folder('key', 1)}/{file}"
    whole = shared.files.cat_file(path)
    changed = {"empty": b"", "cut": whole[:-3], "altered": whole[:-1] + b"?"}
    shared.files.rm(path) if damage == "gone" else shared.files.pipe_file(path, changed[damage])
    last = Shared(url).fetch("key", tmp_path / "b")
    assert (last, content(tmp_path / "b" / "key")) == (1, {})
    assert not (tmp_path / "b" / "key" / "shared").exists()
    assert "key/1: damaged" in caplog.text
    assert not Shared(url).holds("key", ())
    assert Shared(url).publish(fill(tmp_path / "c" / "key"), last)
    assert Shared(url).fetch("key", tmp_path / "d") == 2
    assert content(tmp_path / "d" / "key") == FILES
    assert shared.files.exists(f"{shared.root}/key/1.damaged")  # and its files stay


@pytest.mark.parametrize("file", ["1", "stsb_dev/model.safetensors", "complete"])
def test_a_damaged_version_is_uploaded_again_from_a_whole_copy(
    shared: Shared, url: str, tmp_path: Path, file: str
) -> None:
    folder = tmp_path / "a" / "key"
    shared.fetch("key", tmp_path / "a")
    cut(shared, file)
    last = Shared(url).fetch("key", tmp_path / "a")
    assert (last, content(folder)) == (1, FILES)
    assert not (folder / "shared").exists()  # so execute_shared uploads what is here
    assert Shared(url).publish(folder, last)
    Shared(url).fetch("key", tmp_path / "b")
    assert content(tmp_path / "b" / "key") == FILES


@pytest.mark.parametrize("place", ["1", "{}", "{}/complete"])
def test_a_file_in_place_of_a_folder_or_the_reverse_is_damage_too(tmp_path: Path, place: str) -> None:
    shared = Shared(prepared((tmp_path / "shared").as_uri()))
    shared.publish(fill(tmp_path / "a" / "key"), 0)
    path = tmp_path / "shared" / "key" / place.format(f"{shared.attempt}-1")
    if path.is_dir():
        shutil.rmtree(path)
        path.touch()
    else:
        path.unlink()
        path.mkdir()
    assert not shared.holds("key", ())
    assert shared.fetch("key", tmp_path / "b") == 1
    assert Shared(shared.url).publish(fill(tmp_path / "c" / "key"), 1)
    assert shared.fetch("key", tmp_path / "b") == 2
    assert content(tmp_path / "b" / "key") == FILES


def test_if_the_last_version_is_damaged_the_one_before_it_counts(shared: Shared, url: str, tmp_path: Path) -> None:
    shared.publish(fill(tmp_path / "a" / "key", result_json=b"more"), 1)
    shared.files.pipe_file(f"{shared.root}/key/2", b"")
    assert Shared(url).fetch("key", tmp_path / "b") == 2
    assert content(tmp_path / "b" / "key") == FILES


@pytest.mark.parametrize("file", ["stsb_dev/model.safetensors", "history.json", "complete"])
def test_a_version_with_a_cut_or_missing_file_is_not_planned_with(url: str, tmp_path: Path, file: str) -> None:
    shared = Shared(url)
    shared.publish(trained(tmp_path / "a" / "key"), 0)
    cut(shared, file)
    assert not Shared(url).holds("key", ("stsb_dev",))
    shared.files.rm(f"{shared._folder('key', 1)}/{file}")
    assert not Shared(url).holds("key", ("stsb_dev",))


def test_a_damaged_state_is_deleted_and_the_next_furthest_counts(url: str, tmp_path: Path) -> None:
    one, other = Shared(url), Shared(url)
    one.share_state(saved(tmp_path / "a" / "key", 4), RULES)
    other.share_state(saved(tmp_path / "c" / "key", 8), RULES)
    (state,) = [path for path in other._states("key") if "/state-8-" in path]
    other.files.pipe_file(f"{state}/state.pt", b"cut")
    Shared(url).fetch("key", tmp_path / "b", rules=RULES)
    assert resumed_at(tmp_path / "b") == 4
    assert state not in other._states("key")


def test_a_name_that_leads_out_of_the_folder_is_refused(shared: Shared, url: str, tmp_path: Path) -> None:
    for name in ("../stolen", "/stolen"):
        listed = json.dumps({name: {"bytes": 1, "sha256": ""}}).encode()
        shared.files.pipe_file(f"{shared._folder('key', 1)}/complete", listed)
        with pytest.raises(ValueError, match="outside the run's folder"):
            Shared(url).fetch("key", tmp_path / "b")


def test_what_is_published_is_not_written_again_if_tidying_up_fails(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, folder = Shared(url), fill(tmp_path / "a" / "key")
    shared.share_state(saved(tmp_path / "b" / "key", 4), RULES)

    def not_empty(*given: object, **how: object) -> None:
        raise OSError("directory not empty")

    monkeypatch.setattr(shared.files, "rm", not_empty)
    assert shared.publish(folder, 0)
    monkeypatch.setattr(shared, "_upload", not_empty)
    assert shared.publish(folder, 0)  # the same attempt, tried again


def test_nothing_of_a_late_machine_stays_on_the_storage(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    loser = Shared(prepared(shared.as_uri()))
    assert Shared(shared.as_uri()).publish(fill(tmp_path / "a" / "key"), 0)
    before = content(shared)
    loser.share_state(saved(tmp_path / "late" / "key", 7), RULES)
    assert content(shared) != before
    assert not loser.publish(fill(tmp_path / "b" / "key"), 0)
    assert content(shared) == before


def test_a_folder_that_is_not_mounted_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_TIMEOUT_SECONDS", 0.0)
    shared = tmp_path / "shared"
    job = Job(tiny_study.run(), "tiny", "a")
    with pytest.raises(OSError, match="no sweep has prepared this folder; is it mounted"):
        Shared(shared.as_uri()).publish(fill(tmp_path / "a" / "key"), 0)
    with pytest.raises(OSError, match="is it mounted"):
        retry(lambda: Shared(shared.as_uri()).share_state(saved(tmp_path / "b" / job.key, 4), RULES))
    assert not shared.exists()


def test_storage_on_which_two_could_both_be_first_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Shared, path: str, name: str) -> bool:
        self.files.pipe_file(path, name.encode())
        return True

    def unable(self: Shared, path: str, name: str) -> bool:
        raise ValueError("mode xb of ann:secret://ann:secret@host")

    for claim, reason in ((careless, "can be created again"), (unable, r"mode xb of ann:secret://\*\*\*@host")):
        monkeypatch.setattr(Shared, "_claim", claim)
        with pytest.raises(OSError, match=f"can't be shared.*{reason}"):
            Shared(url).prepare()


def test_a_file_that_could_run_code_is_not_fetched(url: str, tmp_path: Path) -> None:
    folder = fill(tmp_path / "a" / "key")
    (folder / "stsb_dev" / "pytorch_model.bin").write_bytes(b"code")
    assert Shared(url).publish(folder, 0)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is none of"):
        Shared(url).fetch("key", tmp_path / "b")
    assert not list(tmp_path.glob("b/key/**/*.bin*"))


def test_storage_holds_the_checkpoints_that_were_published(url: str, tmp_path: Path) -> None:
    shared = Shared(url)
    assert not shared.holds("key", ())
    shared.publish(trained(tmp_path / "a" / "key"), 0)
    assert shared.holds("key", ("stsb_dev",))
    assert not shared.holds("key", ("stsb_dev", "last"))


def trained(folder: Path) -> Path:
    """A run's folder with one checkpoint and the history that fits it."""
    fill(folder)
    manifest = write_manifest(folder / "stsb_dev", key=folder.name, rule="stsb_dev", step=4)
    History(steps=8, kept={"stsb_dev": Checkpoint(4, 0.5, manifest.weights)}).write(folder)
    return folder


def test_checkpoints_that_do_not_fit_their_history_are_neither_published_nor_counted(url: str, tmp_path: Path) -> None:
    shared, folder = Shared(url), trained(tmp_path / "a" / "key")
    (folder / "stsb_dev" / WEIGHTS).write_bytes(b"weightz")
    with pytest.raises(CheckpointError, match=r"stsb_dev/model.safetensors: SHA-256"):
        shared.publish(folder, 0)
    assert not shared.holds("key", ("stsb_dev",))
    other = trained(tmp_path / "b" / "key")
    shared.publish(other, 0)
    write_manifest(other / "stsb_dev", key="key", rule="stsb_dev", step=5)  # an attempt that was not finished
    shared.files.put_file(str(other / "stsb_dev" / MANIFEST), f"{shared._folder('key', 1)}/stsb_dev/{MANIFEST}")
    assert not shared.holds("key", ("stsb_dev",))
