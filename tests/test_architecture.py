"""Who may import whom, how long files and functions may be, and which names are no names."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cse_core", "experiments", "analysis")
FORBIDDEN = {
    "cse_core": {"experiments", "analysis", "ray", "mlflow", "pandas", "matplotlib", "seaborn", "tyro", "rich"},
    "experiments": {"analysis"},
    "analysis": {"torch", "ray", "mlflow"},
}
ONLY_IN = {
    "umap": ["cse_core/metrics/geometry.py"],
    "mlflow": ["experiments/results/mlflow_log.py"],
    "ray": ["experiments/execution/ray_sweep.py", "experiments/search/ray_search.py"],
}
UNSAFE = {  # calls that may run code out of what they read, unless they have this argument
    "torch.load": "weights_only=True",
    "pickle.load": None,
    "pickle.loads": None,
    "yaml.load": None,
    "joblib.load": None,
    "eval": None,
    "exec": None,
}
TRUSTING = ("trust_remote_code=", "allow_pickle=")
NO_NAMES = {"utils.py", "common.py", "helpers.py", "base.py"}
RECORD = "cse_core/assets/"  # how the backbones were made: a script beside them that nothing imports
LONGEST_FILE, LONGEST_FUNCTION = 300, 40


def files(*folders: str) -> list[str]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in found]


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def imported(module: ast.Module) -> set[str]:
    """The packages that a file imports anywhere in it; a relative import is named by its dots."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level or (node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            found.add(ast.unparse(node.args[0]).strip("'\"").partition(".")[0])
    return found


def functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def public(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Public functions and classes, and classes' public methods; a property may be its name."""
    for item in node.body:
        if not isinstance(item, ast.FunctionDef | ast.ClassDef) or item.name.startswith("_"):
            continue
        if any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in item.decorator_list):
            continue
        yield item
        if isinstance(item, ast.ClassDef):
            yield from public(item)


def test_all_packages_are_read() -> None:
    for package in PACKAGES:
        assert len(files(package)) > 5
    assert "cse_core/methods/rankcse.py" in files("cse_core")
    assert {"torch", "transformers", "cse_core"} <= imported(tree("cse_core/models/encoder.py"))
    nested = ast.parse("def f():\n    import ray.tune as t\n    from mlflow.x import y\n    from . import z")
    assert imported(nested) == {"ray", "mlflow", "."}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_from_analysis_to_experiments_to_the_core(package: str) -> None:
    names = [name for name in files(package) if not name.startswith(RECORD)]
    wrong = {name: imported(tree(name)) & (FORBIDDEN[package] | {".", ".."}) for name in names}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("library", ONLY_IN)
def test_ray_and_mlflow_have_files_of_their_own(library: str) -> None:
    assert [name for name in files(*PACKAGES) if library in imported(tree(name))] == ONLY_IN[library]


def test_no_file_is_longer_than_three_hundred_lines() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in files(*PACKAGES)}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_longer_than_forty_lines() -> None:
    """From the first line of the body, its docstring, to the last."""
    lengths = {
        f"{name}:{node.name}": (node.end_lineno or 0) - node.body[0].lineno + 1
        for name in files(*PACKAGES, "tests")
        for node in functions(name)
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [name for name in files(*PACKAGES, "tests") if Path(name).name in NO_NAMES] == []


def test_everything_public_in_the_core_says_what_it_is() -> None:
    names = [name for name in files("cse_core") if not name.startswith(RECORD)]
    silent = [f"{name}:{node.name}" for name in names for node in public(tree(name)) if not ast.get_docstring(node)]
    assert silent == []
    assert [name for name in names if not ast.get_docstring(tree(name))] == []


@pytest.mark.parametrize("name", files(*PACKAGES))
def test_nothing_that_is_read_can_run_code(name: str) -> None:
    for node in ast.walk(tree(name)):
        if not isinstance(node, ast.Call):
            continue
        called, given = ast.unparse(node.func), {ast.unparse(word) for word in node.keywords}
        assert called not in UNSAFE or UNSAFE[called] in given, f"{name}:{node.lineno} calls {called}"
        trusted = {word for word in given if word.startswith(TRUSTING) and not word.endswith("=False")}
        assert not trusted, f"{name}:{node.lineno} has {trusted}"
