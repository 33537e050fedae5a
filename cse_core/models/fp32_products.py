"""Faster products of fp32 matrices on processors where PyTorch's own choice is slow."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

SHAPES = ((64, 128, 512), (500, 512, 128), (2048, 128, 384), (300, 768, 96))  # of the products that are checked
TOLERANCE = 1e-5  # of the largest value: fp32 stays below a fifth of it, bf16 is off by a hundred times as much
PRODUCTS: Any = getattr(torch.backends.mkldnn, "matmul")  # noqa: B009 - type checkers don't know it
UNCHOSEN = ("none", "ieee")  # precisions that PyTorch has unless one was set


@contextmanager
def faster_products() -> Generator[None]:
    """Multiply fp32 matrices with oneDNN where that is faster and as exact; also a decorator.

    PyTorch takes MKL's products, which have no AVX-512 kernels on AMD's processors; oneDNN's there take less than half
    of the time. It takes oneDNN's only if they may be computed in bf16. Without AMX, oneDNN computes them in fp32. So
    nothing changes on other processors, or if a product is less exact than fp32, or if the process has chosen a
    precision itself. Nor does it beside a GPU: `torch.get_float32_matmul_precision` raises in here, and compilers may
    call it.
    """
    if PRODUCTS.fp32_precision in UNCHOSEN and has_faster_products():
        with _precision("bf16"):
            yield
    else:
        yield


@contextmanager
def _precision(name: str) -> Generator[None]:
    before = PRODUCTS.fp32_precision
    PRODUCTS.fp32_precision = name
    try:
        yield
    finally:
        PRODUCTS.fp32_precision = before


def has_faster_products() -> bool:
    """Return whether oneDNN's products of fp32 matrices are faster here, and as exact."""
    can = torch.cpu.get_capabilities()
    amx = any(value for name, value in can.items() if name.startswith("amx"))
    faster = can.get("cpu_name", "").startswith("AMD") and can.get("avx512_f", False)
    return faster and not amx and not torch.cuda.is_available() and _is_exact()


@cache
def _is_exact() -> bool:
    """Return whether oneDNN's products of fp32 matrices, allowed to be in bf16, are as exact as fp32's."""
    draws = torch.Generator().manual_seed(0)
    with _precision("bf16"):
        return all(_error(*shape, draws) < TOLERANCE for shape in SHAPES)


def _error(rows: int, inner: int, columns: int, draws: torch.Generator) -> float:
    """Return the largest error of a product, relative to its largest value."""
    a, b = torch.randn(rows, inner, generator=draws), torch.randn(columns, inner, generator=draws)
    exact = a.double() @ b.double().T
    return float((torch.nn.functional.linear(a, b) - exact).abs().max() / exact.abs().max())
