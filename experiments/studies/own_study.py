"""Load a user's own study from a file, with its methods: `sweep.py --study my_study.py`.

The file is imported as a module of its folder, so it may import files next to it. It defines a function `study`, which
takes a scale, and any number of methods.
"""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from cse_core.methods import METHODS
from experiments.schema.study import UNNAMED, Scale, Study, StudyAt

PARTS_OF_METHOD = ("name", "version", "examples", "modules", "targets", "loss")


def load_study(path: Path) -> StudyAt:
    """Import a file, register its methods, and return its study as a function of a scale."""
    module = _import(path.resolve())
    function = getattr(module, "study", None)
    if not callable(function):
        raise ValueError(f"{path}: expected a function `study` of a scale that returns a Study, found none")
    _register_all(module, path)

    def at(scale: Scale) -> Study:
        made = function(scale)
        if not isinstance(made, Study):
            raise ValueError(f"{path}: expected of `study` a Study, got {type(made).__name__}")
        if UNNAMED in (made.name, made.scale.name):
            raise ValueError(f"{path}: expected of `study` a Study with a name and a scale")
        return replace(made, file=str(path.resolve()))

    return at


def load_method(path: Path, name: str = "") -> Any:
    """Import a file, register its methods, and return the one whose class has this name, or the only one."""
    found = {kind.__name__: kind for kind in _register_all(_import(path.resolve()), path)}
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        expected = f"a method's class, {path}:CLASS" if not name else f"the class {name}"
        raise ValueError(f"{path}: expected {expected}; it defines {', '.join(found) or 'no method'}")
    return found[name]


def loaded_files() -> tuple[str, ...]:
    """Return the files of the loaded studies, for other processes that must import them too."""
    folders = {Path(module.__file__ or "").parent for module in _LOADED}
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    return tuple(sorted({file for file in files if file and file.endswith(".py") and Path(file).parent in folders}))


_LOADED: list[ModuleType] = []


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected a Python file of your own")
    if not path.stem.isidentifier():
        raise ValueError(f"{path}: expected a name that can be imported, of letters, digits and _; rename the file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path:
        raise ValueError(f"{path}: another module has its name, {module.__file__ or 'a built-in'}; rename the file")
    if module not in _LOADED:
        _LOADED.append(module)
    return module


def _register_all(module: ModuleType, path: Path) -> list[Any]:
    kinds = list(_methods_of(module))
    for kind in kinds:
        _register(kind, path)
    return kinds


def _methods_of(module: ModuleType) -> Iterator[Any]:
    """Yield the methods that a module defines, not those that it imports."""
    for kind in vars(module).values():
        its_own = isinstance(kind, type) and kind.__module__ == module.__name__ and is_dataclass(kind)
        if its_own and hasattr(kind, "name") and hasattr(kind, "loss"):
            yield kind


def _register(kind: Any, path: Path) -> None:
    """Add a method to METHODS; refuse one with the name or class name of another: its class name is part of keys."""
    missing = [part for part in PARTS_OF_METHOD if not hasattr(kind, part)]
    if missing:
        raise ValueError(f"{path}, method {kind.__name__}: expected {', '.join(PARTS_OF_METHOD)}; lacks {missing[0]}")
    for other in METHODS.values():
        if other is not kind and (other.name == kind.name or other.__name__ == kind.__name__):
            raise ValueError(
                f"{path}, method {kind.__name__}: {other.__module__} has one of that name or class; "
                f"expected another class and another `name` than {kind.name!r}"
            )
    METHODS[kind.name] = kind
