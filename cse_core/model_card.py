"""The README.md of an exported encoder: how to open it, what it was trained with, what it scored."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import EvalResult, ModelCardData

from cse_core.data.atomic_write import full_disk_named, sync
from cse_core.evaluation.suite import TASKS
from cse_core.evaluation.tasks import STSTask, TransferTask
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS, CONFIG, is_read_by_loaders
from cse_core.training.checkpoint import MANIFEST

CARD, TEMPORARY = "README.md", ".export-"
ABOUT = "Sentence embeddings of {} dimensions, compared by cosine."  # in every card
OF_EXPORT = re.compile(ABOUT.format(r"\d+"))
FRONT_MATTER = re.compile(r"\s*(---\n.*?\n---\s*)?", re.DOTALL)  # the README of a new repository on the hub
Scores = Mapping[str, Mapping[str, float]]  # task -> metric -> value, as `evaluate` returns them
KINDS = {STSTask: "semantic-similarity", TransferTask: "text-classification"}  # the hub's names; OTHER for the rest
OTHER = "sentence-similarity"
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
POOLED = {
    "cls": "vectors = model(**tokens).last_hidden_state[:, 0]",
    "mean": (
        'states, mask = model(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(-1)\n'
        "vectors = (states * mask).sum(1) / mask.sum(1)"
    ),
}
OPEN_IN_SENTENCE_TRANSFORMERS = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["A man plays a guitar.", "Someone makes music."])
print(model.similarity(vectors, vectors))
```"""
OPEN_ANYWHERE = (
    OPEN_IN_SENTENCE_TRANSFORMERS
    + """

With transformers only:

```python
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("{name}"), AutoModel.from_pretrained("{name}")
sentences = ["A man plays a guitar.", "Someone makes music."]
tokens = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
{pooled}
```"""
)
OF_NGRAMS = """

Encode one text per batch: next to longer texts, sentence-transformers lets states of padding into a text's last
windows. This project's `Encoder` does not."""
OPEN_HERE = """\
sentence-transformers has no form for the pooling `{pooling}`, so this project opens it:

```python
from cse_core import Encoder, cosine_matrix

encoder = Encoder.from_pretrained("{name}")
vectors = encoder.encode(["A man plays a guitar.", "Someone makes music."])
print(cosine_matrix(vectors, vectors))
```"""


def save_with_card(encoder: Encoder, folder: Path, settings: Mapping[str, object], scores: Scores) -> Path:
    """Save an encoder and its card to a new folder or over an earlier export; return the folder.

    Of an earlier export, the card and every file that a loader would read are replaced; elsewhere no file is. The new
    files are written to a temporary folder, and moved into place once all are complete. If a move fails, the old files
    are moved back. Other files, such as a clone's .git, stay.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder}: expected a new folder, or that of an earlier export; this is a file")
    if (folder / MANIFEST).exists():
        raise FileExistsError(f"{folder}: holds the checkpoint of a run, which would be lost; export to another folder")
    if foreign := _foreign(folder):
        raise FileExistsError(
            f"{folder}: is no earlier export, and {', '.join(foreign)} would be replaced; expected a new folder, or "
            "remove these first"
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix=TEMPORARY, dir=folder) as temporary, full_disk_named(folder):
            part = Path(temporary) / "encoder"
            encoder.save_pretrained(part)
            (part / CARD).write_text(model_card(encoder, folder.resolve().name, settings, scores), encoding="utf-8")
            for path in part.rglob("*"):
                sync(path)
            _swap(part, folder, Path(temporary) / "old")
    except BaseException:
        with suppress(OSError):  # it has other files
            folder.rmdir()
        raise
    for left in folder.glob(f"{TEMPORARY}*"):  # left by an export that was killed
        shutil.rmtree(left)
    return folder


def _foreign(folder: Path) -> list[str]:
    """Return the files that an export would replace in a folder that holds no earlier export."""
    card = folder / CARD
    about = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    if not folder.is_dir() or [*folder.glob(f"{TEMPORARY}*")] or OF_EXPORT.search(about):  # also one that was killed
        return []
    found = [path.name for path in folder.iterdir() if is_read_by_loaders(path)]
    return sorted([*found, *([] if FRONT_MATTER.fullmatch(about) else [CARD])])


def _swap(part: Path, folder: Path, old: Path) -> None:
    """Move the files in `part` to `folder`, and those that they replace to `old`; after an error, move all back.

    The config is removed first and added last: without it, no loader opens a folder that a kill left half moved.
    """
    old.mkdir()
    replaced = [path for path in folder.iterdir() if (part / path.name).exists() or is_read_by_loaders(path)]
    moves = [(path, old / path.name) for path in sorted(replaced, key=lambda path: path.name != CONFIG)]
    moves += [(path, folder / path.name) for path in sorted(part.iterdir(), key=lambda path: path.name == CONFIG)]
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            source.rename(target)
            done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            target.rename(source)
        raise
    sync(folder)


def model_card(encoder: Encoder, name: str, settings: Mapping[str, object], scores: Scores) -> str:
    """Return the text of a card, with the metadata that the Hugging Face hub reads.

    `settings` are a run's; paths in them are shortened to their last part. All scores are of one run with one seed.
    """
    template = f", inside the template `{encoder.template}`" if encoder.template else ""
    opened = OPEN_ANYWHERE if encoder.pooling in POOLED else OPEN_HERE
    if encoder.ngrams:
        opened = OPEN_IN_SENTENCE_TRANSFORMERS + OF_NGRAMS
    parts = [
        f"---\n{_metadata(encoder, name, settings, scores).to_yaml()}\n---",
        f"# {name}",
        f"{ABOUT.format(encoder.width)} Pooling `{encoder.pooling}`{template}; texts are cut to {encoder.max_length} "
        "tokens.",
        "## Use",
        opened.format(name=name, pooling=encoder.pooling, pooled=POOLED.get(encoder.pooling, "")),
        "## Training",
        "\n".join(_settings_table(settings)) if settings else "Not trained here: exported as it was.",
        "## Scores",
        "\n".join(_scores_table(scores)) if scores else "Not scored.",
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(encoder: Encoder, name: str, settings: Mapping[str, object], scores: Scores) -> ModelCardData:
    opened = encoder.pooling in POOLED or encoder.ngrams is not None
    base = str(settings.get("backbone", ""))
    on_hub = HUB_NAME.fullmatch(base) and not Path(base).exists() and not (ASSETS / base).is_dir()
    return ModelCardData(
        base_model=base if on_hub else None,
        library_name="sentence-transformers" if opened else "transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers" if opened else "transformers", "feature-extraction", "sentence-similarity"],
        model_name=name,
        eval_results=[
            EvalResult(
                task_type=KINDS.get(type(TASKS.get(task)), OTHER),
                dataset_type=task,
                dataset_name=task,
                metric_type=metric,
                metric_value=float(value),
            )
            for task, metrics in scores.items()
            for metric, value in metrics.items()
        ]
        or None,
    )


def _settings_table(settings: Mapping[str, object]) -> Iterator[str]:
    yield "| setting | value |\n| --- | --- |"
    for name, value in settings.items():
        if value not in (None, ""):
            yield f"| {name} | {_cell(_without_folders(str(value)))} |"


def _scores_table(scores: Scores) -> Iterator[str]:
    yield "Values of this one checkpoint, as fractions: 0.7654 is a paper's 76.54. Another seed gives other values.\n"
    yield "| task | metric | value |\n| --- | --- | ---: |"
    for task, metrics in scores.items():
        for metric, value in metrics.items():
            yield f"| {task} | {metric} | {value:.4f} |"


def _without_folders(text: str) -> str:
    """Return a setting with this machine's paths shortened to their last part; a hub's owner/name stays."""

    def shorten(word: str) -> str:
        path = Path(word).expanduser()
        return path.name if path.is_absolute() or path.exists() else word

    return re.sub(r"[^ ;=]*/[^ ;=]*", lambda match: shorten(match[0]), shorten(text))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
