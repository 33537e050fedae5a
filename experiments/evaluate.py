"""Score an encoder: a run's checkpoint, a folder or hub model, an embedded backbone, GloVe.

python experiments/evaluate.py wiki-tiny --pooling mean
python experiments/evaluate.py mlruns/store/c4bb688a65d9/stsb_dev --tasks sts transfer ranking geometry
python experiments/evaluate.py glove-6b-50d --tasks sts_disjoint mr_fast my_pairs.tsv
python experiments/evaluate.py wiki-tiny --tasks sts neighbours --corpus wiki_sentences_1m --corpus-lines 16384

Print a table, add the scores to own/results.csv next to MLflow's database, and log them to MLflow.
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("experiments.evaluate")

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.progress import MofNCompleteColumn, Progress, TaskID

from cse_core.data import own_pairs
from cse_core.data.arrow_cache import content_of
from cse_core.data.corpora import sentences
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.models.word_vectors import is_word_vectors
from experiments.cli.command import run_command
from experiments.cli.console import PRINT_SECONDS, console, plain_columns
from experiments.cli.options import Words, check_device, check_threads, device_here, filled_data_folder
from experiments.cli.user_inputs import pooling_text, read_corpus, read_encoder
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job, Scoring, execute
from experiments.execution.log_queue import say_not_logged
from experiments.results import csv_record
from experiments.results.score_tables import print_scores
from experiments.results.stored_scores import read_stored, replace_scores
from experiments.schema.rows import AS_IS
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker


@dataclass(frozen=True, kw_only=True)
class Options:
    """Score an encoder on tasks; print, save and log the scores."""

    encoder: tyro.conf.Positional[str]
    """Folder, hub name or embedded backbone (wiki-tiny, -mini, -medium), glove-6b-50d, or a file of word vectors."""
    tasks: Words = ("sts",)
    """Groups (sts, sts_disjoint, dev, transfer, transfer_fast, ranking, ranking_test, geometry, neighbours, synthetic,
    sizes, gold, examples), single tasks (stsb, sts12_disjoint, trec, trec_fast, sickr_groups, ...), or files of your
    own, .tsv, .csv, .jsonl or .parquet: two sentences and a score in each row."""
    columns: Words = ()
    """Columns of the files in --tasks by name or number: two sentences and a score. If not given: those with known
    names, or all three."""
    pooling: str | None = None
    """cls, mean, top2_mean, first_last_mean, layer1_last_mean or mask. If not given: the encoder's own, or where its
    folder states none its family's, which a line names."""
    template: str = ""
    """Text with {} for the sentence and [MASK] after it, for the pooling mask."""
    corpus: str = ""
    """Add ranks in this corpus to the cosine (RankEncoder), by --rank-weight. Requires --corpus-lines."""
    corpus_lines: int = 0
    """Number of lines of the corpus to draw from."""
    corpus_size: int | None = None
    """Number of sentences to draw. If not given: 10,000."""
    rank_weight: float | None = None
    """Weight of ranks in the score, with cosine for the rest (RankEncoder, Eq. 7). If not given: 0.1."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    mlruns: Path = csv_record.MLRUNS
    """Folder of MLflow's database."""
    device: str = os.environ.get("CSE_DEVICE", "")
    """cpu or cuda. If not given: CSE_DEVICE, or cuda if there is a GPU."""
    threads: int = torch.get_num_threads()
    """Number of torch's threads."""
    again: bool = False
    """Score again what an earlier call has scored."""
    cache: bool = False
    """Save embeddings under CSE_CACHE, and reuse those of earlier calls."""


class Bars:
    """A progress bar for each step of the scoring, or without a terminal a line at most every 30 seconds."""

    def __init__(self) -> None:
        self.progress = Progress(*plain_columns(), MofNCompleteColumn(), console=console)
        self.tasks: dict[str, TaskID] = {}
        self.printed_at = 0.0

    def __call__(self, what: str, done: int, of: int) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.progress.add_task(what, total=of)
        self.progress.update(self.tasks[what], completed=done)
        if not console.is_terminal and time.monotonic() - self.printed_at >= PRINT_SECONDS:
            console.print(f"{what}: {done:,} of {of:,}", highlight=False)
            self.printed_at = time.monotonic()


def scorer_for(options: Options) -> Scorer:
    """Return the scorer that the options describe: cosine with a pooling, or ranks in a corpus."""
    size, weight = options.corpus_size, options.rank_weight
    if not options.corpus:
        if options.template and not options.pooling:
            raise ValueError(f"--template {options.template}: requires --pooling mask")
        if options.corpus_lines or size is not None or weight is not None:
            raise ValueError("--corpus-lines, --corpus-size and --rank-weight require --corpus")
        return Cosine(options.pooling, options.template)
    if options.pooling or options.template or options.corpus_lines < 2:
        raise ValueError(
            f"--corpus {options.corpus}: requires --corpus-lines of at least 2, and no --pooling or "
            f"--template, got {options.corpus_lines}, {options.pooling} and {options.template!r}"
        )
    corpus = read_corpus(options.corpus, options.corpus_lines)
    pinned = replace(corpus, sha256=content_of(sentences(corpus, options.data)))
    size = min(10_000, corpus.lines) if size is None else size
    return Ranked(corpus=pinned, size=size, weight=0.1 if weight is None else weight)


def print_earlier(earlier: Sequence[Mapping[str, Any]], result: Mapping[str, Any], scoring: Scoring) -> None:
    """Print which of the requested scores come from an earlier call."""
    asked = [cell for cell in result["cells"] if scoring.asks_for(cell)]
    tasks = dict.fromkeys(cell["task"] for cell in asked if cell in earlier)
    if tasks:
        console.print(f"from an earlier call: {', '.join(tasks)}; --again scores anew", highlight=False)


def main(options: Options) -> None:
    """Score an encoder; print, save and log the scores."""
    check_threads(options.threads)
    check_device(options.device)
    data = filled_data_folder(options.data)
    tasks, scorer = suite.expand_names(options.tasks, options.columns), scorer_for(options)
    if options.columns and not any(map(own_pairs.is_own, tasks)):
        raise ValueError(f"--columns {' '.join(options.columns)}: requires a file in --tasks")
    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    encoder = read_encoder(options.encoder)
    if not is_word_vectors(options.encoder):
        console.print(pooling_text(options.encoder, options.pooling), highlight=False)
    job = Job(encoder, csv_record.MANUAL_RUNS, Path(options.encoder).name, (Scoring(AS_IS, scorer, tasks),))
    folder = options.mlruns / csv_record.MANUAL_RUNS
    device = device_here(options.device)
    execution = ExecutionSettings(folder.resolve(), data, device=device, threads=options.threads, cache=options.cache)
    earlier = read_stored(execution.store / job.key)["cells"]
    bars, failed = Bars(), None
    with bars.progress:
        try:
            result = execute(job, execution, progress=bars, again=options.again)
        except FailedTasksError as error:
            result, failed = error.result, error
    replace_scores(folder, result, earlier)
    print_scores(result, only=set(tasks), scorer=str(scorer))
    if not options.again:
        print_earlier(earlier, result, job.scorings[0])
    console.print(f"scores: {folder / 'results.csv'}")
    try:
        Tracker(options.mlruns).log(execution.store / job.key)
    except OSError as error:
        say_not_logged(1, error)
    if failed:
        raise failed


def command() -> None:
    """Run the command line."""
    run_command(lambda: main(tyro.cli(Options)), (ValueError, OSError, ImportError))
