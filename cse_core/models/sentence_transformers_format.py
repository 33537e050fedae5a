"""Read and write an encoder's pooling and template, in sentence-transformers' format where it can express them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cse_core.models.pooling import NgramPooling
from cse_core.models.pretrained import CONFIG, MODULES, POOLING_FILE
from cse_core.run import NGRAM_POOLINGS, POOLINGS

# MODEL_TYPES are families whose default pooling is [CLS]. Five of them have a packed pass, two a padded one.
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")  # positions start after the padding's index
MODEL_TYPES = ("bert", *OFFSET_POSITIONS, "distilbert", "electra")
POOLED = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])  # sentence-transformers' modules
CONVOLVED = ("Transformer", "CNN", "Pooling")  # an n-gram pooling; with ReLU a Dense follows the CNN
RELU = "torch.nn.modules.activation.ReLU"
CNN_FILE, WEIGHTS_FILE = "cnn_config.json", "model.safetensors"
KIND = "sentence_transformers.models"
OF_LIBRARY = "config_sentence_transformers.json"  # of the whole model: prompts; files of ours have none
# Its fields that are read here or change no vector.
READ_OF_LIBRARY = {
    *("__version__", "requirements", "similarity_fn_name"),
    *("prompts", "default_prompt_name", "model_type"),
}
ROUTER = "router_config.json"
ADAPTER = "adapter_config.json"
# Settings of the Transformer module; the name depends on the model's family.
OF_TRANSFORMER = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Fields of that file that change nothing: version 6 writes them for every encoder of texts.
NEUTRAL = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}  # switches, before version 6
REMEDY = "copy or fetch the folder again"


def read_json(path: Path, kind: type = dict) -> Any:
    """Return a JSON file's content; raise a ValueError with the path if it is damaged or not of the expected type."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: cut short or damaged ({error}); {REMEDY}") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path}: expected a JSON {kind.__name__}, found {type(content).__name__}; {REMEDY}")
    return content


def write_pooling(
    folder: Path,
    pooling: str,
    template: str,
    *,
    width: int,
    max_length: int,
    normalises: bool = False,
    ngrams: NgramPooling | None = None,
) -> None:
    """Write a model's pooling and template, in sentence-transformers' format if possible, otherwise in our own file.

    That format has "cls" and "mean". The n-gram poolings become convolutions and a mean, with ReLU as a dense layer
    between them.
    """
    if pooling not in ("cls", "mean", *NGRAM_POOLINGS):
        _write_json(folder / POOLING_FILE, {"pooling": pooling, "template": template})
        return
    convolved = [] if ngrams is None else ["CNN", "Dense"] if ngrams.relu else ["CNN"]
    kinds = ["Transformer", *convolved, "Pooling", *["Normalize"] * normalises]
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
    _write_json(folder / paths[kinds.index("Pooling")] / "config.json", {"word_embedding_dimension": width, **modes})
    if ngrams:
        _write_ngrams(folder, ngrams)


def _write_ngrams(folder: Path, ngrams: NgramPooling) -> None:
    """Write the convolutions and, for ReLU, a dense layer with identity weights that applies it to each token."""
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
    """Return an n-gram pooling with a folder's weights; if it has none, with new ones from the generator."""
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
    if not all(bool(value.isfinite().all()) for value in weights.values()):
        raise ValueError(f"{folder / '1_CNN' / WEIGHTS_FILE}: holds numbers that are not finite; {REMEDY}")
    ngrams.load_state_dict(weights)
    return ngrams.eval()


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError  # lazy: slow import
    from safetensors.torch import load_file  # lazy: slow import

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: cut short, damaged or missing ({error}); {REMEDY}") from error


@dataclass(frozen=True)
class Description:
    """How an encoder makes vectors, according to its folder."""

    pooling: str = "cls"  # or one that only sentence-transformers has
    template: str = ""
    transformers: tuple[str, ...] = ("",)  # where they are in the folder: one, or a router's
    limit: int | None = None  # of tokens per text, in place of the tokenizer's
    lower_cases: bool = False
    normalises: bool = False
    states_pooling: bool = True  # otherwise the pooling is the family's default
    unsupported: str = ""  # settings that only sentence-transformers itself applies, whatever the pooling

    @property
    def transformer(self) -> str:
        """The path of the Transformer within the folder."""
        return self.transformers[0]

    @property
    def is_ours(self) -> bool:
        """Whether an Encoder gives the vectors that the folder's files ask for."""
        return not self.unsupported and self.pooling in (*POOLINGS, *NGRAM_POOLINGS)


def read_pooling(folder: Path) -> tuple[str, str]:
    """Return the pooling and template of a folder; refuse one that only sentence-transformers has."""
    about = describe_trainable(folder)
    if not about.is_ours:
        raise ValueError(
            f"{folder}: its pooling is {about.pooling}, expected cls or mean; give the encoder another one"
        )
    return about.pooling, about.template


def describe_trainable(folder: Path) -> Description:
    """Return a folder's description of its encoder; refuse settings that only sentence-transformers itself applies."""
    about = describe(folder)
    if about.unsupported:
        raise ValueError(
            f"{folder}: {about.unsupported}; sentence-transformers scores it, but it can't be trained here"
        )
    return about


def describe(folder: Path) -> Description:
    """Return a folder's description of its encoder; refuse a folder that names missing files or files elsewhere."""
    about = _describe(folder)
    for part in (folder / path for path in about.transformers):
        if (part / ADAPTER).is_file():
            raise ValueError(
                f"{part / ADAPTER}: an adapter of weights that are elsewhere; merge it into them, save that"
            )
        if place := _transformer_settings(part).get("tokenizer_name_or_path"):
            raise ValueError(
                f"{part}: its tokenizer is to be that of {place}; put the tokenizer's files beside the weights"
            )
    return about


def _describe(folder: Path) -> Description:
    if (folder / POOLING_FILE).is_file():
        content = read_json(folder / POOLING_FILE)
        if not all(isinstance(content.get(name), str) for name in ("pooling", "template")):
            raise ValueError(f"{folder / POOLING_FILE}: expected a pooling and a template, found {content}; {REMEDY}")
        return Description(content["pooling"], content["template"])
    if not (folder / MODULES).is_file():
        return _of_plain_folder(folder)
    modules = _read_modules(folder)
    kinds, paths = [module["type"].rpartition(".")[2] for module in modules], [module["path"] for module in modules]
    for kind, path in zip(kinds, paths, strict=True):
        needed = folder / path / "config.json" if kind == "Pooling" else folder / path
        if kind != "Normalize" and not needed.exists():  # a Normalize module has no file
            raise ValueError(f"{folder / MODULES}: names {kind} in {path}, but {needed} is missing; {REMEDY}")
    places = dict(zip(kinds, paths, strict=True))
    if tuple(kind for kind in kinds if kind != "Dense") == CONVOLVED:
        pooling = _ngram_pooling(folder, places)
    elif kinds in POOLED and all(module["type"].startswith("sentence_transformers.") for module in modules):
        pooling = _pooling_mode(folder / places["Pooling"] / "config.json")
    else:
        unsupported = f"its modules are {', '.join(module['type'] for module in modules)}"
        return Description("", transformers=tuple(_transformers(folder, paths)), unsupported=unsupported)
    return _of_modules(folder, pooling, places["Transformer"], normalises="Normalize" in kinds)


def _read_modules(folder: Path) -> list[dict[str, Any]]:
    """Return the modules that a folder names, each with a type and a path within the folder."""
    modules = read_json(folder / MODULES, list)
    for module in modules:
        if not (isinstance(module, dict) and all(isinstance(module.get(part), str) for part in ("type", "path"))):
            raise ValueError(f"{folder / MODULES}: expected the type and path of each module, found {module}; {REMEDY}")
        if Path(module["path"]).is_absolute() or ".." in Path(module["path"]).parts:
            raise ValueError(f"{folder / MODULES}: names {module['path']}, which is outside its folder")
    return modules


def _transformers(folder: Path, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that are folders of transformers models, also within routers."""
    for path in paths:
        if (folder / path / ROUTER).is_file():
            routes = read_json(folder / path / ROUTER).get("structure", {}).values()
            yield from _transformers(folder, dict.fromkeys(str(Path(path, name)) for route in routes for name in route))
        elif (folder / path / CONFIG).is_file() and "model_type" in read_json(folder / path / CONFIG):
            yield path


def _of_plain_folder(folder: Path) -> Description:
    """Describe a folder without modules: [CLS] for MODEL_TYPES, otherwise the mean or a decoder's last token."""
    path = folder / "1_Pooling" / "config.json"
    if path.is_file():
        if (mode := _pooling_mode(path)) not in POOLINGS:  # sentence-transformers would take the mean
            raise ValueError(f"{path}: its pooling is {mode}, but {folder / MODULES} is missing; {REMEDY}")
        return Description(mode)
    config = read_json(folder / CONFIG)
    of_a_decoder = str((config.get("architectures") or [""])[0]).endswith("ForCausalLM")
    if of_a_decoder and config.get("is_causal", True):
        return Description("lasttoken", states_pooling=False)
    return Description("cls" if config.get("model_type") in MODEL_TYPES else "mean", states_pooling=False)


def _of_modules(folder: Path, pooling: str, transformer: str, *, normalises: bool) -> Description:
    """Describe an encoder with this pooling, by the files of its Transformer and of the library."""
    settings = _transformer_settings(folder / transformer)
    limit, lower_cases = settings.pop("max_seq_length", None), bool(settings.pop("do_lower_case", False))
    whole = read_json(folder / OF_LIBRARY) if (folder / OF_LIBRARY).is_file() else {}
    if limit is not None and (type(limit) is not int or limit < 0):
        raise ValueError(f"{folder / transformer}: max_seq_length is {limit!r}; expected a number of tokens")
    reasons = [f"its {name} is {value}" for name, value in settings.items() if value and NEUTRAL.get(name) != value]
    if prompt := _default_prompt(folder, whole):
        reasons.append(f"its default prompt is {prompt!r}")
    if (kind := whole.get("model_type", "SentenceTransformer")) != "SentenceTransformer":
        reasons.append(f"its model type is {kind}")
    reasons += [f"its {name} is {value}" for name, value in whole.items() if value and name not in READ_OF_LIBRARY]
    return Description(
        pooling,
        transformers=(transformer,),
        limit=limit,
        lower_cases=lower_cases,
        normalises=normalises,
        unsupported=", ".join(reasons),
    )


def _transformer_settings(folder: Path) -> dict[str, Any]:
    files = [folder / name for name in OF_TRANSFORMER]
    return next((content for path in files if path.is_file() and (content := read_json(path))), {})


def _default_prompt(folder: Path, whole: dict[str, Any]) -> str:
    """Return the prompt before each text; refuse an unknown prompt name. The library defines two names as empty."""
    prompts, name = {"query": "", "document": ""} | (whole.get("prompts") or {}), whole.get("default_prompt_name")
    if name and name not in prompts:
        raise ValueError(f"{folder / OF_LIBRARY}: its default prompt {name!r} is not among its prompts; {REMEDY}")
    return prompts.get(name) or ""


def _pooling_mode(path: Path) -> str:
    """Return the mode of a Pooling module: a name since version 6, before that switches; the mean if none is on."""
    config = read_json(path)
    mode = config.get("pooling_mode") or [
        MODES.get(name, name.removeprefix("pooling_mode_"))
        for name, on in config.items()
        if name.startswith("pooling_mode_") and on
    ]
    return mode if isinstance(mode, str) else " and ".join(mode) or "mean"


def _ngram_pooling(folder: Path, modules: dict[str, str]) -> str:
    """Return the n-gram pooling that a folder's modules form, or words for what they are instead."""
    if (mode := _pooling_mode(folder / modules["Pooling"] / "config.json")) != "mean":
        return f"{mode} of convolutions"
    if "Dense" not in modules:
        return "ngrams_linear"
    layer = folder / modules["Dense"]
    config, weight = read_json(layer / "config.json"), _read_weights(layer / WEIGHTS_FILE).get("linear.weight")
    width = config.get("in_features", 0)
    only_relu = config == _relu_layer(width) and weight is not None and torch.equal(weight, torch.eye(width))
    return "ngrams" if only_relu else "the mean of a dense layer's output"


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
