"""Packagers: which code travels with a task.

Names are resolved when they are first used: most launches need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nemo_run.core.packaging.base import Packager
    from nemo_run.core.packaging.git import GitArchivePackager
    from nemo_run.core.packaging.hybrid import HybridPackager
    from nemo_run.core.packaging.pattern import PatternPackager
    from nemo_run.core.packaging.snapshot import SnapshotPackager

__all__ = [
    "GitArchivePackager",
    "HybridPackager",
    "Packager",
    "PatternPackager",
    "SnapshotPackager",
]

_HOMES = {
    "GitArchivePackager": "git",
    "HybridPackager": "hybrid",
    "Packager": "base",
    "PatternPackager": "pattern",
    "SnapshotPackager": "snapshot",
}
_MODULES = frozenset(_HOMES.values())


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
