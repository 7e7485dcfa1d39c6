"""Running tasks. The package can be called: ``nemo_run.run(task)``."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """``nemo_run.run`` is this package and the function `nemo_run.run.api.run`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    @property
    def _function(self) -> Any:
        return import_module("nemo_run.run.api").run

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        return signature(self._function)

    def __reduce__(self) -> Any:
        # As functions are, by name: process pools take it as the function that it is.
        return import_module, (self.__name__,)


_SUBMODULES = {
    "api",
    "archives",
    "experiment",
    "job",
    "logs",
    "plugin",
    "sweep",
    "task",
    "torchx_backend",
    "utils",
}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _CallablePackage
