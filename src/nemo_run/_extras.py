"""Vendor SDKs, imported when an executor is used and not before."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from nemo_run.exceptions import MissingDependencyError


def require(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import ``module``, which ``nemo_run[extra]`` installs, on behalf of ``needed_by``.

    Raises:
        MissingDependencyError: it is not installed, or broken, or this version has no such module.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except Exception as err:  # beside what it depends on it may fail in any way
        missing = isinstance(err, ModuleNotFoundError) and err.name == package
        why = "is not installed" if missing else f"cannot be used ({err})"
        raise _missing(package, why, extra, needed_by) from err


def check_installed(package: str, *, extra: str, needed_by: str) -> None:
    """Raise what `require` raises for a package that is not there; does not import it."""
    if find_spec(package) is None:
        raise _missing(package, "is not installed", extra, needed_by)


def _missing(package: str, why: str, extra: str, needed_by: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"{needed_by} needs the package {package!r}, which {why}. "
        f"Install it with: pip install 'nemo_run[{extra}]'",
        extra=extra,
    )
