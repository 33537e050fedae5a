"""Score an encoder: a run's checkpoint, an embedded backbone, any folder or hub model of the BERT family, GloVe.

python experiments/evaluate.py wiki-tiny --pooling mean
python experiments/evaluate.py glove-6b-50d
python experiments/evaluate.py mlruns/store/33351ff7b9fc/stsb_dev --tasks sts
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from cse_core.pretrained import identity, resolve
from cse_core.run import Pretrained
from cse_core.scorers import Cosine
from cse_core.senteval import STS_DEV, STS_TEST
from cse_core.words import is_word_vectors, word_vectors_hash
from experiments import record, show
from experiments.job import AS_IS, Job, Place, Scoring, execute
from experiments.tracking import Tracker

GROUPS = {"sts": STS_TEST, "dev": STS_DEV, "synthetic": ("synthetic", "synthetic_dev")}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Score an encoder on groups of tasks and log it to MLflow."""

    encoder: tyro.conf.Positional[str]
    """A folder, an embedded backbone, a hub name, glove-6b-50d or a file of word vectors."""
    tasks: tuple[str, ...] = ("sts",)
    """Groups (sts, dev, synthetic) or single tasks (stsb, sickr, sts12, ...)."""
    pooling: str | None = None
    """cls, mean, top2_mean, first_last_mean, layer1_last_mean, mask; else the encoder's own, [CLS] if it names none."""
    template: str = ""
    """With the pooling mask: a text with {} for the sentence and [MASK] after it."""
    data: Path | None = None
    """Folder with the data; else CSE_DATA, the Hugging Face cache, the hub."""
    mlruns: Path = record.MLRUNS
    """Where MLflow's database lies."""
    threads: int = torch.get_num_threads()
    """Torch's threads."""


def main(options: Options) -> None:
    """Score, log, print."""
    tasks = tuple(dict.fromkeys(task for name in options.tasks for task in GROUPS.get(name, (name,))))
    record.check_writable(options.mlruns)
    scorer = Cosine(options.pooling, options.template)
    words = is_word_vectors(options.encoder)
    content = word_vectors_hash(options.encoder) if words else identity(resolve(options.encoder))
    encoder = Pretrained(options.encoder, content)
    job = Job(encoder, "own", Path(options.encoder).name, (Scoring(AS_IS, scorer, tasks),))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    place = Place((options.mlruns / record.OWN).resolve(), options.data, device=device, threads=options.threads)
    result = execute(job, place)
    Tracker(options.mlruns).log(place.store / job.key)
    show.scores(result, only=set(tasks), scorer=str(scorer))


if __name__ == "__main__":
    try:
        main(tyro.cli(Options))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
