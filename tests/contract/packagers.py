"""The packagers that the contract is tried with, each set up to take along ``<top>/src``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nemo_run as run


@dataclass(frozen=True)
class Case:
    """A packager, and what it promises about files that are not committed."""

    make: Callable[[Path], run.Packager]
    from_disk: bool
    below: str = ""
    mixed: bool = False


def _pattern(top: Path) -> run.PatternPackager:
    return run.PatternPackager(include_pattern=str(top / "src"), relative_path=str(top / "src"))


def _git_with_pattern(top: Path) -> run.GitArchivePackager:
    return run.GitArchivePackager(
        basepath=str(top),
        subpath="src",
        include_pattern=["src"],
        include_pattern_relative_path=["src"],
    )


def _git(top: Path) -> run.GitArchivePackager:
    return run.GitArchivePackager(basepath=str(top), subpath="src")


def _snapshot(top: Path) -> run.SnapshotPackager:
    return run.SnapshotPackager(basepath=str(top), subpath="src")


CASES = {
    "git": Case(_git, from_disk=False),
    "git and pattern": Case(_git_with_pattern, from_disk=True, mixed=True),
    "pattern": Case(_pattern, from_disk=True),
    "snapshot": Case(_snapshot, from_disk=True),
    "hybrid": Case(
        lambda top: run.HybridPackager(sub_packagers={"one": _git(top), "none": run.Packager()}),
        from_disk=False,
        below="one",
    ),
    "hybrid at the root": Case(
        lambda top: run.HybridPackager(
            sub_packagers={"one": _git(top), "two": _pattern(top)}, extract_at_root=True
        ),
        from_disk=True,
        mixed=True,
    ),
}
