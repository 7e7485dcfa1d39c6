"""Find the function that a script is for."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from nemo_run.exceptions import ConfigError

_main_lock = threading.RLock()


@contextlib.contextmanager
def main_function(script: str, name: str) -> Iterator[Callable[..., Any]]:
    """Execute a script as ``__main__`` and give the function its ``run.cli.main`` is for.

    The script stays the main module inside the block: factories in it are named after that.
    """
    from nemo_run.cli import api

    module = ModuleType("__main__")
    module.__file__ = name
    # A script runs as the main module of a process that has one; both must not run at once.
    with _main_lock, _main_module(module):
        before, api.MAIN_ENTRYPOINT = api.MAIN_ENTRYPOINT, None
        try:
            with _environment("LAZY_CLI", "true"):
                exec(compile(script, name, "exec"), vars(module))
            found = api.MAIN_ENTRYPOINT
        finally:
            api.MAIN_ENTRYPOINT = before
        if found is None:
            raise ConfigError(f"Script {name} has no entrypoint: it does not call run.cli.main.")
        yield found.fn


@contextlib.contextmanager
def _main_module(module: ModuleType) -> Iterator[None]:
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = before


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
