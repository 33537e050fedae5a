"""The n-gram poolings: their states by loops, in a folder, in every scorer, and in sentence-transformers itself."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from cse_core.data.batches import pad
from cse_core.evaluation.scorers import Cosine
from cse_core.methods.baselines.isbert import ISBERT
from cse_core.methods.simcse import SimCSE
from cse_core.models.embedding_cache import CachedEncoder
from cse_core.models.encoder import Encoder
from cse_core.models.pooling import NgramPooling
from cse_core.models.pretrained import encoder_hash
from cse_core.models.sentence_transformers_format import read_pooling
from cse_core.run import Corpus, Pretrained, Run
from tests.support.encoders import wiki_tiny
from tests.support.method_steps import seeded
from tests.support.ngram_loops import by_loops, encoder_of
from tests.support.one_by_one import states_of

TEXTS = ["a cat sat on a mat", "the river rose", "snow", "two old men argued about fish at length", "no", ""]
POOLINGS = ("ngrams", "ngrams_linear")


@pytest.mark.parametrize("relu", [True, False])
def test_ngram_states_are_windows_of_a_sentence_s_own_tokens(relu: bool) -> None:
    pooling = NgramPooling(6, relu=relu, generator=seeded())
    states, mask = torch.randn(3, 7, 6, generator=seeded(1)), torch.arange(7) < torch.tensor([7, 1, 4])[:, None]
    found = pooling.ngrams(states, mask).detach().double()
    means = pooling(states, mask).detach().double()
    for row, length in enumerate((7, 1, 4)):
        reference = by_loops(states[row, :length], pooling)
        torch.testing.assert_close(found[row, :length], reference, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(means[row], reference.mean(0), atol=1e-6, rtol=1e-5)
    assert (found < 0).any() != relu


@pytest.mark.parametrize(
    ("relu", "expected"), [(False, [[210.5, -209.5], [21.5, -20.5]]), (True, [[210.5, 0], [21.5, 0]])]
)
def test_padding_counts_as_zeros(relu: bool, expected: list[list[float]]) -> None:
    kernel, pooling = torch.tensor([[[1.0, 10.0, 100.0]]]), NgramPooling(1, channels=2, windows=(3,), relu=relu)
    pooling.load_state_dict({"convs.0.weight": torch.cat([kernel, -kernel]), "convs.0.bias": torch.full((2,), 0.5)})
    states, mask = torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[True, True, False]])
    assert pooling.ngrams(states, mask)[0, :2].tolist() == expected


@pytest.mark.parametrize(("width", "channels"), [(768, 256), (128, 43), (1024, 341)])
def test_a_third_of_the_width_is_each_window_s(width: int, channels: int) -> None:
    pooling = NgramPooling(width, generator=seeded())
    assert (pooling.channels, pooling.windows, pooling.width) == (channels, (1, 3, 5), 3 * channels)
    for conv, window in zip(pooling.convs, (1, 3, 5), strict=True):
        assert conv.weight.shape == (channels, width, window)
        assert conv.weight.abs().max().item() == pytest.approx((width * window) ** -0.5, rel=0.01)
    with pytest.raises(ValueError, match=r"windows of an n-gram pooling must be odd numbers of tokens, got \[2\]"):
        NgramPooling(width, windows=[2])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.slow
def test_a_batch_gives_each_sentence_its_own_vector(pooling: str) -> None:
    encoder = encoder_of(pooling)
    found = encoder.encode(TEXTS)
    assert found.shape == (len(TEXTS), encoder.width) == (6, 129)
    assert encoder.ngrams is not None
    for vector, ids in zip(found, encoder.tokenise(TEXTS), strict=True):
        reference = by_loops(states_of(encoder.backbone, ids)[-1], encoder.ngrams).mean(0)
        torch.testing.assert_close(vector.double(), reference, atol=1e-5, rtol=1e-4)


def test_packed_and_dense_passes_agree_with_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of()
    tokens = pad([[101, *range(1000, 1000 + n), 102] for n in (3, 9, 1)], encoder.pad_id)
    outcomes = []
    for packed in (True, False):
        monkeypatch.setattr(Encoder, "runs_packed", packed)
        encoder.zero_grad()
        (vectors,) = encoder(tokens)
        vectors.square().sum().backward()
        outcomes.append((vectors, [p.grad.clone() for p in encoder.parameters() if p.grad is not None]))
    (first, gradients), (second, others) = outcomes
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)
    assert len(gradients) > 30
    for a, b in zip(gradients, others, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_folder_holds_pooling_and_weights(pooling: str, tmp_path: Path) -> None:
    encoder = encoder_of(pooling)
    encoder.save_pretrained(tmp_path / "saved")
    again = Encoder.from_pretrained(tmp_path / "saved")
    assert (again.pooling, again.template, again.width) == (pooling, "", 129)
    assert again.state_dict().keys() == encoder.state_dict().keys()
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))
    assert read_pooling(tmp_path / "saved") == (pooling, "")
    (name,) = set(POOLINGS) - {pooling}
    other = Encoder.from_pretrained(tmp_path / "saved", pooling=name)
    assert not torch.equal(other.encode(TEXTS), again.encode(TEXTS))
    mean = Encoder.from_pretrained(tmp_path / "saved", pooling="mean")
    assert torch.equal(mean.encode(TEXTS), wiki_tiny(pooling="mean").encode(TEXTS))


@pytest.mark.slow
def test_other_weights_of_the_pooling_are_another_encoder(tmp_path: Path) -> None:
    for name, encoder in {"2": encoder_of(seed=2), "3": encoder_of(seed=3), "linear": encoder_of(POOLINGS[1])}.items():
        encoder.save_pretrained(tmp_path / name)
    assert len({encoder_hash(folder) for folder in tmp_path.iterdir()}) == 3


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.slow
def test_sentence_transformers_opens_it_and_gives_the_same_vectors(pooling: str, tmp_path: Path) -> None:
    """One text at a time: next to longer ones, only sentence-transformers lets padding into the last windows."""
    encoder = encoder_of(pooling)
    encoder.save_pretrained(tmp_path / "saved")
    model = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    found = model.encode(TEXTS, batch_size=1, convert_to_tensor=True)
    torch.testing.assert_close(found, encoder.encode(TEXTS), atol=1e-6, rtol=1e-5)


def test_what_sentence_transformers_wrote_is_read(tmp_path: Path) -> None:
    encoder = encoder_of("ngrams_linear")
    encoder.save_pretrained(tmp_path / "saved")
    SentenceTransformer(str(tmp_path / "saved"), device="cpu").save(str(tmp_path / "theirs"))
    again = Encoder.from_pretrained(tmp_path / "theirs")
    assert again.pooling == "ngrams_linear"
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))


def test_views_copies_and_caches_carry_the_weights() -> None:
    encoder = encoder_of()
    expected = encoder.encode(TEXTS)
    cached = CachedEncoder(encoder)
    for scorer in (Cosine(), Cosine("ngrams")):
        assert torch.equal(scorer.vectors(cached, TEXTS), expected)
    assert Cosine("mean").vectors(cached, TEXTS).shape == (6, 128)
    copied = encoder.clone()
    assert torch.equal(copied.encode(TEXTS), expected)
    with torch.no_grad():
        encoder.ngrams.convs[0].weight.add_(1)  # ty: ignore
    assert torch.equal(copied.encode(TEXTS), expected)
    assert not torch.equal(encoder.encode(TEXTS), expected)


def test_an_encoder_without_the_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wiki-tiny: holds no weights of the pooling ngrams; only training makes new"):
        Encoder.from_pretrained("wiki-tiny", pooling="ngrams")
    with pytest.raises(ValueError, match="weights go with the poolings ngrams, ngrams_linear only, got ngrams"):
        wiki_tiny(pooling="mean").with_pooling("ngrams")
    about: Any = {"backbone": Pretrained("wiki-tiny"), "corpus": Corpus("synthetic", 32), "pooling": "ngrams"}
    assert Run(method=ISBERT(), **about).pooling == "ngrams"
    with pytest.raises(ValueError, match="the pooling ngrams has weights, which only isbert trains; got simcse"):
        Run(method=SimCSE(), **about)


@pytest.mark.slow
def test_damaged_and_foreign_folders_are_refused_by_name(tmp_path: Path) -> None:
    encoder_of().save_pretrained(tmp_path / "saved")

    def broken(name: str, change: Any) -> Path:
        folder = tmp_path / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "saved", folder)
        path = folder / name
        if isinstance(change, dict):
            path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        elif change is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:change])
        return folder

    for name, change, message in (
        ("1_CNN/model.safetensors", 50, "1_CNN/model.safetensors: cut short, damaged or missing"),
        ("1_CNN/model.safetensors", None, "1_CNN/model.safetensors: cut short, damaged or missing"),
        ("1_CNN/cnn_config.json", None, "holds no weights of the pooling ngrams"),
        ("1_CNN/cnn_config.json", {"stride_sizes": [1, 2, 1]}, "expected windows that move by one token"),
        ("1_CNN/cnn_config.json", {"out_channels": 44}, "1_CNN/model.safetensors: weights of other shapes"),
        ("2_Dense/config.json", {"bias": True}, "its pooling is the mean of a dense layer's output, expected"),
        ("3_Pooling/config.json", {"pooling_mode": "lasttoken"}, "its pooling is lasttoken of convolutions, expected"),
    ):
        with pytest.raises(ValueError, match=message):
            Encoder.from_pretrained(broken(name, change))
    path = broken("1_CNN/cnn_config.json", {}) / "1_CNN/model.safetensors"
    save_file({name: value / 0 for name, value in load_file(path).items()}, path)
    with pytest.raises(ValueError, match=r"1_CNN/model.safetensors: holds numbers that are not finite"):
        Encoder.from_pretrained(path.parents[1])
