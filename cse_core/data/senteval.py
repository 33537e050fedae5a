"""SentEval's evaluation sets as Arrow tables: pairs with gold scores (STS) and labelled sentences (transfer tasks).

A wrong count (per class) is an error. A wrong hash is only a warning: a copy with the right counts but other bytes is
used. Duplicates and empty sentences are part of the published sets and stay.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from cse_core.data import own_pairs, synthetic
from cse_core.data.arrow_cache import arrow_table, cache_folder
from cse_core.data.locate import locate_senteval, read_lines
from cse_core.run import key_of

if TYPE_CHECKING:
    from datasets import Dataset

FORMAT = 1  # of the tables: bump with any change of what is read from the same files
REMEDY = "get SentEval's original data with its own script and name the folder with --data or CSE_DATA"

STS_TEST = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
STS_DEV = ("stsb_dev", "sickr_dev")
STS_TRAIN = ("stsb_train", "sickr_train")
SYNTHETIC = {"synthetic": "test", "synthetic_dev": "dev"}
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
SETS = (*STS_TEST, *STS_DEV, *STS_TRAIN, "synthetic_dev", *TRANSFER)  # whose sentences may serve as a corpus
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

PAIRS = pa.schema({"part": pa.string(), "sentence1": pa.string(), "sentence2": pa.string(), "score": pa.float64()})
LABELLED = pa.schema({"split": pa.string(), "sentence1": pa.string(), "sentence2": pa.string(), "label": pa.int64()})

# Scored pairs of each part. STS13's SMT has no sentences (licence) and STS12's ALL is no part: neither is here.
PARTS = {
    "sts12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    "sts13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14": {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750},
    "sts15": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "sts16": {"answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209},
}


class Layout(NamedTuple):
    """A file of one pair per line: columns of sentences and score, header rows, lowest score, number of pairs."""

    file: str
    columns: tuple[int, int, int]
    header: int
    lowest: float
    rows: int


class Labels(NamedTuple):
    """A file of labelled sentences and how many of each label it has. The binary sets have one label per file."""

    file: str
    split: str
    counts: Mapping[int, int]


SINGLE = {
    "stsb_train": Layout("STS/STSBenchmark/sts-train.csv", (5, 6, 4), 0, 0.0, 5749),
    "stsb_dev": Layout("STS/STSBenchmark/sts-dev.csv", (5, 6, 4), 0, 0.0, 1500),
    "stsb": Layout("STS/STSBenchmark/sts-test.csv", (5, 6, 4), 0, 0.0, 1379),
    "sickr_train": Layout("SICK/SICK_train.txt", (1, 2, 3), 1, 1.0, 4500),
    "sickr_dev": Layout("SICK/SICK_trial.txt", (1, 2, 3), 1, 1.0, 500),
    "sickr": Layout("SICK/SICK_test_annotated.txt", (1, 2, 3), 1, 1.0, 4927),
}
CLASSES = {
    "mr": (Labels("MR/rt-polarity.pos", "all", {1: 5331}), Labels("MR/rt-polarity.neg", "all", {0: 5331})),
    "cr": (Labels("CR/custrev.pos", "all", {1: 2407}), Labels("CR/custrev.neg", "all", {0: 1368})),
    "subj": (Labels("SUBJ/subj.objective", "all", {1: 5000}), Labels("SUBJ/subj.subjective", "all", {0: 5000})),
    "mpqa": (Labels("MPQA/mpqa.pos", "all", {1: 3312}), Labels("MPQA/mpqa.neg", "all", {0: 7294})),
    "sst2": (
        Labels("SST/binary/sentiment-train", "train", {0: 29780, 1: 37569}),
        Labels("SST/binary/sentiment-dev", "dev", {0: 428, 1: 444}),
        Labels("SST/binary/sentiment-test", "test", {0: 912, 1: 909}),
    ),
    "trec": (
        Labels("TREC/train_5500.label", "train", {0: 86, 1: 1162, 2: 1250, 3: 1223, 4: 835, 5: 896}),
        Labels("TREC/TREC_10.label", "test", {0: 9, 1: 138, 2: 94, 3: 65, 4: 81, 5: 113}),
    ),
    "mrpc": (
        Labels("MRPC/msr_paraphrase_train.txt", "train", {0: 1323, 1: 2753}),
        Labels("MRPC/msr_paraphrase_test.txt", "test", {0: 578, 1: 1147}),
    ),
}


class TruncatedTask(ValueError):  # noqa: N818 (it refuses a task)
    """MR or SUBJ has too few sentences, so the task is refused."""


@dataclass(frozen=True)
class EvalDataset:
    """One task's rows, the hashes of the files they come from, and warnings for readers of its scores."""

    task: str
    table: "Dataset"
    files: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def pairs(task: str, folder: Path | None = None) -> EvalDataset:
    """Return scored pairs in file order, parts in alphabetical order: part, sentence1, sentence2, unscaled score."""
    if task in SYNTHETIC:
        rows = _synthetic_rows(SYNTHETIC[task])
        return EvalDataset(task, _cached_table({"task": task, "rows": rows}, PAIRS, lambda: rows), {})
    if task in PARTS:
        names = [name for part in PARTS[task] for name in year_files(task, part)]
        return _load_dataset(task, names, folder, PAIRS, lambda root: _year_rows(task, root))
    if task in SINGLE:
        return _load_dataset(task, [SINGLE[task].file], folder, PAIRS, lambda root: _single_rows(task, root))
    if own_pairs.is_own(task):
        added = own_pairs.find(task)
        table = _cached_table({"task": task, "rows": added.content}, PAIRS, lambda: added.rows)
        return EvalDataset(task, table, {added.path.name: added.sha256})
    raise ValueError(f"task {task}: not among {', '.join((*STS_TEST, *STS_DEV, *STS_TRAIN, *SYNTHETIC))}")


def distinct_sentences(task: str, folder: Path | None = None) -> list[str]:
    """Return a set's distinct sentences in file order, a row's first one first.

    A transfer task has those of all its splits. Empty sentences are left out.
    """
    table = (labelled_sentences if task in CLASSES else pairs)(task, folder).table
    both = zip(table["sentence1"][:], table["sentence2"][:], strict=True)
    return list(dict.fromkeys(sentence for row in both for sentence in row if sentence))


def labelled_sentences(task: str, folder: Path | None = None) -> EvalDataset:
    """Return labelled sentences in file order, before SentEval's sorting: split, sentence1, sentence2, label."""
    if task not in CLASSES:
        raise ValueError(f"task {task}: not among {', '.join(TRANSFER)}")
    names = [labels.file for labels in CLASSES[task]]
    return _load_dataset(task, names, folder, LABELLED, lambda root: _labelled_rows(task, root))


def _load_dataset(
    task: str, names: list[str], folder: Path | None, schema: pa.Schema, rows: Callable[[Path], Iterable[tuple]]
) -> EvalDataset:
    root = locate_senteval(folder)
    files = {name: _sha256(root / name) for name in names}
    table = _cached_table({"task": task, "files": files}, schema, lambda: rows(root))
    listed = read_lines(Path(__file__).parents[1] / "assets" / "SENTEVAL_SHA256SUMS")
    hashes = {name: digest for digest, name in (line.split() for line in listed)}
    warnings = tuple(
        f"{root / name}: sha256 {digest[:12]}, expected {hashes[name][:12]}; the counts are right, the text may differ"
        for name, digest in files.items()
        if digest != hashes[name]
    )
    return EvalDataset(task, table, files, warnings)


@cache  # every training run and evaluation of a process reads them
def _synthetic_rows(split: str) -> tuple[tuple[str, str, str, float], ...]:
    return tuple(synthetic.pairs(split))


def _cached_table(content: dict, schema: pa.Schema, rows: Callable[[], Iterable[tuple]]) -> "Dataset":
    def batches() -> Iterator[pa.RecordBatch]:
        columns = zip(*rows(), strict=True)
        yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)

    return arrow_table(cache_folder() / "evaluation" / key_of(content | {"format": FORMAT}), batches)


def _sha256(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: missing; {REMEDY}")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def year_files(task: str, part: str) -> tuple[str, str]:
    """Return the names of a part's two files: pairs of sentences, and scores."""
    year = f"STS/STS{task.removeprefix('sts')}-en-test"
    return f"{year}/STS.input.{part}.txt", f"{year}/STS.gs.{part}.txt"


def _year_rows(task: str, root: Path) -> Iterator[tuple[str, str, str, float]]:
    for part, expected in PARTS[task].items():
        texts, gold = (root / name for name in year_files(task, part))
        lines, scores = read_lines(texts), read_lines(gold)
        if len(lines) != len(scores):
            raise ValueError(f"{texts}: {len(lines)} pairs, expected the {len(scores)} of {gold.name}; {REMEDY}")
        # An empty line of gold is a pair that was never scored; most of STS15 and STS16 are.
        rows = enumerate(zip(lines, scores, strict=True), 1)
        scored = [(number, line, score) for number, (line, score) in rows if score.strip()]
        _check_count(gold, len(scored), expected, "scored pairs")
        for number, line, score in scored:
            yield part, *pair_cells(line, texts, number), _parse_score(score, 0.0, gold, number)


def pair_cells(line: str, path: Path, number: int) -> tuple[str, str]:
    """Return the two sentences of a line, with single spaces."""
    first, second = _split_cells(line, (0, 1), path, number)
    return _squeeze_blanks(first), _squeeze_blanks(second)


def _single_rows(task: str, root: Path) -> Iterator[tuple[str, str, str, float]]:
    layout = SINGLE[task]
    path = root / layout.file
    lines = read_lines(path)[layout.header :]
    _check_count(path, len(lines), layout.rows, "pairs")
    for number, line in enumerate(lines, start=1 + layout.header):
        first, second, score = _split_cells(line, layout.columns, path, number)
        yield task, _squeeze_blanks(first), _squeeze_blanks(second), _parse_score(score, layout.lowest, path, number)


def _labelled_rows(task: str, root: Path) -> Iterator[tuple[str, str, str, int]]:
    for labels in CLASSES[task]:
        path = root / labels.file
        rows = list(_READERS.get(task, _binary)(path, labels))
        seen = Counter(label for _, _, label in rows)
        for label, expected in labels.counts.items():
            if task in ("mr", "subj") and seen[label] < expected:
                raise TruncatedTask(
                    f"{path}: {seen[label]:,} sentences of class {label}, expected {expected:,}; archives of SimCSE's "
                    "data from before September 2021 are cut short (SimCSE issue 84: SUBJ has 20 of 5,000 subjective "
                    f"sentences), so the task is refused; {REMEDY}"
                )
            _check_count(path, seen[label], expected, f"rows of class {label}")
        yield from ((labels.split, first, second, label) for first, second, label in rows)


def _binary(path: Path, labels: Labels) -> Iterator[tuple[str, str, int]]:
    (label,) = labels.counts
    return ((_squeeze_blanks(line), "", label) for line in read_lines(path, "latin-1"))


def _sst2(path: Path, labels: Labels) -> Iterator[tuple[str, str, int]]:
    for number, line in enumerate(read_lines(path), start=1):
        text, label = _split_cells(line, (0, 1), path, number)
        yield _squeeze_blanks(text), "", _parse_label(label, labels, path, number)


def _trec(path: Path, labels: Labels) -> Iterator[tuple[str, str, int]]:
    # One byte of the training file (line 66) is latin-1, not UTF-8.
    for number, line in enumerate(read_lines(path, "latin-1"), start=1):
        kind, _, text = line.partition(" ")
        coarse = kind.partition(":")[0]
        label = str(TREC_CLASSES.index(coarse)) if coarse in TREC_CLASSES else coarse
        yield _squeeze_blanks(text), "", _parse_label(label, labels, path, number)


def _mrpc(path: Path, labels: Labels) -> Iterator[tuple[str, str, int]]:
    # The first line is a header.
    for number, line in enumerate(read_lines(path)[1:], start=2):
        label, first, second = _split_cells(line, (0, 3, 4), path, number)
        yield _squeeze_blanks(first), _squeeze_blanks(second), _parse_label(label, labels, path, number)


_READERS = {"sst2": _sst2, "trec": _trec, "mrpc": _mrpc}


def _squeeze_blanks(cell: str) -> str:
    return " ".join(cell.split())


def _split_cells(line: str, columns: Sequence[int], path: Path, number: int) -> list[str]:
    cells = line.split("\t")
    if len(cells) <= max(columns):
        raise ValueError(f"{path}, line {number}: {len(cells)} columns, expected at least {max(columns) + 1}; {REMEDY}")
    return [cells[column] for column in columns]


def _parse_score(cell: str, lowest: float, path: Path, number: int) -> float:
    try:
        score = float(cell)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {cell!r} is no score; {REMEDY}") from error
    if not lowest <= score <= 5:
        raise ValueError(f"{path}, line {number}: score {score:g}, expected {lowest:g} to 5; {REMEDY}")
    return score


def _parse_label(cell: str, labels: Labels, path: Path, number: int) -> int:
    classes = {str(label): label for label in labels.counts}
    if cell.strip() not in classes:
        raise ValueError(f"{path}, line {number}: class {cell!r}, expected one of {', '.join(classes)}; {REMEDY}")
    return classes[cell.strip()]


def _check_count(path: Path, actual: int, expected: int, what: str) -> None:
    if actual != expected:
        raise ValueError(f"{path}: {actual:,} {what}, expected {expected:,}; {REMEDY}")
