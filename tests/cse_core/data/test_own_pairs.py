"""Evaluation sets of one's own: what a file must hold, and that its content names it."""

from pathlib import Path

import pandas as pd
import pytest

from cse_core.data import own_pairs
from cse_core.data.senteval import pairs
from cse_core.evaluation import suite

ROWS = [("A cat sleeps.", "A cat rests.", 4.5), ("It rains.", "The bank is shut.", 0.0), ("He sings.", "He hums.", 3.0)]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def line(first: str, second: str, score: float) -> str:
    return f"{first}\t{second}\t{score}"


LINES = [line(*row) for row in ROWS]


def test_rows_are_read_with_or_without_a_header(tmp_path: Path) -> None:
    for number, more in enumerate(([], ["sentence1\tsentence2\tscore"])):
        name = own_pairs.add(write(tmp_path / f"set{number}.tsv", *more, *LINES))
        table = pairs(name).table
        read = zip(table["sentence1"][:], table["sentence2"][:], table["score"][:], strict=True)
        assert [*read] == ROWS


def test_another_content_is_another_set(tmp_path: Path) -> None:
    path = write(tmp_path / "one.tsv", *LINES)
    first = own_pairs.add(path)
    assert own_pairs.add(path) == first
    second = own_pairs.add(write(path, *(line(a, b, score + 1) for a, b, score in ROWS)))
    assert second != first
    assert [pairs(name).table["score"][0] for name in (first, second)] == [4.5, 5.5]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a\tb\t1", "c\td"], "line 2: 2 columns, expected 3 as in the first line; separate columns by tabs"),
        (["a\tb\t1", "c\td\thigh"], "line 2: expected two sentences and a finite score"),
        (["a\tb\t1", "\td\t2"], "line 2: expected two sentences and a finite score"),
        (["first\tsecond\tscore", "a\tb\t1", "c\td\t2"], "expected at least 3 pairs, found 2"),
    ],
)
def test_a_file_of_another_form_is_refused_by_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own_pairs.add(write(tmp_path / "bad.tsv", *lines))


@pytest.mark.parametrize(
    "score", ["nan", "inf", "-Infinity", "", "1,5", "x1", "1_0", "\uff11", "0x1", "1e999", "1 0", "--1", "True"]
)
@pytest.mark.parametrize("number", [1, 3])
def test_a_bad_score_is_refused_on_any_line(tmp_path: Path, score: str, number: int) -> None:
    lines = [*LINES[: number - 1], f"c\td\t{score}", *LINES[number - 1 :]]
    with pytest.raises(ValueError, match=rf"line {number}: expected two sentences and a finite score, got \['c', 'd'"):
        own_pairs.add(write(tmp_path / "bad.tsv", *lines))


@pytest.mark.parametrize("score", ["true", "null", "NaN", "Infinity", '"1_0"', "[1]", "1" + "0" * 400])
def test_a_bad_score_of_an_object_is_refused(tmp_path: Path, score: str) -> None:
    lines = [
        '{"sentence1": "a", "sentence2": "b", "score": 1}',
        f'{{"sentence1": "c", "sentence2": "d", "score": {score}}}',
    ]
    with pytest.raises(ValueError, match=r"line 2: expected two sentences and a finite score, got \['c', 'd'"):
        own_pairs.add(write(tmp_path / "bad.jsonl", *lines))


@pytest.mark.parametrize("score", ["1", "-1.5", "+.5", "2.", " 3e-2 ", "007"])
def test_numbers_of_every_form_are_scores(tmp_path: Path, score: str) -> None:
    name = own_pairs.add(write(tmp_path / "good.tsv", f"c\td\t{score}", *LINES))
    assert pairs(name).table["score"][0] == float(score)


FRAME = pd.DataFrame(ROWS, columns=["sentence1", "sentence2", "score"])
HEADERS = {
    "in another order": FRAME[["score", "sentence2", "sentence1"]],
    "with an index": FRAME.rename_axis("").reset_index(),
    "in capitals": FRAME.rename(columns=str.upper),
    "of SICK": FRAME.set_axis(["sentence_A", "sentence_B", "relatedness_score"], axis=1),
    "of sentence-transformers": FRAME.set_axis(["Sentence 1", "Sentence 2", "Label"], axis=1),
    "with hyphens": FRAME.set_axis(["sentence-1", "sentence-2", "similarity-score"], axis=1).assign(id="a"),
    "with an unknown score": FRAME.set_axis(["sent0", "sent1", "how similar"], axis=1),
    "with unknown sentences": FRAME.set_axis(["first", "second", "score"], axis=1),
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("suffix", [".csv", ".TSV", ".jsonl", ".parquet"])
def test_columns_are_known_by_a_header(tmp_path: Path, header: str, suffix: str) -> None:
    path, frame = tmp_path / f"pairs{suffix}", HEADERS[header]
    if suffix in (".csv", ".TSV"):
        frame.to_csv(path, index=False, sep="," if suffix == ".csv" else "\t")
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    name = own_pairs.add(path)
    table = pairs(name).table
    assert [*zip(*(table[column][:] for column in FRAME.columns), strict=True)] == ROWS


def test_columns_are_named_or_asked_for(tmp_path: Path) -> None:
    frame = FRAME.set_axis(["a", "b", "c"], axis=1).assign(d=[1.0, 2.0, 3.0])
    frame.to_csv(tmp_path / "odd.csv", index=False)
    name = own_pairs.add(tmp_path / "odd.csv", ["b", "a", "d"])
    assert own_pairs.find(name).rows[0] == ("all", ROWS[0][1], ROWS[0][0], 1.0)
    assert own_pairs.add(tmp_path / "odd.csv", ["b", "a", "c"]) != name  # another set: nothing stored is mistaken
    message = r"line 1: expected sentence, sentence, score, got \['a', .*; name .*--columns"
    with pytest.raises(ValueError, match=message):
        own_pairs.add(tmp_path / "odd.csv")
    with pytest.raises(ValueError, match="expected three columns, sentence, sentence and score, got a b"):
        own_pairs.add(tmp_path / "odd.csv", ["a", "b"])
    frame.to_csv(tmp_path / "bare.csv", index=False, header=False)
    assert own_pairs.find(own_pairs.add(tmp_path / "bare.csv", ["2", "1", "4"])).rows == own_pairs.find(name).rows
    FRAME.assign(label=1).to_csv(tmp_path / "two.csv", index=False)
    message = r"two\.csv: expected two sentences and a score, got the columns \('sentence1'"
    with pytest.raises(ValueError, match=message):
        own_pairs.add(tmp_path / "two.csv")


@pytest.mark.parametrize(
    "header",
    [
        "sentence1\tsentence2\tScore\tscore",
        "sentence1\tsentence2\tSentence2\tscore",
        "sentence1\tsentence2\tscore\tscore",
        "Query\tPositive\t2.5",  # may be the first pair
    ],
)
def test_columns_that_may_be_others_are_asked_for(tmp_path: Path, header: str) -> None:
    path = write(tmp_path / "two.tsv", header, *("\t".join(f"{i}{j}" for j in header.split("\t")) for i in range(3)))
    with pytest.raises(ValueError, match=r"two\.tsv: expected two sentences and a score, got the columns .*; name"):
        own_pairs.add(path)


@pytest.mark.parametrize("content", ["", "\n\n", "sentence1\tsentence2\tscore\n"])
@pytest.mark.parametrize("columns", [(), ("1", "2", "3")])
def test_a_file_without_rows_is_refused(tmp_path: Path, content: str, columns: tuple[str, ...]) -> None:
    (tmp_path / "void.tsv").write_text(content)
    with pytest.raises(ValueError, match=r"void\.tsv: expected at least 3 pairs, found none"):
        own_pairs.add(tmp_path / "void.tsv", columns)


def test_a_header_of_unknown_names_is_no_score(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.tsv", "erster\tzweiter\twert", *LINES)
    with pytest.raises(ValueError, match=r"line 1: .*'wert'\] \(if it is a header, name the two sentences' columns"):
        own_pairs.add(path)
    assert len(own_pairs.find(own_pairs.add(path, ["erster", "zweiter", "wert"])).rows) == 3


def test_constant_gold_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "one.tsv", *(line(a, b, 3.0) for a, b, _ in ROWS))
    with pytest.raises(ValueError, match=r"one\.tsv: all 3 scores are 3: a correlation needs different ones"):
        own_pairs.add(path)


def test_what_was_read_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = ["sentence1\tsentence2\tscore", '"He said ""a""."\tb\t1', "", *(line(*ROWS[0]) for _ in range(3)), "\t"]
    path = write(tmp_path / "mine.tsv", *lines)
    assert own_pairs.add(path) == own_pairs.add(path)
    assert caplog.messages == [
        "mine.tsv: 4 pairs; columns sentence1, sentence2, score; quoted by csv's rules; "
        "2 duplicates kept, 2 blank lines left out"
    ]


def test_a_missing_file_and_a_set_of_another_process_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.tsv: no such file"):
        own_pairs.add(tmp_path / "gone.tsv")
    with pytest.raises(ValueError, match="set own_gone_00000000: not added in this process"):
        pairs("own_gone_00000000")


def test_a_file_whose_name_begins_as_those_of_sets_do_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_pairs.tsv").write_text("A\tB\t1\nC\tD\t2\nE\tF\t3\n")
    monkeypatch.chdir(tmp_path)
    (name,) = suite.expand_names(["own_pairs.tsv"])
    assert own_pairs.is_own(name)
    assert not own_pairs.is_own("own_pairs.tsv")
    with pytest.raises(ValueError, match="unknown task 'own_pairs'"):
        suite.expand_names(["own_pairs"])


def test_a_name_with_an_extension_or_a_folder_is_a_file() -> None:
    for name in ("pairs.csv", "pairs.TSV", "folder/pairs", "pairs.xlsx"):
        with pytest.raises(FileNotFoundError, match=r"no such file; expected .*, as \.txt, \.tsv, \.csv, \.jsonl"):
            suite.expand_names([name])
