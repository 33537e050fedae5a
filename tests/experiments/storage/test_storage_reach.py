"""Shared storage reaches no file outside a run's folder, and no message shows a secret."""

import json
from pathlib import Path

import pytest

from experiments.storage.credentials import redact_credentials
from experiments.storage.shared_storage import Shared
from tests.support.shared_folders import prepared


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:S3CRET@host.example/path",
        "http://ann:x/S3CRET@host.example/path",
        "http://ann:x@S3CRET@host.example:5000/api",
        "http://ann:x?S3CRET#y@host.example",
        "http://S3CRET@host.example",
        "https://host.example/a?sig=S3CRET",
        "https://host.example/a?se=1&sig=S3CRET%3D&x=1",
        "s3://host.example/a?X-Amz-Signature=S3CRET",
        "https://host.example/a?token=S3CRET/with=more",
        "postgresql://ann:S3CRET@host.example/db?password=S3CRET",
    ],
)
def test_no_secret_of_a_url_is_shown_and_its_host_is(url: str) -> None:
    text = redact_credentials(OSError(f"API request to {url} failed"))
    assert "S3CRET" not in text
    assert "host.example" in text
    assert text.startswith("API request to ")
    assert text.endswith(" failed")


def test_paths_and_plain_addresses_stay_as_they_are() -> None:
    for text in ("sqlite:////home/a@b/mlflow.db", "http://127.0.0.1:5000/#/runs", "file:///a/b", "is it there? yes=no"):
        assert redact_credentials(text) == text


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_symbolic_link_in_shared_storage_is_not_followed(tmp_path: Path, linked: str) -> None:
    shared = Shared(prepared((tmp_path / "shared").as_uri()))
    secret = tmp_path / "private" / "secret.json"
    secret.parent.mkdir()
    secret.write_text("private")
    place = tmp_path / "shared" / "c0ffee" / "0123456789ab-1"
    place.mkdir(parents=True)
    (place.parent / "1").write_text(place.name)
    if linked == "file":
        (place / "secret.json").symlink_to(secret)
    else:
        (place / "last").symlink_to(secret.parent)
    name = "secret.json" if linked == "file" else "last/secret.json"
    (place / "complete").write_text(json.dumps({name: {"bytes": 7, "sha256": ""}}))
    with pytest.raises(PermissionError, match="is a symbolic link, expected a file of a run"):
        shared.fetch("c0ffee", tmp_path / "store")
    assert not list((tmp_path / "store").rglob("secret*"))


def test_a_symbolic_link_in_a_runs_folder_is_not_uploaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = Shared(prepared((tmp_path / "shared").as_uri()))
    (tmp_path / "secret.json").write_text("private")
    folder = tmp_path / "store" / "c0ffee"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    assert shared.publish(folder, 0)
    assert not list((tmp_path / "shared").rglob("link.json"))
    assert "link.json: is a symbolic link and is not uploaded" in caplog.text
