"""Locate corpora and evaluation sets: in the data folder, in the Hugging Face cache, or on the hub.

The data folder is the argument or $CSE_DATA. A missing set is an error; it is never replaced by another.
"""

import codecs
import gzip
import hashlib
import json
import logging
import lzma
import os
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import huggingface_hub
from filelock import FileLock

from cse_core.data.arrow_cache import cache_folder
from cse_core.data.atomic_write import atomic_write, full_disk_error

REPOSITORY = "princeton-nlp/datasets-for-simcse"
ON_THE_HUB = {"wiki1m_for_simcse": "wiki1m_for_simcse.txt"}
ARCHIVE = "senteval.tar"
SUFFIXES = ("", ".txt", ".txt.xz", ".txt.gz")
LAYOUTS = ("senteval/downstream", "SentEval/data/downstream", ".")
UNPACKED = "unpacked.json"  # has the SHA-256 of every file of an unpacked archive
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
HUB_SECONDS = 3.0  # within which the hub must answer the first request
MOST_BYTES, MOST_MEMBERS = 2 << 30, 20_000  # of an archive; SentEval's own has 50 MB in 70 files

logger = logging.getLogger(__name__)


def data_folder(folder: Path | None) -> Path | None:
    """Return the folder of local data: the argument or $CSE_DATA, if one is given. It must exist."""
    named = folder or os.environ.get("CSE_DATA")
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(f"data folder {path}: no such folder; correct --data or CSE_DATA, or leave both unset")
    return path


def locate_corpus(name: str, folder: Path | None = None) -> Path:
    """Return the file of a corpus: in the data folder, at the path `name`, in the Hugging Face cache, or downloaded."""
    folder = data_folder(folder)
    places = [folder / f"{name}{suffix}" for suffix in SUFFIXES] if folder else []
    places.append(Path(name).expanduser())
    for place in places:
        if place.is_file():
            return place
    if name in ON_THE_HUB:
        return _from_hub(ON_THE_HUB[name], places)
    raise FileNotFoundError(
        f"corpus {name}: no such file among {_join(places)}, and the hub has only {', '.join(ON_THE_HUB)}; "
        "name the folder that holds the file with --data or CSE_DATA"
    )


def locate_senteval(folder: Path | None = None) -> Path:
    """Return the folder with STS/, MR/, ...: in the data folder, or unpacked from the hub's archive."""
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
    """Return the first `lines` lines (all if None) of a plain, .gz or .xz text. Only "\\n" and "\\r\\n" end a line.

    If UTF-8 is expected, a byte order mark can show that the text is UTF-16. The mark is not part of the text.
    """
    # newline="\n" keeps U+2028, U+0085 and a lone "\r" inside the line, where splitlines() would cut.
    opener: Callable[..., Any] = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    try:
        if encoding == "utf-8":
            with opener(path, "rb") as stream:
                start = stream.read(len(codecs.BOM_UTF8))
            encoding = next((marked for mark, marked in BYTE_ORDER_MARKS.items() if start.startswith(mark)), encoding)
        with opener(path, "rt", encoding=encoding, newline="\n") as stream:
            most = None if lines is None else min(lines, sys.maxsize)
            return [line.removesuffix("\n").removesuffix("\r") for line in islice(stream, most)]
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: cut short or damaged ({error}); delete it and copy or fetch it again") from error
    except UnicodeDecodeError as error:
        place = _undecodable_line(opener, path) if encoding.startswith("utf-8") else ""
        raise ValueError(f"{path}{place}: not {encoding} ({error}); convert it, or copy it again unchanged") from error


def _undecodable_line(opener: Callable[..., Any], path: Path) -> str:
    """Return ", line N" for the first line that is not UTF-8, as the error of a stream counts from its last read."""
    with opener(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


def _from_hub(filename: str, places: Sequence[Path]) -> Path:
    from huggingface_hub import errors  # lazy: slow import

    # The cache comes first, because hf_hub_download makes a request even for a file that it has.
    cached = huggingface_hub.try_to_load_from_cache(REPOSITORY, filename, repo_type="dataset")
    if isinstance(cached, str):
        return Path(cached)
    try:
        # One request without retries: hf_hub_download would try for half a minute, with a warning each time.
        url = huggingface_hub.hf_hub_url(REPOSITORY, filename, repo_type="dataset")
        huggingface_hub.get_hf_file_metadata(url, timeout=HUB_SECONDS)
        download = partial(huggingface_hub.hf_hub_download, REPOSITORY, filename, repo_type="dataset")
        return Path(download_again_if_cut(download))
    except (errors.EntryNotFoundError, errors.HTTPError, errors.OfflineModeIsEnabled, OSError) as error:
        if full := full_disk_error(error, Path(huggingface_hub.constants.HF_HUB_CACHE)):
            raise full from error
        raise FileNotFoundError(
            f"{filename}: not among {_join(places)}, not in the Hugging Face cache, and not available from the "
            f"hub's dataset {REPOSITORY} ({_first_line(error)}); allow the download (unset HF_HUB_OFFLINE, set "
            "HF_ENDPOINT to a mirror), or name a folder that holds the data with --data or CSE_DATA"
        ) from error


def download_again_if_cut(download: Callable[..., str]) -> str:
    """Download from the hub; if the connection breaks, discard the part that is cached and try once more."""
    from huggingface_hub import errors  # lazy: slow import

    try:
        return download()
    except errors.HfHubHTTPError:  # an answer of the hub: it was not cut
        raise
    except (errors.HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of this machine, such as a full disk
            raise
        logger.warning("the hub's download was cut (%s): it is fetched again", _first_line(error))
        return download(force_download=True)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _join(places: Sequence[Path]) -> str:
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
                    tar.extractall(root, members=_checked_members(tar), filter="data")
                _downstream(root, "the archive")
            except (tarfile.TarError, EOFError, ValueError) as error:
                raise ValueError(f"{archive}: refused ({error}); delete it to fetch it again, or use a copy") from error
            atomic_write(root / UNPACKED, json.dumps(_hashes(root)))
            if target.exists():
                target.rename(Path(temporary) / "damaged")
            root.rename(target)


def _is_whole(unpacked: Path) -> bool:
    """Whether the files of an unpacked archive are as they were unpacked; warn of one that is not."""
    if not unpacked.is_dir():
        return False
    try:
        listed = json.loads((unpacked / UNPACKED).read_text())
    except (FileNotFoundError, ValueError):  # of an earlier version, or cut short
        listed = {UNPACKED: ""}
    actual = _hashes(unpacked)
    wrong = [name for name in listed if actual.get(name) != listed[name]]
    if wrong:
        logger.warning("%s is not as it was unpacked: the archive is unpacked again", unpacked / wrong[0])
    return not wrong


def _hashes(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != UNPACKED)
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _checked_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    size = 0
    for count, member in enumerate(tar, start=1):
        size += member.size
        if count > MOST_MEMBERS or size > MOST_BYTES:
            raise ValueError(f"{count:,} members of {size:,} bytes so far, at most {MOST_MEMBERS:,} of {MOST_BYTES:,}")
        if member.isfile() or member.isdir():  # a link could lead out of the folder, and the data needs none
            yield member


def _downstream(root: Path, name: str) -> Path:
    """Return the folder that holds STS/, at any depth."""
    folders = [path.parent for path in root.rglob("STS") if path.is_dir()]
    if not folders:
        raise ValueError(f"{name} has no folder STS, expected SentEval's downstream data; delete it to get it again")
    return min(folders, key=lambda path: (len(path.parts), path))
