"""fp32 products are faster where a processor allows it, and nowhere less exact."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.models import fp32_products
from cse_core.models.encoder import Encoder
from cse_core.models.fp32_products import PRODUCTS, faster_products
from cse_core.training.train import train
from tests.support.training import TINY, few_dev_pairs

ZEN4 = {"cpu_name": "AMD EPYC", "avx512_f": True, "amx_tile": False, "amx_bf16": False}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = PRODUCTS.fp32_precision
    PRODUCTS.fp32_precision = "none"
    fp32_products._is_exact.cache_clear()
    yield
    PRODUCTS.fp32_precision = before
    fp32_products._is_exact.cache_clear()


def on(processor: Mapping[str, object], patch: pytest.MonkeyPatch, *, exact: bool = True) -> None:
    patch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    patch.setattr(torch.cuda, "is_available", lambda: False)
    patch.setattr(fp32_products, "_error", lambda *given: 5e-7 if exact else 2e-3)


@faster_products()
def inside() -> str:
    return PRODUCTS.fp32_precision


def test_products_there_and_back_stay_as_exact_as_fp32() -> None:
    """On this processor, with whatever was chosen for it."""
    draws = torch.Generator().manual_seed(1)
    a, b, gradient = (torch.randn(*shape, generator=draws) for shape in ((777, 384), (129, 384), (777, 129)))
    a.requires_grad_()
    b.requires_grad_()
    with faster_products():
        found = a @ b.T
        found.backward(gradient)
    wide, narrow, upstream = a.detach().double(), b.detach().double(), gradient.double()
    for mine, exact in ((found.detach(), wide @ narrow.T), (a.grad, upstream @ narrow), (b.grad, upstream.T @ wide)):
        assert mine is not None
        assert float((mine - exact).abs().max() / exact.abs().max()) < 5e-6


def test_the_check_draws_nothing_from_the_global_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: ZEN4)
    before = torch.get_rng_state()
    with faster_products():
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_amds_processors_with_wide_registers_get_the_faster_products_only_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on(ZEN4, monkeypatch)
    assert inside() == "bf16"
    assert PRODUCTS.fp32_precision == "none"
    with faster_products():
        assert inside() == "bf16"
        assert PRODUCTS.fp32_precision == "bf16"
    with pytest.raises(ValueError, match="invalid literal"), faster_products():
        int("no number")
    assert PRODUCTS.fp32_precision == "none"


def test_training_and_scoring_use_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(ZEN4, monkeypatch)
    seen: dict[str, str] = {}
    with few_dev_pairs():
        train(TINY, tmp_path, on_step=lambda step, history: seen.update(step=PRODUCTS.fp32_precision))
        encoder = Encoder.from_pretrained("wiki-tiny")
        noted = lambda activity, done, total: seen.update(embedding=PRODUCTS.fp32_precision)  # noqa: E731
        suite.evaluate(encoder, Cosine(), ["synthetic_dev"], progress=noted)
    assert seen == {"step": "bf16", "embedding": "bf16"}


@pytest.mark.parametrize(
    "other",
    [
        {"cpu_name": "Intel(R) Xeon(R) Processor"},
        {"avx512_f": False},
        {"amx_bf16": True},  # oneDNN would round to bf16
        {"amx_fp16": True},
    ],
)
def test_other_processors_keep_theirs(monkeypatch: pytest.MonkeyPatch, other: Mapping[str, object]) -> None:
    on({**ZEN4, **other}, monkeypatch)
    assert inside() == "none"


def test_a_processor_whose_capabilities_are_unknown_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    on({"architecture": "aarch64"}, monkeypatch)
    assert inside() == "none"


def test_beside_a_gpu_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    on(ZEN4, monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert inside() == "none"


def test_products_that_are_rounded_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    on(ZEN4, monkeypatch, exact=False)
    assert inside() == "none"


def test_an_error_of_bf16_is_far_above_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda a, b: linear(a.bfloat16(), b.bfloat16()).float())
    error = fp32_products._error(64, 128, 512, torch.Generator().manual_seed(0))
    assert error > 100 * fp32_products.TOLERANCE


def test_a_precision_that_the_process_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    on(ZEN4, monkeypatch)
    PRODUCTS.fp32_precision = "tf32"
    assert inside() == "tf32"
