"""Identify classes from outside this project by their code, as their version may not change when the code does."""

import ast
import dis
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CellType, CodeType
from typing import Any, NamedTuple

import numpy as np
import torch

PROJECT = ("cse_core", "experiments", "analysis")  # classes in these raise their version when a score changes
INSTALLED = {"site-packages", "dist-packages"}
PLAIN = str | bytes | int | float | complex | None  # values that their repr describes fully


class _Known(NamedTuple):
    """What class_name returns of a class from outside, and the user's modules that it is made of with their code.

    There are none if the class was typed in: it is then identified anew each time, as what it uses may have changed.
    """

    name: Mapping[str, str]
    modules: tuple[str, ...]
    loaded: list[CodeType]


_NAMES: dict[type, _Known] = {}


def class_name(kind: type) -> Any:
    """Return the part of a key that identifies a class: its name and, for a class from outside, its module and code.

    The code is the file of the class and the files that it imports, except this project, installed packages and the
    standard library. A class that was typed in, such as in a notebook, has no file. Its code is the bytecode of its
    methods and of the functions that they use, with plain values, tensors and arrays among the defaults, in closures
    and in globals. The state of other objects does not count.
    """
    if _is_projects(kind.__module__):
        return kind.__name__
    if kind not in _NAMES or not (loaded := _loaded_code(_NAMES[kind].modules)) or loaded != _NAMES[kind].loaded:
        _NAMES[kind] = _identify(kind)
    return _NAMES[kind].name


def _loaded_code(modules: Collection[str]) -> list[CodeType]:
    """Return the code in memory of modules' functions and their classes' methods, which IPython's autoreload changes.

    While it stays the same, so does the class's name, also if a file is edited: what runs is what was imported.
    """
    values = [value for name in modules if name in sys.modules for value in vars(sys.modules[name]).values()]
    values += [member for value in values if inspect.isclass(value) for member in vars(value).values()]
    return [value.__code__ for value in values if inspect.isfunction(value)]


def _identify(kind: type) -> _Known:
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
    name = {"module": kind.__module__, "class": kind.__qualname__, "code": digest}
    modules = () if _path_of(kind.__module__) is None else tuple(files)
    return _Known(name, modules, _loaded_code(modules))


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
            for each in dict.fromkeys((function, inspect.unwrap(function))):  # a decorator's, and what it wraps
                yield f"{name} {_instructions(each.__code__)}"
                _add_used(each, used, vars(sys.modules.get(kind.__module__, kind)))
        elif (text := _value_text(value)) and not name.startswith("__"):
            yield f"{name} {text}"
    for name, value in sorted(used.items()):
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        if text := _value_text(value):
            yield f"used {name} {text}"
        elif module and not _is_projects(module) and (path := _path_of(module)):
            if _is_users(path):
                _add_files(module, files)
        elif inspect.isfunction(value):
            yield f"used {name} {_instructions(value.__code__)}"
        elif inspect.isclass(value) and value is not kind and not _is_projects(value.__module__):
            yield from (f"used {name} {line}" for line in _typed_code(value, files))


def _add_used(function: Any, used: dict[str, Any], typed: Mapping[str, Any], at: str = "") -> None:
    """Add what a function uses: its defaults, its closure and globals, and what the functions among them use.

    Functions of other modules are left out, but not those of the module `typed` that they wrap. A name in `used` is
    that of a global, or the way to a value inside a function.
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    inside = dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {})
    inside |= {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    names = sorted(_global_names(function.__code__) & function.__globals__.keys())
    found = {name: function.__globals__[name] for name in names}
    found |= {f"{at or function.__qualname__} {name}": value for name, value in inside.items()}
    found |= {f"{name} inside": inspect.unwrap(each) for name, each in found.items() if inspect.isfunction(each)}
    for name, value in found.items():
        if name not in used:
            used[name] = value
            if inspect.isfunction(value) and any(value.__globals__ is each for each in (function.__globals__, typed)):
                _add_used(value, used, typed, name)


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _value_text(value: Any) -> str:
    """Return the text of a plain value, or the hash of a tensor's or an array's content; empty for any other value."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_value_text(key)}: {_value_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_value_text, value))})"
    if isinstance(value, set | frozenset):
        return f"set({', '.join(sorted(map(_value_text, value)))})"
    if isinstance(value, PLAIN):
        return repr(value)
    content = value
    if isinstance(value, torch.Tensor) and not value.is_meta:
        content = value.detach().cpu().to_dense().contiguous().reshape(-1).view(torch.uint8).numpy()
    if isinstance(content, np.ndarray | np.generic) and content.dtype != object:
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(content.tobytes()).hexdigest()}"
    return ""


def _global_names(code: CodeType) -> set[str]:
    names = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return names.union(*(_global_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _instructions(code: CodeType) -> str:
    constants = [_instructions(each) if isinstance(each, CodeType) else _constant(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _constant(value: Any) -> str:
    """Return the text of a constant; that of a set is sorted, as the order of its repr varies."""
    return f"{sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)
