"""Functions, classes and enum members by the name they are imported under."""

from __future__ import annotations

import builtins
import enum
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import Any

from nemo_run._config.fiddle import PyrefPolicy, PyrefPolicyError, moved_to

REFERABLE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    enum.Enum,
)


def name_of(value: Any) -> tuple[str, str]:
    """Return the module and dotted name that ``value`` says it has; they may be wrong."""
    if isinstance(value, enum.Enum):
        return type(value).__module__, f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, types.MethodType) and isinstance(value.__self__, type):
        # The function's own name is that of the class that defined it, perhaps a parent.
        return value.__self__.__module__, f"{value.__self__.__qualname__}.{value.__name__}"
    module = value.__module__ or "builtins"
    if module.startswith("pathlib."):
        # Newer Pythons define its classes in a private module that older ones lack.
        module = "pathlib"
    return module, value.__qualname__


@contextmanager
def main_is(module: ModuleType | None) -> Iterator[None]:
    """While entered, ``__main__`` in stored configs means ``module``: a saved launching script."""
    token = _main.set(module)
    try:
        yield
    finally:
        _main.reset(token)


_main: ContextVar[ModuleType | None] = ContextVar("main", default=None)


def load(module: str, name: str, policy: PyrefPolicy | None = None) -> Any:
    """Import ``name`` from ``module``.

    Raises:
        PyrefPolicyError: the policy refuses it.
        ModuleNotFoundError, AttributeError: it is not there; the message says what named it.
    """
    if policy is not None and not policy.allows_import(module, name):
        raise PyrefPolicyError(policy, module, name, PyrefPolicyError.PRE_IMPORT)
    module = moved_to(module, name)
    try:
        value = (_main.get() if module == "__main__" else None) or import_module(module)
    except ModuleNotFoundError as err:
        raise ModuleNotFoundError(
            f"{err} (a stored config names {module}:{name}). Make it importable here.",
            name=err.name,
        ) from err
    try:
        for part in name.split("."):
            value = getattr(value, part)
    except AttributeError as err:
        raise AttributeError(f"{err} (a stored config names {module}:{name}).") from err
    policy = policy or _DEFAULT
    if not policy.allows_value(value):
        raise PyrefPolicyError(policy, module, name, value)
    return value


class DefaultPolicy(PyrefPolicy):
    """Everything but functions of the interpreter itself, such as ``eval`` and ``os.system``."""

    def allows_import(self, module: str, symbol: str) -> bool:
        return True

    def allows_value(self, value: Any) -> bool:
        return not is_interpreters_own(value)

    def __repr__(self) -> str:
        return "no functions of the interpreter itself"


class AllowList(PyrefPolicy):
    """Only what is in the named packages and modules, besides containers and our own classes."""

    def __init__(self, *modules: str) -> None:
        self._modules = (*modules, "nemo_run", "fiddle", "builtins", "pathlib")

    def allows_import(self, module: str, symbol: str) -> bool:
        return any(module == own or module.startswith(f"{own}.") for own in self._modules)

    def allows_value(self, value: Any) -> bool:
        return not is_interpreters_own(value)

    def __repr__(self) -> str:
        return f"AllowList({', '.join(map(repr, self._modules))})"


_DEFAULT = DefaultPolicy()


def is_interpreters_own(value: Any) -> bool:
    """Tell a function that is compiled into the interpreter; its classes are harmless."""
    return isinstance(value, types.BuiltinFunctionType) and (
        value.__module__ in sys.builtin_module_names or hasattr(builtins, value.__name__)
    )
