"""Train SimCSE for a short time in fp32, bf16 and fp16, and print the scores beside each other.

python -m tests.benchmarks.precision_scores --data FOLDER --out FOLDER --device cuda
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Literal

import tyro

from cse_core.api import evaluate, train
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train in each precision and with each seed; a run that is done is not trained again."""

    out: Path
    """Folder of the runs and of scores.json."""
    data: Path | None = None
    """Folder of the data. Required without --tiny."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Where to train."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of each precision: their spread says what a difference is worth."""
    tiny: bool = False
    """A few steps on made-up sentences, to try it."""


def main(options: Options) -> None:
    """Print the mean score of each precision, and keep all scores."""
    if not (options.data or options.tiny):
        raise ValueError("--data: expected the folder of the data; only --tiny takes made-up sentences")
    corpus = Corpus("synthetic", 128) if options.tiny else Corpus("wiki_sentences_1m", 32_768)
    task, backbone = ("synthetic_dev", "wiki-tiny") if options.tiny else ("stsb_dev", "wiki-medium")
    scores: dict[str, list[float]] = {}
    for precision in ("fp32", "bf16", "fp16"):
        for seed in options.seeds:
            trained = train(
                SimCSE(),
                corpus,
                backbone,
                store=options.out / "runs",
                data=options.data,
                device=options.device,
                precision=precision,
                seed=seed,
            )
            found = evaluate(trained.encoder, task, data=options.data)[task]["spearman.all"]
            scores.setdefault(precision, []).append(100 * found)
        print(f"{precision}: {task} {mean(scores[precision]):.2f}, {scores[precision]}", flush=True)
    (options.out / "scores.json").write_text(json.dumps({"task": task, "scores": scores}, indent=1))


if __name__ == "__main__":
    main(tyro.cli(Options))
