"""The packager that puts together what others take along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run import _later
from nemo_run.core.packaging._archiving import ArchivePackager, Foreign, is_ours
from nemo_run.core.packaging._members import Below, Part
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError

__all__ = ["HybridPackager"]


@dataclass(kw_only=True)
class HybridPackager(ArchivePackager):
    """Takes along what several packagers do, each in a directory of its own.

    Attributes:
        sub_packagers: directory in the archive → packager.
        extract_at_root: put everything at the root instead. Where two have a file of the same
            name, the later one's is taken.
    """

    sub_packagers: dict[str, Packager] = field(default_factory=dict)
    extract_at_root: bool = False

    def _parts(self, path: Path, name: str) -> Sequence[Part]:
        parts: list[Part] = []
        for key, packager in self.sub_packagers.items():
            _check(key)
            inner = _parts_of(packager, path, f"{name}_{key}")
            parts += inner if self.extract_at_root else [Below(key, part) for part in inner]
        return parts


def _parts_of(packager: Packager, path: Path, name: str) -> Sequence[Part]:
    if isinstance(packager, ArchivePackager) and is_ours(packager):
        return packager._parts(path, name)
    if type(packager).package is Packager.package:
        return []  # it takes nothing along
    return [Foreign(packager, path, name)]


def _check(key: str) -> None:
    if key in ("", ".", "..") or "/" in key or "\0" in key:
        raise ConfigError(
            f"{key!r} cannot be the name of a sub-packager: it becomes that of a directory. Use "
            "one without slashes."
        )


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, {"Context": "invoke.context"})
