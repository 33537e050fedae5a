"""A method from outside the project is known by its code, and the project's own by name and version."""

import importlib
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cse_core import source
from cse_core.methods import METHODS
from cse_core.methods.mlm import MLM
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.source import class_name

BASE = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 100))
METHOD = """
from dataclasses import dataclass
from typing import ClassVar

from cse_core.methods.simcse import SimCSE as Base


@dataclass(frozen=True, kw_only=True)
class {name}(Base):
    name: ClassVar[str] = "{name}"
    version: ClassVar[int] = 1

    def loss(self, encode, batch, modules, targets):
        return {loss}
"""
Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Load]:
    """Return a function that writes files, imports the first of them anew, and returns its class."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def written(name: str = "Mine", **files: str) -> Any:
        for each in set(sys.modules) - before:
            del sys.modules[each]
        for module, text in files.items():
            (tmp_path / f"{module}.py").write_text(text)
        importlib.invalidate_caches()
        return getattr(importlib.import_module(next(iter(files))), name)

    yield written
    for each in set(sys.modules) - before:
        del sys.modules[each]


def code(loss: str = "1", name: str = "Mine") -> str:
    return METHOD.format(name=name, loss=loss)


def key(kind: Any) -> str:
    return replace(BASE, method=kind()).key


def test_the_projects_methods_keep_their_names() -> None:
    assert all(class_name(kind) == kind.__name__ for kind in METHODS.values())


def test_another_code_under_the_same_class_and_version_is_another_run(load: Load) -> None:
    first, second, again = (key(load(my_own_method=code(loss))) for loss in ("1", "2", "1"))
    assert first == again != second


def test_the_same_class_in_another_module_is_another_run(load: Load) -> None:
    assert key(load(my_own_method=code())) != key(load(my_other_method=code()))


def test_two_classes_of_one_file_are_two_runs(load: Load) -> None:
    both = code() + code(name="Other")
    assert key(load(my_own_method=both)) != key(load("Other", my_own_method=both))


def test_a_class_of_the_name_of_a_built_in_one_is_another_run(load: Load) -> None:
    theirs = load("SimCSE", my_own_method=code(name="SimCSE"))
    assert theirs.__name__ == SimCSE.__name__
    assert key(theirs) != BASE.key
    inside = replace(BASE, method=MLM(inner=theirs()))
    assert inside.key != replace(BASE, method=MLM(inner=SimCSE())).key


@pytest.mark.parametrize(
    "line",
    ["from my_helper import LOSS", "import my_helper", "def f():\n    import my_helper", "from my_base import Helped"],
)
def test_what_the_file_imports_from_its_own_folder_counts(line: str, load: Load) -> None:
    base = {"my_base": "import my_helper\n\nclass Helped:\n    pass\n"}
    keys = [
        key(load(my_own_method=f"{line}\n{code()}", my_helper=f"LOSS = {number}\n", **base)) for number in (1, 2, 1)
    ]
    assert keys[0] == keys[2] != keys[1]


def test_a_base_class_from_another_file_counts(load: Load) -> None:
    mine = code().replace("from cse_core.methods.simcse import SimCSE as Base", "from my_base import Shared as Base")
    keys = [key(load(my_own_method=mine, my_base=code(loss, "Shared"))) for loss in ("1", "2", "1")]
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("is_only_a_folder", [False, True])
def test_packages_with_relative_imports_are_followed(is_only_a_folder: bool, tmp_path: Path, load: Load) -> None:
    (tmp_path / "my_package").mkdir()
    if not is_only_a_folder:
        (tmp_path / "my_package/__init__.py").touch()
    (tmp_path / "my_package/mine.py").write_text(f"from .losses import LOSS\n{code()}")
    keys = []
    for number in (1, 2):
        (tmp_path / "my_package/losses.py").write_text(f"LOSS = {number}\n")
        keys.append(key(load(entry=f"from my_package.mine import Mine\n# {number}\n")))
    assert len(set(keys)) == 2
    assert key(load(entry="from my_package.mine import Mine\n")) == keys[1]  # a file that only imports it doesn't count


def test_a_new_version_of_the_class_it_is_derived_from_is_another_run(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(load(my_own_method=code()))
    monkeypatch.setattr(SimCSE, "version", SimCSE.version + 1)
    assert key(load(my_own_method=code())) != before


def test_the_projects_files_do_not_count(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their classes count by version: an edited docstring or another installation makes no other runs."""
    mine, read = load(one=code()), []
    monkeypatch.setattr(source, "_add_files", lambda module, files: read.append(module))
    source._identify(mine)
    assert read == ["one"]


def test_other_files_and_the_folder_do_not_count(tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(load(my_own_method=code()))
    assert key(load(my_own_method=code(), my_notes="X = 1\n")) == before
    (tmp_path / "moved").mkdir()
    (tmp_path / "my_own_method.py").rename(tmp_path / "moved/my_own_method.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "moved"), *sys.path])
    assert key(load(my_notes="from my_own_method import Mine\n")) == before


HELPERS = """
import {module}
from {module} import value

SCALE = {{"of": {scale}}}
def deeper(x): return {deeper} * x
def helper(x): return SCALE["of"] * deeper(x) * value()
class Part:
    share = {share}
"""


DEFAULTS = """
import torch
from numpy import ndarray
from torch import Tensor, relu

WEIGHTS = torch.tensor([1.0, {tensor}])
def with_default(x, share={default}): return x * share
def with_keyword(x, *, share={keyword}): return x * share
def made(by): return lambda x: x * by
closed = made({closure})
first = lambda x, a={first}: x * a
second = lambda x, a=1: x - a
OPTIONS = {{"weights": [torch.zeros(2), {nested}], "names": {{"a", "b"}}, "call": made}}
SPARSE = torch.eye(2).to_sparse()
META = torch.zeros(2, device="meta")
@torch.no_grad()
def wrapped(x): return inner(x)
def inner(x): return {inner} * x
"""


@pytest.mark.parametrize("changed", ["tensor", "default", "keyword", "closure", "first", "nested", "inner"])
def test_values_that_a_typed_in_class_gets_by_other_ways_count(changed: str) -> None:
    def typed(**values: int) -> str:
        session = sys.modules["typed_in"] = ModuleType("typed_in")
        fields = ("tensor", "default", "keyword", "closure", "first", "nested", "inner")
        defaults = DEFAULTS.format(**dict.fromkeys(fields, 1) | values)
        loss = "with_default(1) + with_keyword(1) + closed(1) + first(1) + second(1) + wrapped(1) + relu(WEIGHTS).sum()"
        loss += " + torch.sum(SPARSE) + META.sum() + isinstance(OPTIONS, Tensor | ndarray)"
        exec(code(loss).replace("@dataclass", f"{defaults}\n@dataclass"), vars(session))
        return key(vars(session)["Mine"])

    assert typed() == typed() != typed(**{changed: 2})


def test_a_value_that_changes_after_a_class_was_typed_counts(load: Load) -> None:
    load("value", beside="def value(): return 1")
    mine = typed_in("beside", loss="helper(1)")
    before = key(mine)
    sys.modules["typed_in"].SCALE["of"] = 2
    assert key(mine) != before


def test_code_that_is_replaced_in_memory_counts_and_an_edited_file_alone_does_not(tmp_path: Path, load: Load) -> None:
    """As by IPython's autoreload, which replaces the code of functions, here of a method and of a class beside it."""

    def text(loss: int, size: int) -> dict[str, str]:
        parts = f"class Head:\n    def size(self): return {size}\n"
        return {"my_own_method": f"import my_parts\n{code(f'{loss} * my_parts.Head().size()')}", "my_parts": parts}

    for changed in ((2, 1), (1, 2)):
        mine = load(**text(1, 1))
        before = key(mine)
        for name, content in text(*changed).items():
            (tmp_path / f"{name}.py").write_text(content)
        assert key(mine) == before
        new: dict[str, Any] = {}
        for content in text(*changed).values():
            exec(content, new)
        mine.loss.__code__, sys.modules["my_parts"].Head.size.__code__ = (
            new["Mine"].loss.__code__,
            new["Head"].size.__code__,
        )
        assert key(mine) != before
        assert key(mine) == key(load(**text(*changed)))


def typed_in(module: str, *, loss: Any = "helper(1) * Part.share", **values: Any) -> Any:
    """The class of a session that imports `module`, with other values than 1."""
    session = sys.modules["typed_in"] = ModuleType("typed_in")
    helpers = HELPERS.format(module=module, **{"scale": 1, "deeper": 1, "share": 1} | values)
    exec(code(loss).replace("@dataclass", f"{helpers}\n@dataclass"), vars(session))
    return vars(session)["Mine"]


@pytest.mark.parametrize("changed", ["scale", "deeper", "share"])
def test_what_a_typed_in_class_uses_counts(changed: str, load: Load) -> None:
    load("value", beside="def value(): return 1")
    whole = key(typed_in("beside"))
    assert key(typed_in("beside")) == whole
    assert key(typed_in("beside", **{changed: 2})) != whole
    assert key(typed_in("beside", loss="1", **{changed: 2})) == key(typed_in("beside", loss="1"))  # not used


@pytest.mark.parametrize("loss", ["value()", "beside.value()", "helper(1)"])
def test_a_file_that_a_typed_in_class_uses_counts(loss: str, load: Load) -> None:
    load("value", beside="def value(): return 1")
    before = key(typed_in("beside", loss=loss))
    load("value", beside="def value(): return 2")
    assert key(typed_in("beside", loss=loss)) != before


@pytest.mark.slow
def test_a_class_that_was_typed_in_is_known_by_its_methods() -> None:
    """As in a notebook, whose classes have no file."""
    about = """
from cse_core.run import Corpus, Pretrained, Run
print(Run(method=Mine(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 100)).key)
"""
    keys = [
        subprocess.run(
            [sys.executable, "-c", code(loss) + about], capture_output=True, text=True, check=True
        ).stdout.strip()
        for loss in ("1 in {'a', 'b', 'c', 'd'}",) * 2
    ]
    assert keys[0] == keys[1] != ""
