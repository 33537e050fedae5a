"""What docstrings promise: each public function has an example that runs, each loss names its unit."""

import ast
import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import cse_core

CORE = Path(cse_core.__file__).parent
FUNCTIONS = [name for name in cse_core.__all__ if inspect.isfunction(getattr(cse_core, name))]
LOSSES = ("Loss", "Float[Tensor, '']")
UNITS = ("nats", "cosine", "square")


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_each_public_function_runs(name: str, tmp_path: Path) -> None:
    function = inspect.unwrap(getattr(cse_core, name))
    names = {each: getattr(cse_core, each) for each in cse_core.__all__} | {"torch": torch, "folder": tmp_path}
    (example,) = doctest.DocTestFinder(recurse=False).find(function, name, module=False, globs=names)
    assert 1 <= len(example.examples) <= 4
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


def losses() -> Iterator[tuple[str, str]]:
    """Yield each loss of the methods and of what they share, with its docstring."""
    for path in sorted([*(CORE / "methods").rglob("*.py"), *(CORE / "functional").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            if node.returns and ast.unparse(node.returns) in LOSSES:
                yield f"{path.stem}.{node.name}", ast.get_docstring(node) or ""


def test_each_loss_names_its_unit() -> None:
    found = dict(losses())
    assert len(found) > 30
    assert [name for name, text in found.items() if not any(unit in text for unit in UNITS)] == []
