"""Corpora and training examples: what is read, what is refused, and what is found in the cache."""

import gzip
import hashlib
import lzma
import os
import tempfile
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from cse_core.data import batches, corpora, locate, synthetic
from cse_core.data import examples as training_examples
from cse_core.data.arrow_cache import content_of
from cse_core.data.corpora import lines_hash
from cse_core.data.senteval import SETS, distinct_sentences, labelled_sentences, pairs
from cse_core.method import no_targets, single_column, tanh_head
from cse_core.models.pretrained import ASSETS
from cse_core.run import Corpus

BACKBONE = ASSETS / "wiki-tiny"
LINES = ["A small dog runs.", "", "Two  dogs\tsleep.", "  ", "It rains\u2028here.\u0085And there.", "Last."]


class Untrained:
    """The members of a method that examples do not need."""

    modules = tanh_head
    targets = no_targets

    @staticmethod
    def recipes():
        return {}

    def loss(self, encode, batch, modules, targets):
        raise NotImplementedError


@dataclass(frozen=True)
class Plain(Untrained):
    temperature: float = 0.05
    name = "plain"
    version = 1
    examples = single_column


@dataclass(frozen=True)
class Halves(Untrained):
    """Two columns, and two examples for each text with more than one word, none for the others."""

    offset: int = 0
    name = "halves"
    version = 1

    def examples(self, texts, tokenizer, max_length):
        words = [text.split() for text in texts if len(text.split()) > 1]
        if not words:
            return {"left": [], "right": []}
        ids = tokenizer([" ".join(w) for w in words], truncation=True, max_length=max_length)["input_ids"]
        left = [item[: 2 + self.offset] for item in ids for _ in range(2)]
        return {"left": left, "right": [item[2:] for item in ids for _ in range(2)]}


@dataclass(frozen=True)
class Given(Untrained):
    """Columns that a test gives."""

    columns: tuple = ()
    name = "given"
    version = 1

    def examples(self, texts, tokenizer, max_length):
        return {name: [list(ids) for ids in column] for name, column in self.columns}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(BACKBONE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_bytes(("\n".join(LINES) + "\n").encode())
    return path


def examples(corpus: Corpus, method: Any, tokenizer: Any, max_length: int, folder: Path | None = None) -> Any:
    return training_examples.examples(corpus, method, tokenizer, max_length, folder)


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class TestReadLines:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))))
    def test_plain_gz_and_xz_give_the_lines_back(self, lines: list[str]):
        content = "".join(f"{line}\n" for line in lines).encode()
        with tempfile.TemporaryDirectory() as folder:
            for suffix, pack in ((".txt", bytes), (".gz", gzip.compress), (".xz", lzma.compress)):
                path = Path(folder) / f"text{suffix}"
                path.write_bytes(pack(content))
                assert locate.read_lines(path) == lines

    def test_only_newlines_end_a_line_and_one_carriage_return_goes(self, tmp_path: Path):
        path = tmp_path / "text.txt"
        path.write_bytes("a\r\nb\rc\u2028d\x0be\r\r\n\nlast".encode())
        assert locate.read_lines(path) == ["a", "b\rc\u2028d\x0be\r", "", "last"]

    def test_the_encoding_is_the_one_asked_for_or_that_of_the_byte_order_mark(self, tmp_path: Path):
        path = tmp_path / "text.txt"
        path.write_bytes(b"sister\xf0city\n")
        assert locate.read_lines(path, "latin-1") == ["sister\u00f0city"]
        (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfa\n")
        assert [locate.read_lines(tmp_path / "marked.txt", code)[0] for code in ("utf-8", "latin-1")] == ["a", "ï»¿a"]
        with pytest.raises(ValueError, match=r"text\.txt, line 1: not utf-8 .*; convert it"):
            locate.read_lines(path)

    @pytest.mark.slow
    @pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
    def test_a_cut_file_is_an_error_only_where_the_cut_is_reached(self, suffix: str, pack, tmp_path: Path):
        lines = [os.urandom(40).hex() for _ in range(20_000)]
        path = tmp_path / f"text.{suffix}"
        path.write_bytes(pack("\n".join(lines).encode())[:-200])
        assert locate.read_lines(path, lines=3) == lines[:3]
        with pytest.raises(ValueError, match=rf"text\.{suffix}: cut short or damaged .*; delete it and copy or fetch"):
            locate.read_lines(path)

    @pytest.mark.parametrize("suffix", ["gz", "xz"])
    def test_a_plain_file_with_the_suffix_of_a_packed_one_is_refused(self, suffix: str, tmp_path: Path):
        path = tmp_path / f"text.{suffix}"
        path.write_bytes(b"plain text\n" * 100)
        with pytest.raises(ValueError, match="cut short or damaged"):
            locate.read_lines(path)


class TestSentences:
    def test_the_first_lines_with_blank_ones_as_one_space(self, source: Path, cache: Path):
        table = corpora.sentences(Corpus(str(source), 5))
        assert table["text"][:] == ["A small dog runs.", " ", "Two  dogs\tsleep.", " ", LINES[4]]
        digest = hashlib.sha256(("\n".join(LINES[:5]) + "\n").encode()).hexdigest()
        assert [Path(file["filename"]) for file in table.cache_files] == [cache / "corpora" / digest / "table.arrow"]

    def test_the_hash_is_that_of_the_file(self, source: Path):
        assert corpora.lines_hash(locate.read_lines(source)) == sha(source)

    def test_a_pinned_corpus_is_not_read_again(self, source: Path, cache: Path):
        corpus = Corpus(str(source), len(LINES), sha(source))
        first = corpora.sentences(corpus)["text"][:]
        source.unlink()
        assert corpora.sentences(corpus)["text"][:] == first

    def test_an_open_corpus_follows_its_file(self, source: Path, cache: Path):
        corpus = Corpus(str(source), 1)
        corpora.sentences(corpus)
        source.write_text("Another line.\n")
        assert corpora.sentences(corpus)["text"][:] == ["Another line."]

    def test_content_other_than_the_pinned_is_refused(self, source: Path, cache: Path):
        pinned, found = "0" * 64, sha(source)
        with pytest.raises(ValueError, match=f"the first 6 lines have sha256 {found}, expected {pinned}; get"):
            corpora.sentences(Corpus(str(source), 6, pinned))
        assert not list(cache.rglob("*.arrow"))

    def test_a_pin_of_another_number_of_lines_is_refused(self, source: Path, cache: Path):
        corpora.sentences(Corpus(str(source), 6, sha(source)))
        with pytest.raises(ValueError, match="sha256 pins 6 lines"):
            corpora.sentences(Corpus(str(source), 5, sha(source)))

    def test_too_few_lines_are_refused(self, source: Path, cache: Path):
        with pytest.raises(ValueError, match=r"corpus\.txt: 6 lines, expected 7; ask for fewer"):
            corpora.sentences(Corpus(str(source), 7))
        with pytest.raises(ValueError, match=r"corpus\.txt: 6 lines, expected 1,000"):
            corpora.sentences(Corpus(str(source), 10**30))

    def test_an_empty_file_is_refused(self, tmp_path: Path, cache: Path):
        (tmp_path / "void.txt").touch()
        with pytest.raises(ValueError, match=r"void\.txt: empty, expected 3 lines"):
            corpora.sentences(Corpus("void", 3), tmp_path)

    def test_the_synthetic_corpus_is_its_sentences_and_no_evaluation_set(self, cache: Path):
        assert "synthetic" not in SETS
        assert corpora.sentences(Corpus("synthetic", 50))["text"][:] == synthetic.sentences(50)

    def test_a_real_corpus_is_its_first_lines(self, real_data: Path, cache: Path):
        # xz -dc | head -n 16384 | sha256sum
        pinned = "a51f808aa28b59ec24f9e9d8f2eee3b1a0cb36a6bc3e104576fdbc1336c9bde8"
        table = corpora.sentences(Corpus("wiki_sentences_1m", 16_384, pinned), real_data)
        assert len(table) == 16_384
        assert table[0]["text"].startswith("He has once again become bored with human society")
        assert table[-1]["text"].endswith("where its legal status is more important than its physiological effects.")

    def test_the_head_of_simcses_file_is_read_line_by_line(self, real_data: Path, cache: Path):
        path = real_data / "wiki1m_for_simcse.head11914.txt"
        table = corpora.sentences(Corpus("wiki1m_for_simcse.head11914", 11_914), real_data)
        assert table["text"][:] == [line.strip("\n") or " " for line in path.read_text().split("\n")[:11_914]]


class TestFilesOfOnesOwn:
    ROWS = (("A cow.", "One cow.", "No cow."), ('A "hen".', "One\nhen.", "No, hen."), ("A fox.", "One fox.", "No fox."))

    @pytest.fixture
    def nli(self, tmp_path: Path) -> Path:
        frame = pd.DataFrame(self.ROWS, columns=["sent0", "sent1", "hard_neg"])
        frame.to_csv(tmp_path / "nli.csv", index=False)
        frame.to_json(tmp_path / "nli.jsonl", orient="records", lines=True)
        frame.to_parquet(tmp_path / "nli.PARQUET")
        return tmp_path / "nli.csv"

    def test_rows_of_known_columns_are_examples(self, nli: Path, cache: Path):
        corpus = corpora.corpus_of_file(nli)
        assert (corpus.lines, corpus.columns) == (3, ("sent0", "sent1", "hard_neg"))
        table = corpora.sentences(corpus)
        assert table.column_names == ["text", "positive", "negative"]
        assert [*zip(*table[:].values(), strict=True)] == [*self.ROWS]
        for other in ("nli.jsonl", "nli.PARQUET"):  # known by its content
            assert corpora.corpus_of_file(nli.with_name(other)).identity == corpus.identity
        assert corpora.corpus_of_file(nli, lines=2).identity != corpus.identity
        assert corpora.sample(corpus, 3, 0) != []  # of the first column

    def test_columns_are_chosen_and_read_again(self, nli: Path, cache: Path, monkeypatch, caplog):
        several = corpora.corpus_of_file(nli, columns=["sent0", "hard_neg"])
        one = corpora.corpus_of_file(nli, columns=["2"])
        for corpus, rows in ((several, [row[::2] for row in self.ROWS]), (one, [(row[1],) for row in self.ROWS])):
            for folder in ("one", "two"):  # the second finds no cached table
                monkeypatch.setenv("CSE_CACHE", str(cache / folder))
                assert [*zip(*corpora.sentences(corpus)[:].values(), strict=True)] == rows
        assert caplog.messages[-1] == "nli.csv: 3 sentences; column sent1"
        with pytest.raises(ValueError, match=r"nli\.csv: no column 'text': its columns are sent0, sent1, hard_neg"):
            corpora.corpus_of_file(nli, columns=["text"])

    def test_one_column_is_as_the_same_text(self, tmp_path: Path):
        texts = ["A cow.", 'A "hen", or two.', "A fox."]
        (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
        pd.DataFrame({"text": texts}).to_csv(tmp_path / "a.csv", index=False)
        pd.DataFrame({"text": texts, "label": 1}).to_json(tmp_path / "a.jsonl", orient="records", lines=True)
        pd.DataFrame({"text": texts}).to_csv(tmp_path / "bare.csv", index=False, header=False)
        found = {corpora.corpus_of_file(path).identity for path in tmp_path.iterdir()}
        assert found == {f"{sha(tmp_path / 'a.txt')}:3"}

    def test_columns_are_no_line_with_tabs(self, tmp_path: Path):
        lines = ["a\tb", "c\td"]
        (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
        rows = [tuple(line.split("\t")) for line in lines]
        assert len({lines_hash(lines), lines_hash(rows), lines_hash(["a\tb\nc\td"])}) == 3

    def test_blank_lines_go_and_duplicates_stay_and_both_are_said(self, tmp_path: Path, cache: Path, caplog):
        path = tmp_path / "mine.txt"
        path.write_bytes("\ufeffA cow.\r\n\r\nA hen.\n \t\nA cow.\n\n A cow.\n".encode())
        corpus = corpora.corpus_of_file(path)
        assert corpora.sentences(corpus)["text"][:] == ["A cow.", "A hen.", "A cow.", " A cow."]
        assert caplog.messages == ["mine.txt: 4 sentences, one a line; 1 duplicate kept, 3 blank lines left out"]
        first = corpora.corpus_of_file(path, lines=2)
        assert corpora.sentences(first)["text"][:] == ["A cow.", "A hen."]

    def test_rows_with_an_empty_cell_are_left_out(self, tmp_path: Path, cache: Path, caplog):
        (tmp_path / "a.tsv").write_text("sent0\tsent1\na\tb\n\nc\t\n\td\ne\tf\na\tb\n")
        corpus = corpora.corpus_of_file(tmp_path / "a.tsv")
        assert corpora.sentences(corpus)[:] == {"text": ["a", "e", "a"], "positive": ["b", "f", "b"]}
        assert caplog.messages == [
            "a.tsv: 3 examples; columns sent0, sent1; "
            "1 duplicate kept, 1 blank line left out, 2 incomplete rows left out"
        ]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.csv", "one,two\n1,2\n", "expected sentences, got 2 columns without known names; name one to three"),
            ("a.csv", "sentence1,sentence2,score\na,b,1\n", r"\(pairs with a score are no positives\); name one"),
            ("a.csv", "text,sentence1,sentence2\na,b,c\n", "got the columns text, sentence1, sentence2; name one"),
            ("a.jsonl", '{"text": "a"}\n{"text": 1}\n', "line 2: expected a text, got 1"),
            ("a.jsonl", '{"text": "a\\u0000"}\n', "line 1: expected UTF-8, got a NUL"),
            ("a.csv", "The cow, the hen.\nThe fox.\n", "line 2: 1 columns, expected 2 as in the first line"),
            ("a.txt", "T\0h\0e\0\n", r"line 1: expected UTF-8, got a NUL character \(is it UTF-16\?\)"),
            ("a.txt", "\n \n", "no sentences in it"),
            ("a.csv", "text\n", "no sentences in it"),
            ("a.jsonl", "{}\n", "no sentences in it"),
            ("a.tsv", "", "no sentences in it"),
            ("a.txt", "sent0,sent1,hard_neg\na,b,c\n", "its first line is 'sent0,sent1,hard_neg', expected names with"),
            ("a.txt", '\n{"text": "a"}\n{"text": "b"}\n', r"is an object of JSON, .*; rename it to \.jsonl"),
            ("a.csv", "question1,question2,is_duplicate\na,b,0\n", r"\(pairs with a is_duplicate are no positives\)"),
            ("a.tsv", "gold_label\tsentence1\tsentence2\nneutral\ta\tb\n", r"\(pairs with a gold_label are no"),
            ("a.csv", "anchor,positive,negative_1,negative_2\na,b,c,d\n", "expected sentences, got the columns"),
            ("a.csv", "text,Text\na,b\n", "got the columns text, Text; name one"),
            ("a.docx", "", r"expected a file that ends with \.txt, .*, got \.docx"),
        ],
    )
    def test_what_holds_no_sentences_is_refused(self, tmp_path: Path, name: str, content: str, message: str):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=message):
            corpora.corpus_of_file(tmp_path / name)

    def test_a_numbered_negative_is_one(self, tmp_path: Path):
        (tmp_path / "a.csv").write_text("anchor,positive,negative_1\na,b,c\n")
        assert corpora.corpus_of_file(tmp_path / "a.csv").columns == ("anchor", "positive", "negative_1")

    def test_more_lines_than_there_are_and_a_column_twice_are_refused(self, nli: Path):
        with pytest.raises(ValueError, match=r"nli\.csv: 3 sentences, expected 4; ask for fewer"):
            corpora.corpus_of_file(nli, lines=4)
        with pytest.raises(ValueError, match=r"nli\.csv: expected different columns, got sent0, sent1, 2"):
            corpora.corpus_of_file(nli, columns=["sent0", "sent1", "2"])

    def test_carriage_returns_inside_lines_are_counted(self, tmp_path: Path, caplog):
        (tmp_path / "a.txt").write_bytes(b"a\rb\nc\r\nd\re\rf\n")
        corpora.corpus_of_file(tmp_path / "a.txt")
        said = "a.txt: 3 sentences, one a line; 2 with a carriage return inside, which ends no line"
        assert caplog.messages == [said]

    def test_a_corpus_of_a_study_is_no_table_by_another_name(self, tmp_path: Path, cache: Path):
        (tmp_path / "a.txt").write_text('{"text": "a"}\n{"text": "b"}\n')
        with pytest.raises(ValueError, match="is an object of JSON"):
            corpora.sentences(Corpus(str(tmp_path / "a.txt"), 2))

    @pytest.mark.parametrize("name", ["synthetic", "stsb_dev", "sts_texts"])
    def test_a_corpus_of_single_sentences_has_no_columns(self, name: str, cache: Path):
        with pytest.raises(
            ValueError, match=f"corpus {name}: is of single sentences, got the columns sentence1, other"
        ):
            corpora.sentences(Corpus(name, 8, columns=("sentence1", "other")))

    def test_a_text_has_no_columns_and_a_table_no_lines(self, nli: Path, source: Path, cache: Path):
        message = r"corpus\.txt: a \.txt has a sentence a line, got the columns a, b; rename"
        with pytest.raises(ValueError, match=message):
            corpora.corpus_of_file(source, columns=("a", "b"))
        with pytest.raises(ValueError, match=r"nli\.csv: its rows have columns; name one to three with --columns"):
            corpora.sentences(Corpus(str(nli), 3))

    def test_a_line_of_ten_megabytes_is_refused(self, tmp_path: Path, cache: Path):
        (tmp_path / "long.txt").write_text("short\n" + "word " * 2_000_000 + "\n")
        for read in (corpora.corpus_of_file, lambda path: corpora.sentences(Corpus(str(path), 2))):
            with pytest.raises(ValueError, match="line 2: 10,000,000 characters, expected at most 1,000,000; split"):
                read(tmp_path / "long.txt")


class TestExamples:
    @pytest.fixture
    def corpus(self, source: Path, cache: Path) -> Corpus:
        return Corpus(str(source), len(LINES))

    @pytest.mark.parametrize("width", [1, 3])
    def test_texts_are_tokenised_in_parts_that_fit_into_memory(
        self, tmp_path: Path, cache: Path, tokenizer, monkeypatch, width: int
    ):
        rows = [tuple(f"{place} " * (i * i % 40 + 1) for place in range(width)) for i in range(90)]
        frame = pd.DataFrame(rows, columns=["anchor", "positive", "negative"][:width])
        frame.to_csv(tmp_path / "rows.csv", index=False)
        monkeypatch.setattr(batches, "MOST_CHARACTERS", 300)
        seen = []

        def taken(self, texts, tokenizer, max_length):
            seen.append([(text,) if isinstance(text, str) else text for text in texts])
            return single_column(self, ["".join(text) for text in seen[-1]], tokenizer, max_length)

        monkeypatch.setattr(Plain, "examples", taken)
        corpus = corpora.corpus_of_file(tmp_path / "rows.csv", columns=list(frame.columns))
        assert len(examples(corpus, Plain(), tokenizer, 8)) == 90
        assert [*chain.from_iterable(seen)] == [tuple(text.strip() for text in row) for row in rows]
        assert len(seen) > 5
        assert all(len(part) == 1 or sum(map(len, chain.from_iterable(part))) <= 300 for part in seen)

    def test_single_column_is_the_tokenizer(self, corpus: Corpus, tokenizer):
        table = examples(corpus, Plain(), tokenizer, 8)
        texts = [line if line.strip() else " " for line in LINES]
        assert table["text"][:] == tokenizer(texts, truncation=True, max_length=8)["input_ids"]
        assert table.data.schema.field("text").type == pa.list_(pa.int32())
        assert table["text"][1] == [tokenizer.cls_token_id, tokenizer.sep_token_id]

    def test_chunks_are_invisible(self, corpus: Corpus, cache: Path, tokenizer, monkeypatch):
        whole = examples(corpus, Halves(), tokenizer, 8)[:]
        monkeypatch.setenv("CSE_CACHE", str(cache / "other"))
        monkeypatch.setattr(corpora, "CHUNK", 1)
        monkeypatch.setattr(training_examples, "CHUNK", 1)
        assert examples(corpus, Halves(), tokenizer, 8)[:] == whole
        assert len(whole["left"]) == len(whole["right"]) == 6

    def test_methods_with_one_column_share_a_table(self, corpus: Corpus, tokenizer):
        shared = {
            examples(corpus, method, tokenizer, 8).cache_files[0]["filename"]
            for method in (Plain(), Plain(0.1), dataclass(frozen=True)(type("Other", (Plain,), {"name": "other"}))())
        }
        assert len(shared) == 1

    @pytest.mark.slow
    def test_whatever_changes_the_ids_changes_the_table(self, corpus: Corpus, tokenizer):
        larger: Any = AutoTokenizer.from_pretrained(BACKBONE)
        larger.add_tokens(["rains"])
        tables = [
            examples(corpus, Plain(), tokenizer, 8),
            examples(corpus, Plain(), tokenizer, 4),
            examples(corpus, Plain(), larger, 8),
            examples(replace(corpus, lines=5), Plain(), tokenizer, 8),
            examples(corpus, Halves(), tokenizer, 8),
            examples(corpus, Halves(1), tokenizer, 8),
        ]
        assert len({table.cache_files[0]["filename"] for table in tables}) == len(tables)
        assert tables[4]["left"][0] == tables[5]["left"][0][:2] != tables[5]["left"][0]

    def test_what_the_tokenizer_did_before_changes_nothing(self, corpus: Corpus, tokenizer):
        first = examples(corpus, Plain(), tokenizer, 8).cache_files
        tokenizer(["a", "b c"], padding=True, truncation=True, max_length=5)
        assert examples(corpus, Plain(), tokenizer, 8).cache_files == first

    def test_a_hit_reads_neither_the_source_nor_the_corpus_table(self, source: Path, cache: Path, tokenizer):
        corpus = Corpus(str(source), 6, sha(source))
        first = examples(corpus, Plain(), tokenizer, 8)["text"][:]
        source.unlink()
        (cache / "corpora" / corpus.sha256 / "table.arrow").unlink()
        assert examples(corpus, Plain(), tokenizer, 8)["text"][:] == first

    def test_columns_of_unequal_length_are_refused(self, corpus: Corpus, tokenizer):
        method = Given((("a", ((1,), (2,))), ("b", ((1,),))))
        with pytest.raises(ValueError, match=r"method given: columns .* equally long, got \{'a': 2, 'b': 1\}"):
            examples(corpus, method, tokenizer, 8)

    def test_a_method_that_makes_no_example_is_refused(self, corpus: Corpus, tokenizer):
        with pytest.raises(ValueError, match="method given: no example from"):
            examples(corpus, Given((("a", ()),)), tokenizer, 8)


@pytest.mark.parametrize(("task", "count"), [("stsb_train", 5749), ("sickr_dev", 500), ("sts13", 1500)])
def test_sentences_of_pairs_come_once_and_in_file_order(task: str, count: int, real_data: Path) -> None:
    table = pairs(task, real_data).table
    assert len(table) == count
    seen: list[str] = []
    for row in table.to_list():
        seen += [s for s in (row["sentence1"], row["sentence2"]) if s and s not in seen[-400:]]
    assert distinct_sentences(task, real_data) == list(dict.fromkeys(seen))


def test_sentences_of_labels_are_those_of_all_splits(real_data: Path) -> None:
    lines = (real_data / "senteval/downstream/SUBJ/subj.objective").read_text("latin-1").split("\n")
    assert distinct_sentences("subj", real_data)[:50] == list(dict.fromkeys(" ".join(s.split()) for s in lines))[:50]
    assert "" not in distinct_sentences("trec", real_data)
    both = labelled_sentences("mrpc", real_data).table
    assert set(distinct_sentences("mrpc", real_data)) == set(both["sentence1"]) | set(both["sentence2"])


@pytest.mark.slow
def test_the_set_is_a_corpus_under_its_name(cache: Path) -> None:
    expected = distinct_sentences("synthetic_dev")
    table = corpora.sentences(Corpus("synthetic_dev", 30))
    assert table["text"][:] == expected[:30]
    assert content_of(table) == lines_hash(expected[:30])
    pinned = Corpus("synthetic_dev", 30, lines_hash(expected[:30]))
    assert corpora.sentences(pinned)["text"][:] == expected[:30]
    with pytest.raises(ValueError, match="evaluation set synthetic_dev: the first 31 lines have sha256"):
        corpora.sentences(Corpus("synthetic_dev", 31, "0" * 64))


def test_fewer_sentences_than_asked_for_are_an_error(cache: Path) -> None:
    count = len(distinct_sentences("synthetic_dev"))
    with pytest.raises(ValueError, match=f"evaluation set synthetic_dev: {count:,} lines, expected {count + 1:,}; ask"):
        corpora.sentences(Corpus("synthetic_dev", count + 1))
