"""The model card of an exported encoder, as the hub's own reader and other libraries see the folder."""

import json
import re
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from cse_core import Corpus, Encoder, Pretrained, Run, SimCSE, export
from cse_core.model_card import model_card
from cse_core.models.pretrained import encoder_hash
from cse_core.training.checkpoint import write_manifest
from tests.support.full_disk import files_of_at_most

SCORES = {"stsb": {"spearman.all": 0.7654321, "pearson.all": 0.5}, "trec": {"acc": 0.25}, "my_set": {"kendall": 0.125}}


def run(corpus: str, backbone: str = "bert-base-uncased") -> Run:
    return Run(method=SimCSE(temperature=0.07), backbone=Pretrained(backbone), corpus=Corpus(corpus, 9), seed=5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.slow
def test_the_card_states_settings_and_scores_and_the_folder_opens(pooling: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", pooling=pooling)
    folder = export(encoder, tmp_path / "my-encoder", run=run("wiki"), scores=SCORES)
    card = ModelCard.load(folder / "README.md")
    results = {(one.task_type, one.dataset_name, one.metric_type): one.metric_value for one in card.data.eval_results}
    assert results == {
        ("semantic-similarity", "stsb", "spearman.all"): 0.7654321,
        ("semantic-similarity", "stsb", "pearson.all"): 0.5,
        ("text-classification", "trec", "acc"): 0.25,
        ("sentence-similarity", "my_set", "kendall"): 0.125,
    }
    assert (card.data.base_model, card.data.library_name) == ("bert-base-uncased", "sentence-transformers")
    for line in (
        "| temperature | 0.07 |",
        "| seed | 5 |",
        f"| key | {run('wiki').key} |",
        "| stsb | spearman.all | 0.7654 |",
    ):
        assert line in card.text
    ours = encoder.encode(["a cat", "two dogs ran"])
    theirs = SentenceTransformer(str(folder), device="cpu").encode(["a cat", "two dogs ran"], convert_to_tensor=True)
    assert torch.allclose(ours, theirs, atol=1e-5, rtol=0)


def test_the_card_changes_nothing_that_distinguishes_encoders(tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", pooling="mean")
    encoder.save_pretrained(tmp_path / "plain")
    export(encoder, tmp_path / "carded", scores=SCORES)
    assert encoder_hash(tmp_path / "plain") == encoder_hash(tmp_path / "carded")
    folders = (tmp_path / "plain", tmp_path / "carded")
    plain, carded = ({path.relative_to(folder) for path in folder.rglob("*")} for folder in folders)
    assert carded - plain == {Path("README.md")}


@pytest.mark.slow
def test_an_export_replaces_an_older_one_and_leaves_other_files(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    template = 'This sentence : "{}" means [MASK].'
    prompted = Encoder.from_pretrained("wiki-tiny", pooling="mask", template=template)
    for encoder in (prompted, Encoder.from_pretrained("wiki-tiny", pooling="mean"), prompted):
        again = Encoder.from_pretrained(export(encoder, tmp_path))
        assert (again.pooling, again.template) == (encoder.pooling, encoder.template)
    assert (tmp_path / ".git" / "HEAD").is_file()
    assert not list(tmp_path.glob(".export-*"))
    card = (tmp_path / "README.md").read_text()
    assert "from sentence_transformers" not in card
    assert f"inside the template `{template}`" in card


def test_no_path_of_this_machine_is_in_a_card(tmp_path: Path) -> None:
    secret = tmp_path / "home of somebody" / "mine.txt"
    secret.parent.mkdir()
    secret.write_text("a\n")
    encoder = Encoder.from_pretrained("wiki-tiny")
    text = model_card(encoder, "x", run(str(secret), str(tmp_path / "backbone")).settings(), {})
    assert str(tmp_path) not in text
    assert "| corpus | mine.txt |" in text
    assert "| backbone | backbone |" in text
    assert "base_model" not in text
    hub = model_card(encoder, "x", run("wiki", "princeton-nlp/unsup-simcse").settings(), {})
    assert "| backbone | princeton-nlp/unsup-simcse |" in hub
    nested = {"teachers": f"simcse {tmp_path}/teacher seed 1 (0123); weight=0.5"}
    assert "| teachers | simcse teacher seed 1 (0123); weight=0.5 |" in model_card(encoder, "x", nested, {})


OF_LOADERS = {  # what an earlier export, or another model's clone, may have left
    "special_tokens_map.json": json.dumps({"cls_token": "the", "sep_token": "of", "pad_token": "[MASK]"}),
    "added_tokens.json": json.dumps({"cat": 7}),
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\n",
    "vocab.json": "{}",
    "merges.txt": "#version: 0.2\n",
    "tokenizer.model": "x",
    "spiece.model": "x",
    "sentence_bert_config.json": json.dumps({"max_seq_length": 3, "do_lower_case": False}),
    "config_sentence_transformers.json": json.dumps({"prompts": {"p": "query: "}, "default_prompt_name": "p"}),
    "modules.json": json.dumps(
        [
            {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ]
    ),
    "0_Transformer/config.json": "{}",
    "1_Pooling/config.json": json.dumps({"word_embedding_dimension": 1, "pooling_mode_max_tokens": True}),
    "1_CNN/cnn_config.json": "{}",
    "2_Dense/model.safetensors": "x",
    "encoder.json": json.dumps({"pooling": "top2_mean", "template": ""}),
    "pytorch_model.bin": "x",
    "model-00001-of-00002.safetensors": "x",
    "model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": {}}),
    "adapter_config.json": json.dumps({"peft_type": "LORA"}),
    "onnx/model.onnx": "x",
}
OF_PEOPLE = {
    ".git/HEAD": "ref: refs/heads/main\n",
    ".gitattributes": "*.safetensors filter=lfs\n",
    "LICENSE": "MIT\n",
    "notes/config.json": "{}",
    "2_Results/table.csv": "a\n",
    "plot.png": "x",
}


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def plant(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("pooling", ["cls", "first_last_mean"])
@pytest.mark.slow
def test_only_what_is_exported_now_is_left_for_a_loader(pooling: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", pooling=pooling)
    plant(tmp_path / "same", OF_LOADERS | OF_PEOPLE | {"README.md": model_card(encoder, "earlier", {}, {})})
    (tmp_path / "same" / "2_Normalize").mkdir()
    (tmp_path / "new").mkdir()
    fresh = content(export(encoder, tmp_path / "new" / "same", scores=SCORES))
    assert content(export(encoder, tmp_path / "same", scores=SCORES)) == fresh | {
        name: text.encode() for name, text in OF_PEOPLE.items()
    }
    assert not (tmp_path / "same" / "2_Normalize").exists()
    again = Encoder.from_pretrained(tmp_path / "same")
    assert torch.allclose(again.encode(["a cat"]), encoder.encode(["a cat"]), atol=1e-5, rtol=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An earlier export."""
    return export(Encoder.from_pretrained("wiki-tiny", pooling="mean"), tmp_path / "mine", scores=SCORES)


@pytest.mark.slow
def test_a_kill_amid_an_export_leaves_nothing_that_opens_as_a_mixture(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {".export-killed/old/config.json": "{}"})
    states: list[dict[str, bytes]] = []

    def watched(self: Path, target: Path) -> Path:
        states.append({name: data for name, data in content(folder).items() if not name.startswith(".export-")})
        return rename(self, target)

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", watched)
    export(Encoder.from_pretrained("wiki-tiny", pooling="top2_mean"), folder)
    whole = (states[0], content(folder))
    assert len(states) > 10
    assert [state for state in states if "config.json" in state and state not in whole] == []
    assert not list(folder.glob(".export-*"))


@pytest.mark.slow
def test_an_export_without_room_names_the_folder_and_leaves_the_earlier_one(folder: Path, tmp_path: Path) -> None:
    plant(folder, OF_PEOPLE)
    before = content(folder)
    for target in (folder, tmp_path / "other"):
        with files_of_at_most(1_000_000), pytest.raises(OSError) as caught:
            export(Encoder.from_pretrained("wiki-tiny"), target)
        assert caught.value.filename == str(target)
        assert "MiB free" in str(caught.value)
    assert content(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_an_export_that_fails_between_two_files_moves_all_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(folder, OF_LOADERS | OF_PEOPLE)
    before, real = content(folder), Path.rename
    encoder = Encoder.from_pretrained("wiki-tiny")
    failed = 0
    for moves in range(0, 40, 3):
        done: list[Path] = []

        def rename(path: Path, target: Path, moves: int = moves, done: list[Path] = done) -> Path:
            done.append(path)
            if len(done) == moves + 1:
                raise KeyboardInterrupt
            return real(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            try:
                export(encoder, folder)
            except KeyboardInterrupt:
                failed += 1
                assert content(folder) == before
            else:
                break
    assert failed > 5
    assert Encoder.from_pretrained(folder).pooling == "cls"


@pytest.mark.parametrize("mine", ["README.md", "my_config.json", "tokenizer_notes.txt", "onnx/x"])
def test_a_folder_of_other_files_that_an_export_would_replace_is_refused(mine: str, tmp_path: Path) -> None:
    text = "Sentence embeddings of legal texts, my notes"
    plant(tmp_path / "project", {mine: text, "notes.md": "mine"})
    (tmp_path / ".export-killed").mkdir()  # an export into a folder here that was killed
    before = content(tmp_path)
    named = re.escape(mine.partition("/")[0])
    with pytest.raises(FileExistsError, match=f"project: is no earlier export, and {named} would be replaced"):
        export(Encoder.from_pretrained("wiki-tiny"), tmp_path / "project")
    assert content(tmp_path) == before


@pytest.mark.slow
def test_a_clone_of_a_new_repository_is_a_place_for_an_export(tmp_path: Path) -> None:
    plant(tmp_path / "clone", {".git/HEAD": "x", ".gitattributes": "x", "README.md": "---\nlicense: mit\n---\n"})
    export(Encoder.from_pretrained("wiki-tiny"), tmp_path / "clone")
    assert "compared by cosine" in (tmp_path / "clone/README.md").read_text()


def test_a_runs_checkpoint_and_a_file_are_no_places_for_an_export(tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny")
    encoder.save_pretrained(tmp_path / "last")
    write_manifest(tmp_path / "last", key="0123", rule="last", step=1)
    (tmp_path / "file").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(FileExistsError, match=r"last: holds the checkpoint of a run, .* export to another folder"):
        export(encoder, tmp_path / "last")
    with pytest.raises(FileExistsError, match=r"file: expected a new folder, .* this is a file"):
        export(encoder, tmp_path / "file")
    assert content(tmp_path) == before
