"""From a packager to an archive in the directory of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nemo_run.core.packaging import _sharing, _store
from nemo_run.core.packaging._members import Member, Part
from nemo_run.core.packaging._store import StagedCode
from nemo_run.core.packaging._tar import tar_members
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError


class ArchivePackager(Packager):
    """A packager that says which parts of a tree travel; all else is the same for all of them."""

    def _parts(self, path: Path, name: str) -> Sequence[Part]:
        """Return what travels, with ``path`` as the current directory. Later parts win."""
        raise NotImplementedError(f"{type(self).__name__} does not say what travels.")

    def package(self, path: Path, job_dir: str, name: str) -> str:
        """Return ``<job_dir>/<name>.tar.gz`` with the code as it is now.

        The archive is kept under ``<home>/archives`` too, where jobs with the same code share it.

        Raises:
            PackagingError: something could not be read.
            ConfigError: a setting is wrong.
        """
        kept = _store.keep(self._parts(path, name))
        # A subclass that called this may go on to change the archive.
        own = not is_ours(self)
        return str(_store.place(kept, _target(job_dir, name), own=own).archive)


@dataclass(frozen=True)
class TarFile:
    """The content of a tar file as a part."""

    path: Path

    def identity(self) -> str | None:
        return None

    def settled(self) -> bool:
        return False

    def members(self) -> Iterator[Member]:
        with self.path.open("rb") as file:
            yield from tar_members(file)


@dataclass(frozen=True)
class Foreign:
    """What a packager of the user's makes, as a part."""

    packager: Packager
    path: Path
    name: str

    def identity(self) -> str | None:
        return None

    def settled(self) -> bool:
        return False

    def members(self) -> Iterator[Member]:
        with TemporaryDirectory(prefix="nemo_run-") as directory:
            archive = self.packager.package(self.path, directory, self.name)
            if archive is not None:
                yield from TarFile(Path(archive)).members()


def collect(packager: Packager, path: Path, job_dir: str, name: str) -> StagedCode | None:
    """Return the archive of a packager in a job's directory, or None if it takes nothing along."""
    target = _target(job_dir, name)
    if isinstance(packager, ArchivePackager) and is_ours(packager):
        kept = _sharing.recall(packager, path)
        if kept is None:
            kept = _store.keep(packager._parts(path, name))
            _sharing.remember(packager, path, kept)
        return _store.place(kept, target)
    # An archive of an earlier tree would be taken for one of this tree.
    target.unlink(missing_ok=True)
    made = packager.package(path, job_dir, name)
    return None if made is None else _store.place(_store.adopt(Path(made)), target)


def is_ours(packager: Packager) -> bool:
    """Tell whether a packager packages the way all of ours do: a subclass may do otherwise."""
    return type(packager).package is ArchivePackager.package


def clean_subpath(subpath: str) -> str:
    """Return a relative path without needless components.

    Raises:
        ConfigError: it leads out of the directory that it is relative to.
    """
    clean = os.path.normpath(subpath or ".")
    if clean.startswith(("/", "../")) or clean == "..":
        raise ConfigError(
            f"subpath={subpath!r} has to be a directory below the top of the repository."
        )
    return "" if clean == "." else clean


def _target(job_dir: str, name: str) -> Path:
    return Path(job_dir) / f"{name}.tar.gz"
