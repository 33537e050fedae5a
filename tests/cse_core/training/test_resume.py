"""Runs of every method end with the same bits when killed; those that keep something from step to step in any step."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_core.data import synthetic
from cse_core.methods.baselines.arccse import ArcCSE
from cse_core.methods.baselines.ct import CT
from cse_core.methods.baselines.dclr import DCLR
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.isbert import ISBERT
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.mocose import MoCoSE
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution, Loop
from cse_core.training.train import train
from tests.support.training import TINY, equal, kill_after, starve, train_noting_steps, weights

# Seven steps of 16 sentences: a queue of 56 is half-full after two of them and full after four.
RUNS = {
    "esimcse": replace(TINY, epochs=1, method=ESimCSE(queue_size=56, momentum=0.8)),
    "mocose": replace(TINY, epochs=1, method=MoCoSE(queue_size=64, first=8, momentum=0.5, momentum_steps=7)),
    "ct": replace(TINY, epochs=1, method=CT(), warmup=0.0, optimizer="rmsprop", schedule="staircase", pooling="mean"),
}


BASED = replace(TINY, epochs=1, method=SimCSE(), corpus=Corpus("synthetic", 32), batch_size=8)
KILLED: dict[str, Run] = {  # methods with modules, targets, starts and draws of their own
    "promptbert": replace(BASED, method=PromptBERT(), pooling="mask", template=PromptBERT().first),
    "diffcse with mlm": replace(BASED, method=MLM(inner=DiffCSE(generator=Pretrained("wiki-mini")))),
    "arccse": replace(BASED, method=ArcCSE(shortest=4, triplet_margin=0.1)),
    "dclr": replace(BASED, method=DCLR(complement=Pretrained("wiki-tiny"), threshold=0.5, steps=1, step_size=1.0)),
    "l2pcsr": replace(BASED, method=L2PCSR(layers=2, initial=BASED, select="last"), learning_rate=1e-5),
    "pcl": replace(BASED, method=PCL(augmentations=("shuffle", "deletion"), peer_head="own")),
    "isbert": replace(BASED, method=ISBERT(), pooling="ngrams", weight_decay=0.01),
}


@pytest.mark.parametrize("name", KILLED)
@pytest.mark.slow
def test_a_killed_run_resumes_with_the_same_bits(name: str, tmp_path: Path) -> None:
    run, folders = KILLED[name], [tmp_path / "whole", tmp_path / "killed"]
    for nested in run.nested():
        train(nested, folders[0])
        shutil.copytree(folders[0], folders[1])
    whole = train(run, folders[0])
    kill_after(2, run, folders[1])
    assert train(run, folders[1]).curves == whole.curves
    assert equal(*(weights(folder, run, "last") for folder in folders))
    texts = synthetic.sentences(5)
    exported = [Encoder.from_pretrained(folder / run.key / "last") for folder in folders]
    assert (exported[0].pooling, exported[0].template) == (run.pooling, run.template)
    assert torch.equal(*(encoder.encode(texts) for encoder in exported))


def state_at(run: Run, store: Path, step: int) -> Any:
    """Train or resume a run until it is stopped after a step, and return its saved state."""
    kill_after(step, run, store)
    return torch.load(store / run.key / "state.pt", weights_only=True)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_a_killed_run_continues_with_the_same_bits(name: str, tmp_path: Path) -> None:
    """Weights, slow copy, queue, counts, optimizer and losses."""
    run = RUNS[name]
    expected, whole = state_at(run, tmp_path / "whole", 6), train(run, tmp_path / "whole")
    for at in (2, 5):
        store = tmp_path / str(at)
        first, found = state_at(run, store, at), state_at(run, store, 6)
        assert not same(first["modules"], expected["modules"])
        for part in ("encoder", "modules", "optimizer", "schedule"):
            assert same(found[part], expected[part]), part
        if name != "ct":
            held = {name: {2: 32, 5: 56}, "mocose": {2: 40, 5: 64}}[name][at]
            assert (first["modules"]["queue._extra_state"], first["modules"]["slow._extra_state"]) == (held, at)
            keys = first["modules"].keys() - {"slow._extra_state"}
            assert not any(key.startswith(("online", "slow._")) for key in keys)
        assert train(run, store).curves == whole.curves
        assert equal(weights(store, run, "last"), weights(tmp_path / "whole", run, "last"))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_an_export_holds_only_the_encoder_and_scores_as_it(name: str, tmp_path: Path) -> None:
    run = RUNS[name]
    loop = Loop(run, Execution(tmp_path))
    for step in range(loop.history.steps):
        loop.train_step(step)
    folder = tmp_path / run.key
    folder.mkdir()
    loop.finish(folder)
    assert set(weights(tmp_path, run, "last")) == set(loop.encoder.backbone.state_dict())
    texts = synthetic.sentences(20)
    exported = Encoder.from_pretrained(folder / "last")
    assert torch.equal(exported.encode(texts), loop.encoder.encode(texts))
    trained = {id(p) for group in loop.optimizer.param_groups for p in group["params"]}
    slow = [p for n, p in loop.modules.named_parameters() if n.startswith("slow.")]
    assert bool(slow) == (name != "ct")
    assert not trained & {id(p) for p in slow}
    assert {id(p) for p in loop.modules.parameters()} - {id(p) for p in slow} <= trained


@pytest.mark.parametrize("name", ["esimcse", "ct"])
@pytest.mark.slow
def test_a_step_too_large_for_memory_is_taken_with_less_and_gives_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folders = RUNS[name], (tmp_path / "starved", tmp_path / "plain")
    with monkeypatch.context() as patch:
        starve(patch, run.method, "loss/3")
        history, steps = train_noting_steps(run, Execution(folders[0], save_seconds=0.0))
    assert steps == [1, 2, 3, 4, 5, 6, 7]
    assert history.warnings == ["activations were computed twice, as a step did not fit into memory"]
    assert history.curves == train(run, folders[1]).curves
    assert equal(*(weights(folder, run, "last") for folder in folders))
