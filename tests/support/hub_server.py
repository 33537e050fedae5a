"""A server that imitates the Hugging Face hub for real processes, with files of data sets and models."""

import hashlib
import json
import os
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40


def _content(path: str, files: Mapping[str, bytes]) -> bytes | None:
    """A file's bytes, or the hub's JSON about a model; `files` are by repository and name."""
    path = path.partition("?")[0].lstrip("/")
    for marker in ("/resolve/main/", f"/resolve/{COMMIT}/"):
        if marker in path:
            return files.get(path.replace(marker, "/"))
    repository = path.removeprefix("api/models/").partition("/revision/")[0].partition("/tree/")[0]
    names = [name.removeprefix(f"{repository}/") for name in files if name.startswith(f"{repository}/")]
    if not path.startswith("api/models/") or not names:
        return None
    if "/tree/" in path:
        sizes = {name: len(files[f"{repository}/{name}"]) for name in names}
        tree = [{"type": "file", "path": name, "size": sizes[name], "oid": COMMIT} for name in names]
        return json.dumps(tree).encode()
    about = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
    return json.dumps(about).encode()


@contextmanager
def hub_server(files: Mapping[str, bytes], cuts: int = 0) -> Generator[tuple[str, list[str]]]:
    """Serve files; yield the address and the list of requests made so far.

    The connection breaks in the middle of the first `cuts` downloads of weights.
    """
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self, body: bool) -> None:
            nonlocal cuts
            requests.append(f"{self.command} {self.path}")
            content = _content(self.path, files)
            self.send_response(404 if content is None else 200)
            if content is None:
                self.send_header("X-Error-Code", "EntryNotFound" if "/resolve/" in self.path else "RepoNotFound")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            cut = body and cuts > 0 and self.path.endswith(".safetensors")
            if body:
                self.wfile.write((content or b"")[: len(content or b"") // (2 if cut else 1)])
            if cut:
                cuts -= 1
                self.connection.shutdown(socket.SHUT_RDWR)

        def do_HEAD(self) -> None:
            self.answer(False)

        def do_GET(self) -> None:
            self.answer(True)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


def hub_environment(address: str, home: Path) -> dict[str, str]:
    """The environment of a process with empty caches that uses this hub."""
    gone = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "CSE_ENCODERS")
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    caches = {"HF_HOME": home / "hf", "HF_HUB_CACHE": home / "hf" / "hub", "CSE_CACHE": home / "cache"}
    return kept | {"HF_ENDPOINT": address, "NO_PROXY": "127.0.0.1"} | {name: str(path) for name, path in caches.items()}
