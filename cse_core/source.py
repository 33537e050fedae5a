"""Identify classes from outside this project by their code, as their version may not change when the code does."""

import ast
import dis
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CodeType
from typing import Any

PROJECT = ("cse_core", "experiments", "analysis")  # classes in these raise their version when a score changes
INSTALLED = {"site-packages", "dist-packages"}
PLAIN = str | bytes | int | float | tuple | list | dict | None  # values that their repr describes fully


@cache
def class_name(kind: type) -> Any:
    """Return the part of a key that identifies a class: its name and, for a class from outside, its module and code.

    The code is the file of the class and the files that it imports, except this project, installed packages and the
    standard library. A class that was typed in, such as in a notebook, has no file. Its code is the bytecode of its
    methods and of what they use.
    """
    if _is_projects(kind.__module__):
        return kind.__name__
    bases = [base for base in kind.__mro__ if _is_projects(base.__module__)]
    versions = sorted(f"{base.__module__}.{base.__qualname__} {vars(base).get('version', 0)}" for base in bases)
    files: dict[str, Path] = {}
    typed: list[str] = []
    for other in kind.__mro__:
        if other in bases or other is object:
            continue
        path = _path_of(other.__module__)
        if path is None:
            typed += _typed_code(other, files)
        elif other is kind or _is_users(path):
            _add_files(other.__module__, files)
    code = [f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for name, path in sorted(files.items())]
    digest = hashlib.sha256("\n".join([*versions, *code, *typed]).encode()).hexdigest()
    return {"module": kind.__module__, "class": kind.__qualname__, "code": digest}


def _is_projects(module: str) -> bool:
    return module.partition(".")[0] in PROJECT


def _path_of(module: str) -> Path | None:
    """Return a module's file, or the folder of a namespace package; None if it has neither.

    Only the packages that contain the module are imported.
    """
    if module in sys.modules:
        origin, folders = (getattr(sys.modules[module], name, None) for name in ("__file__", "__path__"))
    else:
        try:
            spec = find_spec(module)
        except (ImportError, ValueError):
            return None
        origin = spec.origin if spec and spec.has_location else None
        folders = spec.submodule_search_locations if spec else None
    path = origin or next(iter(folders or ()), None)
    return Path(path) if path and Path(path).exists() else None


def _is_users(path: Path | None) -> bool:
    """Whether a path belongs neither to an installed package nor to the standard library."""
    return bool(path) and not INSTALLED & {*path.parts} and not path.is_relative_to(sysconfig.get_path("stdlib"))


def _add_files(module: str, files: dict[str, Path]) -> None:
    """Add a module's file, by name, and the files of the user's modules that it imports, also inside functions."""
    path = _path_of(module)
    if module in files or path is None or not path.is_file():
        return
    files[module] = path
    if path.suffix != ".py":
        return
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for name in _imports(ast.parse(path.read_bytes()), package):
        if not _is_projects(name) and _is_users(_path_of(name.partition(".")[0])) and _is_users(_path_of(name)):
            _add_files(name, files)


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield every name in a file's imports that may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = "." * node.level + (node.module or "")
            module = resolve_name(named, package) if node.level else named
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))


def _typed_code(kind: type, files: dict[str, Path]) -> Iterator[str]:
    """Yield the methods' code and plain values of a class without a file, and the code and values that they use.

    If something that they use is in one of the user's modules, that module's file is added instead.
    """
    used: dict[str, Any] = {}
    for name, value in sorted(vars(kind).items()):
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if inspect.isfunction(function):
            yield f"{name} {_instructions(function.__code__)}"
            _add_used(function, used)
        elif isinstance(value, PLAIN) and not name.startswith("__"):
            yield f"{name} {value!r}"
    for name, value in sorted(used.items()):
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        if isinstance(value, PLAIN):
            yield f"used {name} {value!r}"
        elif module and not _is_projects(module) and (path := _path_of(module)):
            if _is_users(path):
                _add_files(module, files)
        elif inspect.isfunction(value):
            yield f"used {name} {_instructions(value.__code__)}"
        elif inspect.isclass(value) and value is not kind and not _is_projects(value.__module__):
            yield from (f"used {name} {line}" for line in _typed_code(value, files))


def _add_used(function: Any, used: dict[str, Any]) -> None:
    """Add the globals that a function uses, and those that the functions among them use, if of the same module."""
    for name in _global_names(function.__code__):
        if name in function.__globals__ and name not in used:
            used[name] = value = function.__globals__[name]
            if inspect.isfunction(value) and value.__globals__ is function.__globals__:
                _add_used(value, used)


def _global_names(code: CodeType) -> set[str]:
    names = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return names.union(*(_global_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _instructions(code: CodeType) -> str:
    constants = [_instructions(each) if isinstance(each, CodeType) else _constant(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _constant(value: Any) -> str:
    """Return the text of a constant; that of a set is sorted, as the order of its repr varies."""
    return f"{sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)
