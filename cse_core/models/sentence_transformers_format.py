"""Pooling and template in an encoder's folder, in sentence-transformers' format where it can express them."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cse_core.models.pooling import NgramPooling
from cse_core.models.pretrained import POOLING_FILE
from cse_core.run import NGRAM_POOLINGS

POOLED = ("Transformer", "Pooling", "Normalize")  # sentence-transformers' modules that only pool
CONVOLVED = ("Transformer", "CNN", "Pooling")  # an n-gram pooling; with ReLU a Dense follows the CNN
RELU = "torch.nn.modules.activation.ReLU"
CNN_FILE, WEIGHTS_FILE = "cnn_config.json", "model.safetensors"
KIND = "sentence_transformers.models"
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


def write_pooling(
    folder: Path, pooling: str, template: str, *, width: int, max_length: int, ngrams: NgramPooling | None = None
) -> None:
    """Write a model's pooling and template: in sentence-transformers' format if it has them, else in our own file.

    It has "cls" and "mean", and the n-gram poolings as convolutions and a mean, with ReLU as a dense layer between.
    """
    if pooling not in ("cls", "mean", *NGRAM_POOLINGS):
        _write_json(folder / POOLING_FILE, {"pooling": pooling, "template": template})
        return
    kinds = ["Transformer", *(_ngram_modules(ngrams) if ngrams else ()), "Pooling"]
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds[1:], 1))]
    parts = [
        {"idx": i, "name": str(i), "path": path, "type": f"{KIND}.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    for path in paths[1:]:
        (folder / path).mkdir()
    mean = pooling != "cls"
    modes = {"pooling_mode_cls_token": not mean, "pooling_mode_mean_tokens": mean}
    _write_json(folder / "modules.json", parts)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    _write_json(folder / paths[-1] / "config.json", {"word_embedding_dimension": width, **modes})
    if ngrams:
        _write_ngrams(folder, ngrams)


def _ngram_modules(ngrams: NgramPooling) -> list[str]:
    return ["CNN", "Dense"] if ngrams.relu else ["CNN"]


def _write_ngrams(folder: Path, ngrams: NgramPooling) -> None:
    """Write the convolutions, and the dense layer that multiplies by one and applies ReLU to each token."""
    from safetensors.torch import save_file  # lazy: slow import

    width: int = ngrams.convs[0].in_channels
    sizes = {"in_word_embedding_dimension": width, "out_channels": ngrams.channels}
    _write_json(
        folder / "1_CNN" / CNN_FILE,
        sizes | {"kernel_sizes": list(ngrams.windows), "stride_sizes": [1] * len(ngrams.windows)},
    )
    weights = {name: value.detach().cpu().contiguous() for name, value in ngrams.state_dict().items()}
    save_file(weights, folder / "1_CNN" / WEIGHTS_FILE)
    if ngrams.relu:
        _write_json(folder / "2_Dense" / "config.json", _relu_layer(ngrams.width))
        save_file({"linear.weight": torch.eye(ngrams.width)}, folder / "2_Dense" / WEIGHTS_FILE)


def _relu_layer(width: int) -> dict[str, Any]:
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    return {"in_features": width, "out_features": width, "bias": False, "activation_function": RELU} | tokens


def read_ngrams(folder: Path, pooling: str, width: int, generator: torch.Generator | None) -> NgramPooling:
    """Return an n-gram pooling with a folder's weights; where it has none, with new ones from the generator."""
    relu, path = pooling == "ngrams", folder / "1_CNN" / CNN_FILE
    if not path.is_file():
        if generator is None:
            raise ValueError(f"{folder}: holds no weights of the pooling {pooling}; only training makes new ones")
        return NgramPooling(width, relu=relu, generator=generator)
    sizes = read_json(path)
    if set(sizes.get("stride_sizes") or [1]) != {1} or not isinstance(sizes.get("kernel_sizes"), list):
        raise ValueError(f"{path}: expected windows that move by one token, found {sizes}")
    ngrams = NgramPooling(width, channels=sizes.get("out_channels"), windows=sizes["kernel_sizes"], relu=relu)
    weights = _read_weights(folder / "1_CNN" / WEIGHTS_FILE)
    if {name: value.shape for name, value in weights.items()} != {
        name: value.shape for name, value in ngrams.state_dict().items()
    }:
        raise ValueError(f"{folder / '1_CNN' / WEIGHTS_FILE}: weights of other shapes than {path} says; {REMEDY}")
    ngrams.load_state_dict(weights)
    return ngrams.eval()


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError  # lazy: slow import
    from safetensors.torch import load_file  # lazy: slow import

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: cut short, damaged or missing ({error}); {REMEDY}") from error


def read_pooling(folder: Path) -> tuple[str, str]:
    """Return the pooling and template of a folder; "cls" and none if it states nothing."""
    if (folder / POOLING_FILE).is_file():
        content = read_json(folder / POOLING_FILE)
        if not all(isinstance(content.get(name), str) for name in ("pooling", "template")):
            raise ValueError(f"{folder / POOLING_FILE}: expected a pooling and a template, found {content}; {REMEDY}")
        return content["pooling"], content["template"]
    modules = _read_modules(folder / "modules.json")
    path = folder / modules.get("Pooling", "1_Pooling") / "config.json"
    if not path.is_file():
        return "cls", ""
    if "CNN" in modules:
        return _ngram_pooling(folder, path, modules), ""
    config = read_json(path)
    # sentence-transformers names the mode since version 6; before, each had a switch.
    switches = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    on = [name for name, value in config.items() if name.startswith("pooling_mode_") and value]
    for pooling, switch in switches.items():
        if config.get("pooling_mode") == pooling or on == [switch]:
            return pooling, ""
    raise ValueError(f"{path}: expected pooling by [CLS] or mean, found {config}")


def _ngram_pooling(folder: Path, path: Path, modules: dict[str, str]) -> str:
    """Return which n-gram pooling a folder's modules are; refuse convolutions that are followed by anything else."""
    if not read_json(path).get("pooling_mode_mean_tokens") and read_json(path).get("pooling_mode") != "mean":
        raise ValueError(f"{path}: expected the mean of the convolutions' states, found {read_json(path)}")
    if "Dense" not in modules:
        return "ngrams_linear"
    layer = folder / modules["Dense"]
    config, weight = read_json(layer / "config.json"), _read_weights(layer / WEIGHTS_FILE).get("linear.weight")
    width = config.get("in_features", 0)
    if config != _relu_layer(width) or weight is None or not torch.equal(weight, torch.eye(width)):
        raise ValueError(f"{layer}: expected a layer that is only ReLU of each token's state, found another")
    return "ngrams"


def _read_modules(path: Path) -> dict[str, str]:
    """Return the folder of each of a sentence-transformers folder's modules by kind; refuse kinds that do more.

    Normalize is ignored, as it changes no cosine.
    """
    modules = read_json(path, list) if path.is_file() else []
    kinds = {module["type"].rpartition(".")[2]: module.get("path", "") for module in modules}
    ngrams = tuple(kind for kind in kinds if kind not in ("Normalize", "Dense")) == CONVOLVED
    readable = {*POOLED, "CNN", "Dense"} if ngrams else {*POOLED}
    more = [module["type"] for module in modules if module["type"].rpartition(".")[2] not in readable]
    if more:
        raise ValueError(f"{path}: expected modules among {', '.join(POOLED)}, found {', '.join(more)}")
    return kinds


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
