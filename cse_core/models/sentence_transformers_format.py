"""Pooling and template in an encoder's folder, in sentence-transformers' format where it can express them."""

import json
from pathlib import Path
from typing import Any

from cse_core.models.pretrained import POOLING_FILE

POOLED = ("Transformer", "Pooling", "Normalize")  # sentence-transformers' modules that only pool
REMEDY = "copy or fetch the folder again"


def read_json(path: Path, kind: type = dict) -> Any:
    """Return a JSON file's content; ValueError, with the path, if it is cut short or holds another kind of value."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: cut short or damaged ({error}); {REMEDY}") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path}: expected a JSON {kind.__name__}, found {type(content).__name__}; {REMEDY}")
    return content


def write_pooling(folder: Path, pooling: str, template: str, *, width: int, max_length: int) -> None:
    """Write a model's pooling and template: for "cls" and "mean" as sentence-transformers does, else our own file."""
    if pooling not in ("cls", "mean"):
        _write_json(folder / POOLING_FILE, {"pooling": pooling, "template": template})
        return
    kind = "sentence_transformers.models"
    parts = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}.Pooling"},
    ]
    modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
    _write_json(folder / "modules.json", parts)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    (folder / "1_Pooling").mkdir()
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})


def read_pooling(folder: Path) -> tuple[str, str]:
    """Return the pooling and template of a folder; "cls" and none if it states nothing."""
    if (folder / POOLING_FILE).is_file():
        content = read_json(folder / POOLING_FILE)
        if not all(isinstance(content.get(name), str) for name in ("pooling", "template")):
            raise ValueError(f"{folder / POOLING_FILE}: expected a pooling and a template, found {content}; {REMEDY}")
        return content["pooling"], content["template"]
    _check_modules(folder / "modules.json")
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return "cls", ""
    config = read_json(path)
    # sentence-transformers names the mode since version 6; before, each had a switch.
    switches = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    on = [name for name, value in config.items() if name.startswith("pooling_mode_") and value]
    for pooling, switch in switches.items():
        if config.get("pooling_mode") == pooling or on == [switch]:
            return pooling, ""
    raise ValueError(f"{path}: expected pooling by [CLS] or mean, found {config}")


def _check_modules(path: Path) -> None:
    """Refuse a sentence-transformers folder with other modules; Normalize is ignored, as it changes no cosine."""
    modules = read_json(path, list) if path.is_file() else []
    more = [module["type"] for module in modules if module["type"].rpartition(".")[2] not in POOLED]
    if more:
        raise ValueError(f"{path}: expected modules among {', '.join(POOLED)}, found {', '.join(more)}")


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
