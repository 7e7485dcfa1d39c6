"""Vendor SDKs, imported when an executor is used and not before."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from nemo_run.exceptions import MissingDependencyError


def require(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import ``module``, which ``nemo_run[extra]`` installs, on behalf of ``needed_by``.

    Raises:
        MissingDependencyError: it is not installed, or broken, or this version has no such module.
    """
    try:
        return import_module(module)
    except Exception as err:  # beside what it depends on it may fail in any way
        package = module.partition(".")[0]
        missing = isinstance(err, ModuleNotFoundError) and err.name == package
        why = "is not installed" if missing else f"cannot be used ({err})"
        raise MissingDependencyError(
            f"{needed_by} needs the package {package!r}, which {why}. "
            f"Install it with: pip install 'nemo_run[{extra}]'",
            extra=extra,
        ) from err
