"""The evaluation sets from spoilt copies of the real files: what warns, what is refused, and in which words."""

from pathlib import Path
from shutil import copytree

import pytest

from cse_core.data import senteval
from cse_core.data.senteval import labelled_sentences, pairs
from cse_core.models.pretrained import ASSETS


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
        for path in (folder / part).iterdir():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        found = labelled_sentences(task, folder)
        assert found.table.to_list() == clean
        assert len(found.warnings) == len(found.files)

    def test_windows_line_ends_keep_unscored_pairs_unscored(self, copy):
        folder = copy("STS/STS16-en-test")
        clean = pairs("sts16", folder).table.to_list()
        for path in (folder / "STS/STS16-en-test").iterdir():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
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
    def test_spoilt_pairs(self, task: str, file: str, change, message: str, copy):
        parent = {"sts13": "STS/STS13-en-test", "stsb": "STS/STSBenchmark", "sickr_dev": "SICK"}[task]
        folder = copy(parent)
        edit(folder / parent / file, change)
        with pytest.raises(ValueError, match=rf"{file}(, line|:) .*; get SentEval's original data") as caught:
            pairs(task, folder)
        assert message in str(caught.value)

    def test_a_missing_file(self, copy):
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
