"""Packagers: which code travels with a task.

Names are resolved when they are first used: most launches need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_run._later import on_demand

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


__getattr__ = on_demand(__name__, *_MODULES, homes=_HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
