"""The packager that takes along what you see: the work tree as it is on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_run._home import get_nemorun_home
from nemo_run.core.packaging._archiving import ArchivePackager, clean_subpath
from nemo_run.core.packaging._disk import DiskFiles, everything_below
from nemo_run.core.packaging._git import Repository
from nemo_run.core.packaging._members import Part
from nemo_run.exceptions import ConfigError, PackagingError

__all__ = ["SnapshotPackager"]

_SHOWN = 5
_MB = 1_000_000


@dataclass(kw_only=True)
class SnapshotPackager(ArchivePackager):
    """Takes along the work tree as it is: committed, changed and new files.

    In a git repository these are the files that are tracked or not ignored, at whatever they hold
    now, including those of submodules. Elsewhere it is everything in the directory.

    Attributes:
        basepath: a directory of the repository, instead of the current one.
        subpath: take only this directory, as the root of the archive.
        max_size_mb: refuse to take along more than this, before it is compressed.
    """

    basepath: str = ""
    subpath: str = ""
    max_size_mb: float = 500

    def _parts(self, path: Path, name: str) -> Sequence[Part]:
        start = Path(self.basepath).expanduser() if self.basepath else path
        in_git = any((parent / ".git").exists() for parent in (start, *start.absolute().parents))
        top = Repository.around(start).top if in_git else start.absolute()
        root = top / clean_subpath(self.subpath)
        if not root.is_dir():
            raise ConfigError(
                f"There is nothing to package: {str(root)!r} is not a directory. Correct "
                f"basepath={self.basepath!r} or subpath={self.subpath!r}."
            )
        listing = _tracked_or_new(top) if in_git else everything_below(str(top), {".git"})
        files = DiskFiles(dict(_named(listing, root, without=_ours(top))))
        self._check_size(files, root)
        return [files]

    def _check_size(self, files: DiskFiles, root: Path) -> None:
        sizes = files.sizes()
        total = sum(sizes.values())
        if total <= self.max_size_mb * _MB:
            return
        largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:_SHOWN]
        shown = ", ".join(f"{name!r} ({sizes[name] / _MB:.1f} MB)" for name in largest)
        raise PackagingError(
            f"The code in {str(root)!r} is too large to travel: {total / _MB:.0f} MB in "
            f"{len(sizes)} files, with max_size_mb={self.max_size_mb:g}. The largest are {shown}. "
            "Add what is not code to .gitignore, choose a subpath, or raise max_size_mb."
        )


def _tracked_or_new(top: Path) -> Iterator[str]:
    """Yield the paths of all files of a repository and of those within it."""
    for name in Repository(top).files():
        path = top / name
        if path.is_dir() and not path.is_symlink() and (path / ".git").exists():
            yield from _tracked_or_new(path)
        else:
            yield str(path)


def _named(paths: Iterator[str], root: Path, without: str | None) -> Iterator[tuple[str, str]]:
    prefix = f"{root}/"
    for path in paths:
        inside = path.startswith(prefix) and path != prefix
        if inside and not (without and f"{path}/".startswith(without)):
            yield path.removeprefix(prefix), path


def _ours(top: Path) -> str | None:
    """Return where our own files are, if that is inside the tree: they would grow by themselves."""
    home = os.path.realpath(get_nemorun_home())
    real = os.path.realpath(top)
    return f"{top}{home.removeprefix(real)}/" if home.startswith(f"{real}/") else None
