"""The model card of an exported encoder, as the hub's own reader and other libraries see the folder."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from cse_core import Corpus, Encoder, Pretrained, Run, SimCSE, export
from cse_core.model_card import model_card
from cse_core.models.pretrained import encoder_hash

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
    written = {path.relative_to(tmp_path / "carded").as_posix() for path in (tmp_path / "carded").rglob("*")}
    assert written - {path.relative_to(tmp_path / "plain").as_posix() for path in (tmp_path / "plain").rglob("*")} == {
        "README.md"
    }


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
