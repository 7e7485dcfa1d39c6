"""Names of a module that are found when a program first asks for them.

Some cost much to import; others are of libraries that this package itself does without, and are
there for programs that import or replace them here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any


def find(module: str, name: str, homes: Mapping[str, str]) -> Any:
    """Return what ``module`` calls ``name``, from the module that ``homes`` says.

    Raises:
        AttributeError: ``homes`` does not know it.
    """
    if name not in homes:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)


def file_at_home(module: str, name: str, files: Mapping[str, str]) -> str:
    """Return the path that ``module`` calls ``name``: one of ``files``, in the home of the moment.

    Raises:
        AttributeError: ``files`` does not know it.
    """
    if name not in files:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    from pathlib import Path

    from nemo_run._home import get_nemorun_home

    return str(Path(get_nemorun_home()) / files[name])


def on_demand(
    package: str, *names: str, homes: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package, with which ``package.name`` needs no import first.

    ``homes`` are the modules of what is no module itself.
    """

    def find(name: str) -> Any:
        if name in names:
            return import_module(f"{package}.{name}")
        if name in homes:
            value = getattr(import_module(f"{package}.{homes[name]}"), name)
            setattr(sys.modules[package], name, value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
