"""Encoders from a hub that a small server plays for a real process: what is fetched, refused and absent."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cse_core.models.pretrained import ASSETS, encoder_hash
from tests.support.hub_server import hub_environment, hub_server

WIKI_TINY = ASSETS / "wiki-tiny"
CHILD = """
import json, sys
from pathlib import Path
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import encoder_hash, resolve_pinned
from cse_core.run import Pretrained
seen = {}
for name, tokenizer in json.loads(sys.argv[1]):
    try:
        folder = resolve_pinned(Pretrained(name, tokenizer=tokenizer), Path(sys.argv[2]))
        vectors = Encoder.from_pretrained(folder).encode(["a cat sat"])
        seen[name] = {"hash": encoder_hash(folder), "vector": vectors[0].tolist()}
    except (ValueError, OSError) as error:
        seen[name] = f"{type(error).__name__}: {error}"
print(json.dumps(seen))
"""
ASKED = (
    ("someone/safetensors", "someone/base"),
    ("someone/pickle", "someone/base"),
    ("someone/inside/unsup-inside", "someone/base"),
    ("someone/bare", "someone/base"),
    ("someone/empty", "someone/base"),
    ("someone/inside/absent", "someone/base"),
    ("someone/absent", "someone/base"),
)


def hub_files(folder: Path) -> dict[str, bytes]:
    """What the hub has: wiki-tiny in several forms, with files beside it that are nothing to fetch."""
    weights, pickled = (WIKI_TINY / "model.safetensors").read_bytes(), folder / "pytorch_model.bin"
    torch.save({f"module.{name}": value for name, value in load_file(WIKI_TINY / "model.safetensors").items()}, pickled)
    words = {name: (WIKI_TINY / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    config = {"config.json": (WIKI_TINY / "config.json").read_bytes()}
    more = dict.fromkeys(("training_args.bin", "optimizer.pt", "modeling.py", "README.md"), b"no part of an encoder")
    models: dict[str, dict[str, bytes]] = {
        "someone/safetensors": {"model.safetensors": weights, "pytorch_model.bin": b"another", **config, **words},
        "someone/pickle": {"pytorch_model.bin": pickled.read_bytes(), **config, **words},
        "someone/inside": {
            f"unsup-inside/{name}": content
            for name, content in ({"pytorch_model.bin": pickled.read_bytes()} | config | words).items()
        },
        "someone/bare": {"model.safetensors": weights, **config},
        "someone/base": {"model.safetensors": b"not needed for its tokenizer", **config, **words},
        "someone/empty": {**config, **words},
    }
    return {f"{model}/{name}": content for model, held in models.items() for name, content in (held | more).items()}


def ask(address: str, home: Path, asked: tuple[tuple[str, str], ...] = ASKED) -> dict[str, Any]:
    """What a new process sees of these encoders."""
    command = [sys.executable, "-c", CHILD, json.dumps(asked), str(home / "store")]
    environment = hub_environment(address, home)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's caches, empty at first."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def seen(home: Path) -> dict[str, Any]:
    """What a process with empty caches sees, and what it asked the hub for."""
    with hub_server(hub_files(home)) as (address, requests):
        found = ask(address, home)
    pins = (home / "store/pins.json").read_text()
    return found | {"requests": requests, "pins": pins}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in ASKED[:4]])
def test_each_form_is_fetched_and_read(name: str, seen: dict[str, Any]) -> None:
    from cse_core.models.encoder import Encoder

    expected = Encoder.from_pretrained("wiki-tiny").encode(["a cat sat"])[0].tolist()
    assert seen[name]["vector"] == pytest.approx(expected, abs=1e-5)  # processes may have other numbers of threads
    assert json.loads(seen["pins"])[f"backbone {name}"] == seen[name]["hash"]
    same = name in ("someone/safetensors", "someone/bare")  # a pickle's bytes are others
    assert (seen[name]["hash"] == encoder_hash(WIKI_TINY)) == same


@pytest.mark.slow
def test_only_what_an_encoder_needs_is_fetched(seen: dict[str, Any]) -> None:
    fetched = {
        request.rpartition("/")[2]
        for request in seen["requests"]
        if request.startswith("GET") and "/resolve/" in request
    }
    assert fetched == {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
        "pytorch_model.bin",
    }
    weights = [
        request for request in seen["requests"] if request.startswith("GET") and "model" in request.rpartition("/")[2]
    ]
    assert not [request for request in weights if "someone/base" in request]  # only its tokenizer
    assert not [request for request in weights if "someone/safetensors" in request and request.endswith(".bin")]


@pytest.mark.slow
def test_what_is_absent_is_named(seen: dict[str, Any]) -> None:
    assert "empty" in seen["someone/empty"]
    assert "holds neither model.safetensors nor pytorch_model.bin" in seen["someone/empty"]
    for name in ("someone/inside/absent", "someone/absent"):
        assert seen[name].startswith(f"FileNotFoundError: backbone '{name}': neither embedded")
        assert name not in seen["pins"]


@pytest.mark.slow
def test_a_download_that_was_cut_is_fetched_again(tmp_path: Path) -> None:
    files = hub_files(tmp_path)
    expected = encoder_hash(WIKI_TINY)
    with hub_server(files, cuts=1) as (address, _):
        assert ask(address, tmp_path / "once", ASKED[:1])["someone/safetensors"]["hash"] == expected
    with hub_server(files, cuts=100) as (address, _):
        (said,) = ask(address, tmp_path / "always", ASKED[:1]).values()
    assert said.startswith("FileNotFoundError: backbone 'someone/safetensors': neither embedded")
    with hub_server(files) as (address, _):  # what was left of it does not stay
        assert ask(address, tmp_path / "always", ASKED[:1])["someone/safetensors"]["hash"] == expected


@pytest.mark.slow
def test_what_was_fetched_is_there_when_the_hub_never_answers(seen: dict[str, Any], home: Path) -> None:
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        later = ask(f"http://127.0.0.1:{silent.getsockname()[1]}", home, (ASKED[1], ASKED[-1]))
    assert time.monotonic() - start < 60  # a download by itself waits for minutes
    assert later["someone/pickle"] == seen["someone/pickle"]
    assert later["someone/absent"].startswith("FileNotFoundError: backbone 'someone/absent': neither embedded")
