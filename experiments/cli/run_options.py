"""The options of run.py: those of every run, and a method's own settings with their choices and defaults."""

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from cse_core import lookup
from cse_core.methods import METHODS
from cse_core.run import Run
from experiments.cli.numbers import number, whole_number
from experiments.cli.options import Numbers, Words, read_words
from experiments.schema.recipes import RUNS
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES
from experiments.storage.record_folders import MLRUNS

SHOWN = SCALES["small"]  # whose settings are the defaults in --help


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """What run.py and compare.py train on, and select checkpoints or settings by."""

    scale: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SCALES) + "}")] = ""
    """Scale whose corpus and published settings are the starting point. If not given: small, and for an encoder of your
    own the published settings of the backbone that is nearest in depth and width."""
    backbone: str = BASE
    """Name of the backbone in the papers (a small scale uses a smaller encoder in its place), or a folder or hub name
    of any encoder, which keeps its own pooling if that is the mean."""
    corpus: str = ""
    """File to train on: .txt with one sentence a line, .tsv, .csv, .jsonl or .parquet; or a corpus of the data folder.
    If not given: the scale's."""
    columns: Words = ()
    """Columns of --corpus by name or number: a sentence, or also its positive, or also a hard negative (sent0 sent1
    hard_neg). If not given: those with known names."""
    pair_columns: Words = ()
    """Columns of the files in --dev and --evaluate by name or number: two sentences and a score. If not given: those
    with known names, or all three."""
    corpus_lines: int | None = None
    """Train on this number of first lines of the corpus, also in runs that others need."""
    dev: str = ""
    """What selects checkpoints, also of teachers and bases, and a comparison's settings: stsb_dev, avg_sts, last
    (run.py only), ... or a file (.tsv, .csv, .jsonl, .parquet) with two sentences and a score in each row. If not
    given: the scale's dev set."""


@dataclass(frozen=True, kw_only=True)
class CommonOptions(InputOptions):
    """Options of all methods: the scale whose settings a run starts from, and its folders."""

    seeds: Numbers = ()
    """Train once with each of these seeds, and print the mean and the standard deviation of the scores."""
    evaluate: Words = ()
    """Tasks or groups of tasks to score, as in evaluate.py. If not given: sts."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    mlruns: Path = MLRUNS
    """Folder of MLflow's database and the run folders."""
    device: str = os.environ.get("CSE_DEVICE", "")
    """cpu or cuda. If not given: CSE_DEVICE, or cuda if there is a GPU."""
    threads: int = 1
    """Number of torch's threads. Recorded runs have 1; another number changes the rounding."""


def options_for(name: str) -> type:
    """Return the class of a method's options: its fields and those of a run, all None by default."""
    skip = {"method", "backbone", "corpus", "weights"}
    settings = [f for kind in (METHODS[name], Run) for f in fields(kind) if f.name not in skip]  # ty: ignore[invalid-argument-type]
    choices = choices_of(name)
    takes = inspect.signature(RUNS[name]).parameters  # a field with a run or a method needs one, to take a name
    settings = [f for f in settings if f.name in takes or not {"Run", "Method"} & {*_names(f)}]
    default = RUNS[name](SHOWN, BASE)
    shown = default.settings() if default else {}
    made = make_dataclass(
        name,
        [_option(f, choices.get(f.name, ()), str(shown.get(f.name, "")) or "none") for f in settings],
        bases=(CommonOptions,),
        frozen=True,
    )
    made.__doc__ = (
        f"Train and score {name}. Settings that are not given are as published, at the scale; the defaults shown are "
        f"those of scale {SHOWN.name}."
    )
    if METHODS[name].__doc__:
        made.__doc__ += f" {METHODS[name].__doc__}"
    return made


def choices_of(name: str) -> dict[str, Sequence[str]]:
    """Return the allowed values of those settings of a method and of a run that have only a few."""
    return {**lookup.choices_of(METHODS[name]), **lookup.choices_of(Run)}


def _option(of: Field[Any], choices: Sequence[str], shown: str) -> tuple[str, Any, Any]:
    """Return the option of a setting; None means the setting as published, which is `shown`."""
    kind = _names(of)[0]
    read: Callable[[str], Any] = {"int": whole_number, "float": number, "bool": _truth}.get(kind, str)
    several = kind == "tuple"
    word = "{" + ",".join(choices) + "}" if choices else {"int": "INT", "float": "FLOAT"}.get(kind, "STR")
    spec = PrimitiveConstructorSpec(
        nargs="*" if several or kind == "bool" else 1,
        metavar=f"{word} [{word} ...]" if several else "[{True,False}]" if kind == "bool" else word,
        instance_from_str=read_words(str) if several else lambda words: read(words[0] if words else "True"),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [shown],
    )
    return of.name, Annotated[Any, spec], field(default=None, kw_only=True)


def _names(of: Field[Any]) -> list[str]:
    """Return the names of a field's types."""
    parts = str(getattr(of.type, "__name__", of.type)).split(" | ")
    return [part.partition("[")[0].rpartition(".")[2] for part in parts]


def _truth(word: str) -> bool:
    if word not in ("True", "False"):
        raise ValueError(f"expected True or False, got {word!r}")
    return word == "True"
