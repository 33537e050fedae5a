"""Sentences and training examples as memory-mapped Arrow tables, cached by content, and where their sources lie.

A source is looked for in the data folder (an argument, else $CSE_DATA), in the Hugging Face cache, then on the hub.
Nothing found is an error: no set ever stands in for another.
"""

import gzip
import hashlib
import json
import logging
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from datasets import Dataset
from filelock import FileLock
from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HTTPError, OfflineModeIsEnabled

from cse_core.data.arrow_table import arrow_table
from cse_core.data.atomic_write import atomic_write
from cse_core.method import Method, innermost, single_column
from cse_core.run import Corpus, canonical, key_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

REPOSITORY = "princeton-nlp/datasets-for-simcse"
ON_THE_HUB = {"wiki1m_for_simcse": "wiki1m_for_simcse.txt"}
ARCHIVE = "senteval.tar"
SUFFIXES = ("", ".txt", ".txt.xz", ".txt.gz")
LAYOUTS = ("senteval/downstream", "SentEval/data/downstream", ".")
EXAMPLES_FORMAT = 1  # of the examples' tables: bump with any change of single_column or of what is stored
CHUNK = 4096  # sentences tokenised and written at a time
UNPACKED = "unpacked.json"  # the SHA-256 of every file of an unpacked archive
HUB_SECONDS = 3.0  # in which the hub must answer a first request
MOST_BYTES, MOST_MEMBERS = 2 << 30, 20_000  # of an archive; SentEval's own has 50 MB in 70 files

logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where derived tables lie: $CSE_CACHE, else ~/.cache/cse-study. Everything in it can be deleted at any time."""
    return Path(os.environ.get("CSE_CACHE") or "~/.cache/cse-study").expanduser()


def data_folder(folder: Path | None) -> Path | None:
    """The folder of local data: the argument, else $CSE_DATA, else None. A named folder must exist."""
    named = folder or os.environ.get("CSE_DATA")
    if not named:
        return None
    found = Path(named).expanduser()
    if not found.is_dir():
        raise FileNotFoundError(f"data folder {found}: no such folder; correct --data or CSE_DATA, or leave both unset")
    return found


def locate_corpus(name: str, folder: Path | None = None) -> Path:
    """The file of a corpus: in the data folder, at the path `name`, in the Hugging Face cache, or downloaded."""
    folder = data_folder(folder)
    places = [folder / f"{name}{suffix}" for suffix in SUFFIXES] if folder else []
    places.append(Path(name).expanduser())
    for place in places:
        if place.is_file():
            return place
    if name in ON_THE_HUB:
        return _from_hub(ON_THE_HUB[name], places)
    raise FileNotFoundError(
        f"corpus {name}: no such file among {_listed(places)}, and the hub has only {', '.join(ON_THE_HUB)}; "
        "name the folder that holds the file with --data or CSE_DATA"
    )


def locate_senteval(folder: Path | None = None) -> Path:
    """The folder with STS/, MR/, ...: in the data folder, unpacked before, or unpacked now from the hub's archive."""
    folder = data_folder(folder)
    places = [folder / layout for layout in LAYOUTS] if folder else []
    for place in places:
        if (place / "STS").is_dir():
            return place
    unpacked = cache_folder() / "senteval"
    if not _is_whole(unpacked):
        _unpack(_from_hub(ARCHIVE, [place / "STS" for place in places]), unpacked)
    return _downstream(unpacked, str(unpacked))


def read_lines(path: Path, encoding: str = "utf-8", lines: int | None = None) -> list[str]:
    """The first `lines` lines (all if None) of a plain, .gz or .xz text. Only "\\n" and "\\r\\n" end a line."""
    # newline="\n" keeps U+2028, U+0085 and a lone "\r" inside the line, where splitlines() would cut.
    opener: Callable[..., Any] = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rt", encoding=encoding, newline="\n") as stream:
            return [line.removesuffix("\n").removesuffix("\r") for line in islice(stream, lines)]
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: cut short or damaged ({error}); delete it and copy or fetch it again") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not {encoding} ({error}); convert it, or copy it again unchanged") from error


def content_hash(lines: Iterable[str]) -> str:
    """SHA-256 of the lines as a UTF-8 file with one "\\n" after each: what `head -n N file | sha256sum` prints."""
    return hashlib.sha256(("\n".join(lines) + "\n").encode()).hexdigest()


def content_of(table: Dataset) -> str:
    """What a cached table holds, as a hash: its folder is named by it."""
    return Path(table.cache_files[0]["filename"]).parent.name


def sentences(corpus: Corpus, folder: Path | None = None) -> Dataset:
    """The corpus as a table with one column, `text`; a blank line is a single space.

    The name of an evaluation set (senteval.SETS) stands for the first of its distinct sentences.
    """
    home = cache_folder() / "corpora"
    if corpus.sha256:  # found by its hash, a cached table spares reading the source
        table = arrow_table(home / corpus.sha256, lambda: _text_batches(_read(corpus, folder)))
    else:
        lines = _read(corpus, folder)
        table = arrow_table(home / content_hash(lines), lambda: _text_batches(lines))
    if len(table) != corpus.lines:
        raise ValueError(f"corpus {corpus}: sha256 pins {len(table):,} lines; correct one of the two")
    return table


def examples(
    corpus: Corpus, method: Method, tokenizer: "PreTrainedTokenizerFast", max_length: int, folder: Path | None = None
) -> Dataset:
    """The method's training examples: a table with a column of int32 lists for each of its columns of token ids."""
    maker = innermost(method)
    key = key_of(
        {
            "format": EXAMPLES_FORMAT,
            "corpus": corpus.sha256 or content_hash(_read(corpus, folder)),
            "lines": corpus.lines,
            "tokenizer": _tokenizer_hash(tokenizer),
            "max_length": max_length,
            "examples": "single_column" if type(maker).examples is single_column else canonical(maker),
        }
    )

    def batches() -> Iterator[pa.RecordBatch]:
        texts = sentences(corpus, folder)
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]["text"]
            yield _ids_batch(method, method.examples(chunk, tokenizer, max_length))

    table = arrow_table(cache_folder() / "examples" / key, batches)
    if not len(table):
        raise ValueError(f"method {method.name}: no example from {corpus}, expected at least one")
    return table


def _read(corpus: Corpus, folder: Path | None) -> list[str]:
    """The corpus's lines as they stand in the source: as many as asked, with the pinned content."""
    from cse_core.data import senteval  # which reads its files by this module

    if corpus.name == "synthetic":
        from cse_core.data import synthetic

        source, lines = "synthetic", synthetic.sentences(corpus.lines)
    elif corpus.name in senteval.SETS:
        source, lines = (
            f"evaluation set {corpus.name}",
            senteval.distinct_sentences(corpus.name, folder)[: corpus.lines],
        )
    else:
        source = locate_corpus(corpus.name, folder)
        lines = read_lines(source, lines=corpus.lines)
    if not lines:
        raise ValueError(f"{source}: empty, expected {corpus.lines:,} lines; copy or fetch it again")
    if len(lines) < corpus.lines:
        raise ValueError(f"{source}: {len(lines):,} lines, expected {corpus.lines:,}; ask for fewer, or get all of it")
    found = content_hash(lines)
    if corpus.sha256 not in ("", found):
        raise ValueError(
            f"{source}: the first {corpus.lines:,} lines have sha256 {found}, expected {corpus.sha256}; "
            "get the pinned file, or leave sha256 empty to use this one as another corpus"
        )
    return lines


def _text_batches(lines: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(lines), CHUNK):
        chunk = [line if line.strip() else " " for line in lines[start : start + CHUNK]]
        yield pa.record_batch([pa.array(chunk, pa.string())], names=["text"])


def _ids_batch(method: Method, columns: dict[str, list[list[int]]]) -> pa.RecordBatch:
    lengths = {name: len(ids) for name, ids in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"method {method.name}: columns of token ids must be equally long, got {lengths}")
    return pa.record_batch([pa.array(ids, pa.list_(pa.int32())) for ids in columns.values()], names=list(columns))


def _tokenizer_hash(tokenizer: "PreTrainedTokenizerFast") -> str:
    """The hash of everything that decides the ids of a text, without the state that the last call left behind."""
    state = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    content = [state, tokenizer.special_tokens_map, tokenizer.truncation_side]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _from_hub(filename: str, places: Sequence[Path]) -> Path:
    # Asked first, because hf_hub_download makes a request even for a file that it has.
    cached = try_to_load_from_cache(REPOSITORY, filename, repo_type="dataset")
    if isinstance(cached, str):
        return Path(cached)
    try:
        # One request without retries: hf_hub_download would try for half a minute, with a warning each time.
        get_hf_file_metadata(hf_hub_url(REPOSITORY, filename, repo_type="dataset"), timeout=HUB_SECONDS)
        return Path(hf_hub_download(REPOSITORY, filename, repo_type="dataset"))
    except (EntryNotFoundError, HfHubHTTPError, HTTPError, OfflineModeIsEnabled) as error:
        raise FileNotFoundError(
            f"{filename}: not among {_listed(places)}, not in the Hugging Face cache, and not to be had from the "
            f"hub's dataset {REPOSITORY} ({_brief(error)}); allow the download (unset HF_HUB_OFFLINE, set HF_ENDPOINT "
            "to a mirror), or name a folder that holds the data with --data or CSE_DATA"
        ) from error


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _listed(places: Sequence[Path]) -> str:
    return ", ".join(map(str, places)) or "local files (no data folder was named)"


def _unpack(archive: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if _is_whole(target):
            return
        with TemporaryDirectory(prefix="unpacking-", dir=target.parent) as temporary:
            root = Path(temporary) / "root"
            try:
                with tarfile.open(archive) as tar:
                    tar.extractall(root, members=_bounded(tar), filter="data")
                _downstream(root, "the archive")
            except (tarfile.TarError, EOFError, ValueError) as error:
                raise ValueError(f"{archive}: refused ({error}); delete it to fetch it again, or use a copy") from error
            atomic_write(root / UNPACKED, json.dumps(_hashes(root)))
            if target.exists():
                target.rename(Path(temporary) / "damaged")
            root.rename(target)


def _is_whole(unpacked: Path) -> bool:
    """Whether the files of an unpacked archive are those that were unpacked; a warning names one that is not."""
    if not unpacked.is_dir():
        return False
    try:
        listed = json.loads((unpacked / UNPACKED).read_text())
    except (FileNotFoundError, ValueError):  # of an earlier version, or cut short
        listed = {UNPACKED: ""}
    found = _hashes(unpacked)
    wrong = [name for name in listed if found.get(name) != listed[name]]
    if wrong:
        logger.warning("%s is not as it was unpacked: the archive is unpacked again", unpacked / wrong[0])
    return not wrong


def _hashes(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != UNPACKED)
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _bounded(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    size = 0
    for count, member in enumerate(tar, start=1):
        size += member.size
        if count > MOST_MEMBERS or size > MOST_BYTES:
            raise ValueError(f"{count:,} members of {size:,} bytes so far, at most {MOST_MEMBERS:,} of {MOST_BYTES:,}")
        if member.isfile() or member.isdir():  # a link could lead out of the folder, and the data needs none
            yield member


def _downstream(root: Path, name: str) -> Path:
    """The folder that holds STS/, whatever lies above it."""
    found = [path.parent for path in root.rglob("STS") if path.is_dir()]
    if not found:
        raise ValueError(f"{name} has no folder STS, expected SentEval's downstream data; delete it to get it again")
    return min(found, key=lambda path: (len(path.parts), path))
