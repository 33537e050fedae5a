"""The evaluation sets: exact counts and sentences of the real files, and what a spoilt copy of them leads to."""

from collections import Counter
from pathlib import Path
from shutil import copytree

import pytest

from cse_core.data import senteval, synthetic
from cse_core.data.senteval import labelled_sentences, pairs
from cse_core.models.pretrained import ASSETS

TOTALS = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}
SINGLE = {"stsb_train": 5749, "stsb_dev": 1500, "stsb": 1379, "sickr_train": 4500, "sickr_dev": 500, "sickr": 4927}
PART_COUNTS = {
    "sts12": "MSRpar 750, MSRvid 750, SMTeuroparl 459, surprise.OnWN 750, surprise.SMTnews 399",
    "sts13": "FNWN 189, headlines 750, OnWN 561",
    "sts14": "deft-forum 450, deft-news 300, headlines 750, images 750, OnWN 750, tweet-news 750",
    "sts15": "answers-forums 375, answers-students 750, belief 375, headlines 750, images 750",
    "sts16": "answer-answer 254, headlines 249, plagiarism 230, postediting 244, question-question 209",
}
LABEL_COUNTS = {
    "mr": {("all", 1): 5331, ("all", 0): 5331},
    "cr": {("all", 1): 2407, ("all", 0): 1368},
    "subj": {("all", 1): 5000, ("all", 0): 5000},
    "mpqa": {("all", 1): 3312, ("all", 0): 7294},
    "sst2": {
        **{("train", 0): 29780, ("train", 1): 37569},
        **{("dev", 1): 444, ("dev", 0): 428},
        **{("test", 0): 912, ("test", 1): 909},
    },
    "trec": {("train", n): count for n, count in enumerate((86, 1162, 1250, 1223, 835, 896))}
    | {("test", n): count for n, count in enumerate((9, 138, 94, 65, 81, 113))},
    "mrpc": {("train", 1): 2753, ("train", 0): 1323, ("test", 1): 1147, ("test", 0): 578},
}


class TestPairs:
    @pytest.mark.parametrize("task", TOTALS)
    def test_counts_and_order_of_parts(self, task: str, real_data: Path):
        found = pairs(task, real_data)
        counts = Counter(found.table["part"][:])
        assert ", ".join(f"{part} {n}" for part, n in counts.items()) == PART_COUNTS[task]
        assert len(found.table) == TOTALS[task]
        assert found.table["part"][:] == sorted(found.table["part"][:], key=str.lower)
        assert 0 <= min(found.table["score"][:]) < max(found.table["score"][:]) == 5
        assert len(found.files) == 2 * len(counts)
        assert found.warnings == ()

    @pytest.mark.parametrize("task", SINGLE)
    def test_counts_of_the_sets_in_one_file(self, task: str, real_data: Path):
        found = pairs(task, real_data)
        assert set(found.table["part"][:]) == {task}
        assert len(found.table) == SINGLE[task]
        assert min(found.table["score"][:]) == (1 if task.startswith("sickr") else 0)
        assert max(found.table["score"][:]) == 5
        assert found.warnings == ()

    def test_tasks_are_named_in_the_order_of_their_sets(self):
        named = (senteval.STS_TEST, senteval.STS_DEV, senteval.TRANSFER)
        assert named == ((*TOTALS, "stsb", "sickr"), ("stsb_dev", "sickr_dev"), tuple(LABEL_COUNTS))

    def test_unscored_pairs_are_skipped_and_the_order_kept(self, real_data: Path):
        folder = real_data / "senteval/downstream/STS/STS15-en-test"
        gold = (folder / "STS.gs.answers-forums.txt").read_text().split("\n")[:2000]
        texts = (folder / "STS.input.answers-forums.txt").read_text().split("\n")[:2000]
        expected = [
            {
                "part": "answers-forums",
                "sentence1": " ".join(text.split("\t")[0].split()),
                "sentence2": " ".join(text.split("\t")[1].split()),
                "score": float(score),
            }
            for text, score in zip(texts, gold, strict=True)
            if score
        ]
        assert len(expected) == 375
        assert pairs("sts15", real_data).table.select(range(375)).to_list() == expected

    def test_first_and_last_sentences(self, real_data: Path):
        sts12, sickr, stsb = (pairs(task, real_data).table for task in ("sts12", "sickr", "stsb"))
        assert tuple(sts12[0].values()) == (
            "MSRpar",
            "the problem likely will mean corrective changes before the shuttle fleet starts flying again .",
            "he said the problem needs to be corrected before the space shuttle fleet is cleared to fly again .",
            4.4,
        )
        assert sts12[-1]["sentence2"] == "what it did without the initiative not going very far ."
        assert sickr[0]["sentence1"] == "There is no boy playing outdoors and there is no man smiling"
        assert sickr[0]["score"] == 3.3
        assert sickr[-1]["sentence2"] == "The snowboarder is leaping fearlessly over white snow"
        assert (stsb[0]["sentence1"], stsb[0]["score"]) == ("a girl is styling her hair .", 2.5)
        assert stsb[-1]["sentence2"] == "north korea delegation meets with south korean officials"

    def test_sick_loses_its_carriage_returns_and_its_header(self, real_data: Path):
        raw = (real_data / "senteval/downstream/SICK/SICK_test_annotated.txt").read_bytes()
        assert raw.count(b"\r\n") == 4928
        table = pairs("sickr", real_data).table
        assert not any("\r" in cell for row in table.to_list() for cell in (row["sentence1"], row["sentence2"]))
        assert "sentence_A" not in table["sentence1"][:]

    def test_duplicates_stay(self, real_data: Path):
        table = pairs("sts12", real_data).table.to_list()
        rows = [(row["sentence1"], row["sentence2"]) for row in table if row["part"] == "SMTeuroparl"]
        assert len(rows) == 459
        assert len(set(rows)) < 459

    @pytest.mark.parametrize(("task", "split"), [("synthetic", "test"), ("synthetic_dev", "dev")])
    @pytest.mark.slow
    def test_synthetic_pairs_are_those_of_the_grammar(self, task: str, split: str, cache: Path):
        found = pairs(task)
        assert [tuple(row.values()) for row in found.table.to_list()] == [tuple(row) for row in synthetic.pairs(split)]
        assert (found.files, found.warnings) == ({}, ())

    @pytest.mark.parametrize("read", [pairs, labelled_sentences])
    def test_an_unknown_task_names_the_known(self, read, cache: Path):
        with pytest.raises(ValueError, match=r"task sts11: not among (sts12|mr), "):
            read("sts11")


class TestLabelled:
    @pytest.mark.parametrize("task", LABEL_COUNTS)
    @pytest.mark.slow
    def test_each_split_has_its_number_of_each_label(self, task: str, real_data: Path):
        found = labelled_sentences(task, real_data)
        assert Counter(zip(found.table["split"][:], found.table["label"][:], strict=True)) == LABEL_COUNTS[task]
        assert any(found.table["sentence2"][:]) == (task == "mrpc")
        assert found.warnings == ()

    @pytest.mark.parametrize("task", ["mr", "cr", "subj", "mpqa"])
    def test_the_file_of_label_one_goes_first(self, task: str, real_data: Path):
        labels = labelled_sentences(task, real_data).table["label"][:]
        assert labels == sorted(labels, reverse=True)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("task", "row", "split", "sentence", "label"),
        [
            ("mr", 2, "all", "effective but too-tepid biopic", 1),
            ("mr", -1, "all", "enigma is well-made , but it 's just too dry and too placid .", 0),
            ("cr", 0, "all", "im a more happier person after discovering the i/p button ! .", 1),
            ("subj", 5000, "all", "smart and alert , thirteen conversations about one thing is a small gem .", 0),
            ("mpqa", 0, "all", "are also being encouraged", 1),
            ("sst2", 0, "train", "hide new secretions from the parental units", 0),
            ("trec", 0, "train", "How did serfdom develop in and then leave Russia ?", 1),
            ("trec", 1, "train", "What films featured the character Popeye Doyle ?", 2),
            ("trec", 65, "train", "Which city has the oldest relationship as a sister\u00f0city with Los Angeles ?", 4),
            ("trec", -1, "test", "What is e-coli ?", 1),
        ],
    )  # fmt: skip
    def test_sentences_are_those_of_the_files(
        self, task: str, row: int, split: str, sentence: str, label: int, real_data: Path
    ):
        expected = {"split": split, "sentence1": sentence, "sentence2": "", "label": label}
        assert labelled_sentences(task, real_data).table[row] == expected

    def test_mrpc_has_neither_byte_order_mark_nor_header(self, real_data: Path):
        raw = (real_data / "senteval/downstream/MRPC/msr_paraphrase_train.txt").read_bytes()
        assert raw.startswith(b"\xef\xbb\xbfQuality\t#1 ID")
        table = labelled_sentences("mrpc", real_data).table
        assert table[0]["sentence1"].startswith('Amrozi accused his brother , whom he called " the witness "')
        assert table[0]["sentence2"].startswith('Referring to him as only " the witness " , Amrozi')
        assert (table[0]["label"], table[4076]["split"]) == (1, "test")
        assert table[4076]["sentence1"].startswith("PCCW 's chief operating officer , Mike Butcher")
        assert not any("\ufeff" in row["sentence1"] for row in table.to_list())

    def test_empty_sentences_stay_where_they_are(self, real_data: Path):
        expected = {
            "cr": [2323 - 1, 2407 - 1, 2407 + 769 - 1, 2407 + 1368 - 1],
            "mpqa": [3312 - 1, 3312 + 6415 - 1, 3312 + 7294 - 1],
        }
        for task, rows in expected.items():
            texts = labelled_sentences(task, real_data).table["sentence1"][:]
            assert [row for row, text in enumerate(texts) if not text] == rows

    def test_phrases_of_both_classes_stay_in_both(self, real_data: Path):
        table = labelled_sentences("mpqa", real_data).table
        positive, negative = set(table["sentence1"][:3312]), set(table["sentence1"][3312:])
        assert len(positive & negative) == 99
        assert len(table) - len({(row["sentence1"], row["label"]) for row in table.to_list()}) == 2266


@pytest.fixture
def copy(real_data: Path, tmp_path: Path, cache: Path):
    """Copies folders of the real data into a folder of this test's own, where files can be spoilt."""

    def made(*names: str) -> Path:
        (tmp_path / "data" / "STS").mkdir(parents=True)
        for name in names:
            copytree(real_data / "senteval" / "downstream" / name, tmp_path / "data" / name, dirs_exist_ok=True)
        return tmp_path / "data"

    return made


def edit(path: Path, change) -> None:
    """Rewrite a file's lines, as bytes, the line ends kept."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def with_windows_line_ends(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


class TestCopies:
    """Hard checks on counts, soft ones on bytes."""

    def test_other_text_with_the_right_counts_warns(self, copy):
        folder = copy("CR")
        clean = labelled_sentences("cr", folder)
        edit(folder / "CR/custrev.neg", lambda lines: [b"Changed .\n", *lines[1:]])
        found = labelled_sentences("cr", folder)
        (warning,) = found.warnings
        assert clean.warnings == ()
        assert "CR/custrev.neg: sha256 " in warning
        assert found.table[2407]["sentence1"] == "Changed ."
        assert found.files["CR/custrev.neg"][:12] in warning

    @pytest.mark.parametrize(("task", "part"), [("cr", "CR"), ("trec", "TREC"), ("mrpc", "MRPC"), ("mr", "MR")])
    @pytest.mark.slow
    def test_windows_line_ends_warn_and_change_nothing(self, task: str, part: str, copy):
        folder = copy(part)
        clean = labelled_sentences(task, folder).table.to_list()
        with_windows_line_ends(folder / part)
        found = labelled_sentences(task, folder)
        assert found.table.to_list() == clean
        assert len(found.warnings) == len(found.files)

    def test_windows_line_ends_keep_unscored_pairs_unscored(self, copy):
        folder = copy("STS/STS16-en-test")
        clean = pairs("sts16", folder).table.to_list()
        with_windows_line_ends(folder / "STS/STS16-en-test")
        found = pairs("sts16", folder)
        assert found.table.to_list() == clean
        assert len(found.warnings) == 10

    @pytest.mark.parametrize(
        ("task", "file", "found", "expected"),
        [
            ("subj", "SUBJ/subj.subjective", "20 sentences of class 0", "5,000"),
            ("subj", "SUBJ/subj.objective", "20 sentences of class 1", "5,000"),
            ("mr", "MR/rt-polarity.pos", "20 sentences of class 1", "5,331"),
        ],
    )
    def test_cut_mr_and_subj_are_refused_as_such(self, task: str, file: str, found: str, expected: str, copy):
        folder = copy(file.split("/")[0])
        edit(folder / file, lambda lines: lines[:20])
        with pytest.raises(senteval.TruncatedTask) as caught:
            labelled_sentences(task, folder)
        for words in (str(folder / file), f"{found}, expected {expected}", "issue 84", "original data", "--data"):
            assert words in str(caught.value)

    @pytest.mark.parametrize(
        ("task", "file", "change", "message"),
        [
            ("subj", "SUBJ/subj.subjective", lambda lines: [*lines, b"more\n"], "5,001 rows of class 0, expected"),
            ("cr", "CR/custrev.pos", lambda lines: lines[:-1], "2,406 rows of class 1, expected 2,407"),
            ("mpqa", "MPQA/mpqa.neg", lambda lines: [], "0 rows of class 0, expected 7,294"),
            ("sst2", "SST/binary/sentiment-dev", lambda lines: lines[1:], "443 rows of class 1, expected 444"),
            ("trec", "TREC/TREC_10.label", lambda lines: [*lines, b"SIZE:x How ?\n"], "line 501: class 'SIZE'"),
            ("trec", "TREC/TREC_10.label", lambda lines: lines[:100], r"rows of class \d, expected"),
            ("mrpc", "MRPC/msr_paraphrase_train.txt", lambda lines: [lines[0], b"2\t\t\t\t\n"], "line 2: class '2'"),
            ("mrpc", "MRPC/msr_paraphrase_train.txt", lambda lines: [lines[0], b"1\ta\n"], "line 2: 2 columns"),
            ("mrpc", "MRPC/msr_paraphrase_test.txt", lambda lines: lines[1:], r"rows of class \d, expected"),
        ],
    )  # fmt: skip
    @pytest.mark.slow
    def test_other_spoilt_labels_are_plain_errors(self, task: str, file: str, change, message: str, copy):
        folder = copy(str(Path(file).parent))
        edit(folder / file, change)
        with pytest.raises(ValueError, match=rf"{file}(, line|:) .*; get SentEval's original data") as caught:
            labelled_sentences(task, folder)
        assert not isinstance(caught.value, senteval.TruncatedTask)
        assert caught.match(message)

    @pytest.mark.parametrize(
        ("task", "file", "change", "message"),
        [
            ("sts13", "STS.input.OnWN.txt", lambda lines: lines[:-1], "560 pairs, expected the 561 of STS.gs.OnWN.txt"),
            ("sts13", "STS.gs.FNWN.txt", lambda lines: [b"\n", *lines[1:]], "188 scored pairs, expected 189"),
            ("sts13", "STS.gs.FNWN.txt", lambda lines: [b"7\n", *lines[1:]], "line 1: score 7, expected 0 to 5"),
            ("sts13", "STS.gs.FNWN.txt", lambda lines: [b"nan\n", *lines[1:]], "line 1: score nan, expected 0 to 5"),
            ("sts13", "STS.gs.FNWN.txt", lambda lines: [b"four\n", *lines[1:]], "line 1: 'four' is no score"),
            ("sts13", "STS.input.FNWN.txt", lambda lines: [b"one\n", *lines[1:]], "line 1: 1 columns, expected"),
            ("stsb", "sts-test.csv", lambda lines: lines[:-1], "1,378 pairs, expected 1,379"),
            ("sickr_dev", "SICK_trial.txt", lambda lines: lines[1:], "499 pairs, expected 500"),
            (
                "sickr_dev",
                "SICK_trial.txt",
                lambda lines: [*lines[:-1], lines[-1].replace(b"\t1\t", b"\t0.5\t")],
                "line 501: score 0.5, expected 1 to 5",
            ),
        ],
    )  # fmt: skip
    def test_spoilt_pairs_are_plain_errors(self, task: str, file: str, change, message: str, copy):
        parent = {"sts13": "STS/STS13-en-test", "stsb": "STS/STSBenchmark", "sickr_dev": "SICK"}[task]
        folder = copy(parent)
        edit(folder / parent / file, change)
        with pytest.raises(ValueError, match=rf"{file}(, line|:) .*; get SentEval's original data") as caught:
            pairs(task, folder)
        assert message in str(caught.value)

    def test_a_missing_file_is_named(self, copy):
        folder = copy("CR")
        (folder / "CR/custrev.neg").unlink()
        with pytest.raises(FileNotFoundError, match=r"CR/custrev\.neg: missing; get SentEval's original data"):
            labelled_sentences("cr", folder)

    def test_a_table_is_written_once_for_each_content(self, copy, cache: Path):
        folder = copy("CR")
        (first,) = labelled_sentences("cr", folder).table.cache_files
        written = Path(first["filename"]).stat().st_mtime_ns
        (again,) = labelled_sentences("cr", folder).table.cache_files
        assert again == first
        assert Path(first["filename"]).stat().st_mtime_ns == written
        edit(folder / "CR/custrev.neg", lambda lines: [b"Changed .\n", *lines[1:]])
        assert labelled_sentences("cr", folder).table.cache_files != [first]
        assert len(list((cache / "evaluation").glob("*/table.arrow"))) == 2

    def test_a_refused_file_leaves_no_table(self, copy, cache: Path):
        folder = copy("CR")
        edit(folder / "CR/custrev.neg", lambda lines: lines[1:])
        with pytest.raises(ValueError, match="1,367 rows"):
            labelled_sentences("cr", folder)
        assert not [path for path in cache.rglob("*") if path.suffix != ".lock" and path.is_file()]


def test_every_file_that_is_read_has_a_known_hash():
    listed = (ASSETS / "SENTEVAL_SHA256SUMS").read_text().split("\n")
    known = {line.split()[1] for line in listed if line}
    read = {labels.file for files in senteval.CLASSES.values() for labels in files}
    read |= {layout.file for layout in senteval.SINGLE.values()}
    for task, parts in senteval.PARTS.items():
        read |= {f"STS/STS{task[3:]}-en-test/STS.{kind}.{part}.txt" for part in parts for kind in ("input", "gs")}
    assert read <= known
    assert len(read) == 15 + 6 + 2 * 24
