"""The operations of each method's step equal a count by hand of the passes in its paper."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from cse_core.method import Batch, Encode, Loss, Method, with_fields
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.ct import CT
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.mocose import MoCoSE
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.compcse import CompCSE
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.models.pretrained import ASSETS
from cse_core.run import Corpus, Pretrained, Run
from cse_core.text.clauses import adjacent, clauses
from experiments.execution.step_cost import (
    LENGTH,
    LONGEST,
    ROWS,
    SENTENCES,
    Size,
    StepCost,
    all_counts,
    count,
    padded_rows,
    size_of,
    step_cost,
)
from experiments.schema.recipes import RUNS
from experiments.schema.scales import SCALES

BASE = Run(method=SimCSE(), backbone=Pretrained("bert-base-uncased"), corpus=Corpus("wiki", 1_000_000))
TAUGHT = RankCSE(teachers=(Teacher(BASE, 1 / 3), Teacher(Pretrained("other"), 2 / 3)))


def cost(method: Method, **about: Any) -> StepCost:
    return step_cost(replace(BASE, method=method, **about))


def passes(method: Method, **about: Any) -> float:
    """Forward passes of a sentence of LENGTH tokens that take as much as the step's layers."""
    return ROWS * cost(method, **about).layers / cost(SimCSE()).layers


@pytest.mark.parametrize(
    ("method", "rows"),
    [
        (SimCSE(), 2),  # two dropout views
        (TAUGHT, 2),  # teachers' vectors are made before training
        (RankEncoder(base=BASE), 2),
        (WhitenedCSE(), 1),  # one pass for all views
        (WhitenedCSE(views="dropout", positives=4), 4),
        (CompCSE(), 3),  # the sentence and two parts, padded to one length
        (CompCSE(parts=4), 5),
        (CompCSE(side="both"), 4),
        (SNCSE(), 3),
        (DiffCSE(detection_weight=0.0), 2),
        (MLM(), 4),  # two views, and both masked
        (MLM(inner=CompCSE()), 5),
    ],
)
@pytest.mark.slow
def test_a_step_takes_the_rows_of_its_paper(method: Method, rows: int) -> None:
    template: Any = getattr(method, "first", "")
    found = passes(method, **({"pooling": "mask", "template": template} if template else {}))
    assert found == pytest.approx(3 * rows, rel=1e-3)  # a backward pass is twice a forward pass


def test_a_pass_without_a_gradient_has_no_backward_pass() -> None:
    # The generator has four layers, not two; attention in a fused kernel is not counted.
    assert passes(DiffCSE()) == pytest.approx(3 * (2 + 2) + 2 * 2, rel=0.02)
    assert passes(MoCoSE()) == pytest.approx(3 + 1, rel=0.01)
    assert passes(CT(negatives=3), pooling="mean") == pytest.approx(3 * (1 + 1 / 4))  # the second reads one in four
    assert passes(ConSERT(), pooling="mean") == pytest.approx(3 * 2)
    alone, queued = (passes(ESimCSE(queue_size=size)) for size in (0, 160))
    assert 3 * 2 < alone <= 3 * 2 * (LENGTH + 9) / LENGTH  # the view with repetitions is the longer one
    assert queued == pytest.approx(alone + 1, rel=0.02)


def test_an_attack_has_no_gradients_of_weights_and_all_other_passes_have() -> None:
    """L2P-CSR passes both views five times, four of these in an ascent. PCL has ten passes of both."""
    assert passes(PCL()) == pytest.approx(3 * 20, rel=0.01)
    assert passes(L2PCSR(steps=4, layers=2)) == pytest.approx(3 * 2 + 4 * 2 * 2, rel=0.05)


def test_layers_grow_with_their_parameters_and_a_head_over_the_vocabulary_with_its_width() -> None:
    plain, masked = cost(SimCSE()), cost(MLM())
    tokens = 0.15 * 2 * 30
    assert masked.others - plain.others == pytest.approx(tokens * 3 * 2 * 128 * 30_522, rel=0.5)  # tokens are drawn
    assert masked.at(Size(2, 128)) == masked.layers + masked.others
    assert StepCost("own", 6.0, 5.0).at(Size(4, 256)) == 6 * 8 + 5 * 2
    parameters = size_of("bert-base-uncased")
    assert parameters
    step = plain.at(parameters)
    assert step == pytest.approx(2 * LENGTH * ROWS / 2 * 2 * parameters.parameters, rel=0.05)


def test_templates_lengthen_rows_and_bare_templates_add_some() -> None:
    method = PromptBERT(first="this {} means [MASK] .", second="this {} means [MASK] .")
    longest = LENGTH + len(["[CLS]", "this", "means", "[MASK]", ".", "[SEP]"])  # all of a template comes on top
    about = {"pooling": "mask", "template": method.first}
    assert passes(replace(method, denoise=False), **about) == pytest.approx(3 * 2 * longest / LENGTH, rel=0.01)
    one_a_length = 2 / len(SENTENCES)  # all sentences are cut to the same length
    expected = 3 * (2 + one_a_length) * longest / LENGTH
    assert passes(method, **about) == pytest.approx(expected, rel=0.01)


def test_a_gpu_pads_a_batch_to_the_cut_or_to_the_longest_sentence_that_is_common() -> None:
    """Batches of 16 to 96 of SimCSE's sentences, without a cut, are 56 to 67 tokens long."""
    assert [LENGTH * padded_rows(cut) for cut in (LENGTH, 50, 67)] == [LENGTH, 50, 67]
    assert 60 < LENGTH * padded_rows(128) == LENGTH * padded_rows(512) < 75


def test_phrases_are_further_examples() -> None:
    phrases = sum(len(adjacent(clauses(text))) for text in SENTENCES)
    assert phrases > 3
    examples = 1 + phrases / len(SENTENCES)
    assert passes(CompCSE(subsampling="adjacent")) == pytest.approx(3 * 3 * examples)


def test_what_finished_encoders_embed_is_counted_with_the_runs_own_settings() -> None:
    found = cost(TAUGHT)
    assert found.embedded == ((BASE, 1), (Pretrained("other"), 1))
    assert found.sampled == ()
    based = cost(RankEncoder(base=BASE, corpus_size=50_000))
    assert based.embedded == ((BASE, 1),)
    assert based.sampled == ((BASE, 50_000),)
    pair = cost(RankEncoder(base=BASE, inner=PromptBERT()), pooling="mask", template=PromptBERT().first)
    assert pair.embedded == ((BASE, 1), (BASE, 1))  # each view under its own template


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_every_method_can_be_counted_as_published(name: str) -> None:
    run = RUNS[name](SCALES["paper"], "bert-base-uncased")
    assert run
    assert step_cost(run).layers > 0


@dataclass(frozen=True, kw_only=True)
class Momentum(SimCSE):
    """Contrast with a second encoder that has no gradient, or with the first one under no_grad."""

    name: ClassVar[str] = "momentum"
    own: bool = True

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        modules = SimCSE.modules(self, encoder, generator)
        if self.own:
            modules["momentum"] = copy.deepcopy(encoder).requires_grad_(False)
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        (query,) = encode(batch["text"])
        with torch.no_grad():
            (key,) = (modules["momentum"] if self.own else encode)(batch["text"])
        return Loss((query * key).sum(), {})


@pytest.mark.parametrize("own", [True, False])
def test_a_method_that_is_not_listed_is_counted_by_its_own_passes(own: bool) -> None:
    assert passes(Momentum(own=own)) == pytest.approx(3 + 1)


@pytest.mark.parametrize("name", ["simcse", "compcse", "diffcse", "isbert"])
@pytest.mark.slow
def test_what_is_remembered_is_what_is_counted(name: str) -> None:
    """Where it is not, delete the lines of analysis/measured/step_costs.csv and run make_tables.py."""
    run = RUNS[name](SCALES["paper"], "bert-base-uncased")
    assert run
    found: Any = count(run.method, run.pooling, run.template)
    assert found in all_counts().values()
    assert found.layers > found.others


def test_the_longest_sentence_is_as_long_as_stated() -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(ASSETS / "wiki-tiny")
    assert max(map(len, tokenizer(list(SENTENCES))["input_ids"])) == LONGEST


def test_counting_draws_no_random_number_of_others() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    cost(SimCSE(temperature=0.123))
    assert torch.equal(torch.rand(3), expected)


@dataclass(frozen=True, kw_only=True)
class Picky(SimCSE):
    name: ClassVar[str] = "picky"

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        raise ValueError("needs a width of 768")


def test_a_method_that_can_not_be_counted_is_named() -> None:
    with pytest.raises(ValueError, match="method picky: its step can't be made on wiki-tiny: needs a width of 768"):
        cost(with_fields(Picky()))
