"""Corpora and backbones that are given only by name keep the content that their first run found."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from cse_core.data.pins import PINS, enforce_pins, read_pins
from cse_core.data.synthetic import sentences
from cse_core.method import Method
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.models import pretrained
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import encoder_hash, resolve_pinned
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution
from cse_core.training.train import train
from tests.support.processes import at_once


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "mine.txt").write_text("\n".join(sentences(64)) + "\n")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def backbone(tmp_path: Path) -> Path:
    return shutil.copytree(pretrained.ASSETS / "wiki-tiny", tmp_path / "backbone")


def run(backbone: Path | str, method: Method = SimCSE(), seed: int = 42) -> Run:  # noqa: B008 - frozen
    corpus = Corpus("mine", 64)
    return Run(method=method, backbone=Pretrained(str(backbone)), corpus=corpus, batch_size=32, seed=seed)


def other_sentences(data: Path) -> None:
    (data / "mine.txt").write_text("\n".join(reversed(sentences(64))) + "\n")


def other_weights(backbone: Path) -> None:
    encoder = Encoder.from_pretrained(backbone)
    with torch.no_grad():
        next(encoder.backbone.parameters()).mul_(2)
    encoder.save_pretrained(backbone)


@pytest.mark.slow
def test_the_first_run_pins_what_it_takes_by_name(backbone: Path, data: Path, store: Path, cache: Path) -> None:
    history = train(run(backbone), Execution(store, data=data))
    assert read_pins(store) == {
        "corpus mine, first 64 lines": history.data["corpus"],
        f"backbone {backbone}": history.data["backbone"],
    }
    before = (store / PINS).stat().st_mtime_ns
    train(run(backbone, seed=1), Execution(store, data=data))
    assert (store / PINS).stat().st_mtime_ns == before


@pytest.mark.slow
def test_other_sentences_under_the_name_are_refused(backbone: Path, data: Path, store: Path, cache: Path) -> None:
    first = train(run(backbone), Execution(store, data=data)).data["corpus"]
    other_sentences(data)
    with pytest.raises(ValueError) as caught:
        train(run(backbone, seed=1), Execution(store, data=data))
    said = str(caught.value)
    assert said.startswith(f"run {run(backbone, seed=1).key}: corpus mine, first 64 lines has the content ")
    assert f"found {first} ({store / PINS}); put that content back" in said
    assert not (store / run(backbone, seed=1).key / "last").exists()
    train(run(backbone, seed=1), Execution(store.with_name("another"), data=data))  # as the message says


@pytest.mark.slow
def test_other_weights_under_the_name_are_refused(backbone: Path, data: Path, store: Path, cache: Path) -> None:
    named = Pretrained(str(backbone))
    first = train(run(backbone), Execution(store, data=data)).data["backbone"]
    assert resolve_pinned(named, store) == backbone  # as a teacher, or scored as it is
    other_weights(backbone)
    both = f"backbone {backbone} has the content {encoder_hash(backbone)}, but the first run .* found {first}"
    there = Execution(store, data=data)
    for use in (lambda: train(run(backbone, seed=1), there), lambda: resolve_pinned(named, store)):
        with pytest.raises(ValueError, match=both):
            use()


@pytest.mark.slow
def test_a_finished_run_is_refused_as_another_seed_is(backbone: Path, data: Path, store: Path, cache: Path) -> None:
    """Also if only an encoder that taught it changed. If the name leads nowhere, the run is still finished."""
    teacher = shutil.copytree(backbone, backbone.with_name("teacher"))
    finished = run(backbone, method=RankCSE(teachers=(Teacher(Pretrained(str(teacher)), 1.0),)))
    texts = (data / "mine.txt").read_text()
    history = train(finished, Execution(store, data=data))
    for change, back, named in (
        (lambda: other_sentences(data), lambda: (data / "mine.txt").write_text(texts), "corpus mine, first 64 lines"),
        (lambda: other_weights(backbone), lambda: replace_folder(pretrained.ASSETS / "wiki-tiny", backbone), backbone),
        (lambda: other_weights(teacher), lambda: replace_folder(backbone, teacher), teacher),
    ):
        change()
        with pytest.raises(ValueError, match=f"{named} has the content .*, but the first run that used it found"):
            train(finished, Execution(store, data=data))
        back()
        assert train(finished, Execution(store, data=data)) == history
    (data / "mine.txt").unlink()
    assert train(finished, Execution(store, data=data)) == history


def replace_folder(source: Path, target: Path) -> None:
    shutil.rmtree(target)
    shutil.copytree(source, target)


def test_what_declares_its_hash_has_no_pin(store: Path, cache: Path) -> None:
    declared = Pretrained("wiki-tiny", encoder_hash(pretrained.ASSETS / "wiki-tiny"))
    resolve_pinned(declared, store)
    assert read_pins(store) == {}


@pytest.mark.slow
def test_a_teacher_that_learnt_from_other_sentences_is_refused(
    backbone: Path, data: Path, store: Path, cache: Path
) -> None:
    """The teacher's folder comes from another machine, whose file of that name had other sentences."""
    teacher = run(backbone)
    student = run(backbone, method=RankCSE(teachers=(Teacher(teacher, 1.0),)))
    elsewhere = store.with_name("elsewhere")
    theirs = train(teacher, Execution(elsewhere, data=data)).data["corpus"]
    shutil.copytree(elsewhere / teacher.key, store / teacher.key)
    other_sentences(data)
    with pytest.raises(ValueError, match=f"run {student.key}: corpus mine.* but the first run .* found {theirs}"):
        train(student, Execution(store, data=data))


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"corpus mine": 3}'])
def test_damaged_pins_are_an_error_and_stay(damage: str, tmp_path: Path) -> None:
    enforce_pins(tmp_path, {"corpus mine": "a"}, "a test")
    (tmp_path / PINS).write_text(damage)
    with pytest.raises(ValueError, match=rf"{PINS}: damaged .*; put a copy back, or delete it"):
        enforce_pins(tmp_path, {"corpus mine": "b"}, "a test")
    assert (tmp_path / PINS).read_text() == damage


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.slow
def test_of_many_processes_at_once_one_pins_and_the_others_are_refused(tmp_path: Path) -> None:
    def pins(number: int) -> bool:
        try:
            enforce_pins(tmp_path, {f"corpus {number}": "same", "corpus shared": str(number)}, f"process {number}")
        except ValueError:
            return False
        return True

    assert sum(at_once(pins, 6)) == 1
    pinned = json.loads((tmp_path / PINS).read_text())
    assert pinned == {f"corpus {pinned['corpus shared']}": "same", "corpus shared": pinned["corpus shared"]}


def test_a_backbone_whose_hash_is_known_must_have_it(backbone: Path, store: Path, monkeypatch) -> None:
    monkeypatch.chdir(backbone.parent)
    backbone.rename("bert-base-uncased")  # a folder of that name replaces the hub's
    known = pretrained.HUB_WEIGHTS["bert-base-uncased"]
    with pytest.raises(ValueError, match=f"model.safetensors: sha256 [0-9a-f]{{64}}, expected {known}, as the hub's"):
        resolve_pinned(Pretrained("bert-base-uncased"), store)
    assert read_pins(store) == {}
