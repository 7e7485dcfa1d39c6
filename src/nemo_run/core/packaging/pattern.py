"""The packager that takes along files that patterns name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_run import _later
from nemo_run._home import working_directory
from nemo_run.core.packaging import _disk
from nemo_run.core.packaging._archiving import ArchivePackager
from nemo_run.core.packaging._disk import DiskFiles
from nemo_run.core.packaging._members import Part

__all__ = ["PatternPackager"]


@dataclass(kw_only=True)
class PatternPackager(ArchivePackager):
    """Takes along files on disk, found by patterns.

    Attributes:
        include_pattern: patterns of a shell, relative to the current directory. Directories are
            taken whole. A pattern that matches nothing is an error.
        relative_path: for each pattern, what the names of its files are relative to.
    """

    include_pattern: str | list[str]
    relative_path: str | list[str]

    def _parts(self, path: Path, name: str) -> Sequence[Part]:
        patterns = _disk.pairs(
            self.include_pattern, self.relative_path, fields="include_pattern and relative_path"
        )
        return [
            DiskFiles(_disk.found_by(pattern, relative_to, start=working_directory()))
            for pattern, relative_to in patterns
        ]


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, {"Context": "invoke.context"})
