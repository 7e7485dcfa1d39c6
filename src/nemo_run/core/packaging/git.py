"""The packager that takes along what is committed."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemo_run import _later
from nemo_run.core.packaging import _disk, _tar
from nemo_run.core.packaging._archiving import ArchivePackager, TarFile, clean_subpath
from nemo_run.core.packaging._disk import DiskFiles
from nemo_run.core.packaging._git import Change, Repository
from nemo_run.core.packaging._gittree import (
    GitTree,
    changes_of,
    file_by_file,
    is_submodule,
    with_submodules,
)
from nemo_run.core.packaging._members import Part, listed, merged
from nemo_run.exceptions import PackagingError, UncommittedChangesError

__all__ = ["GitArchivePackager"]

log = logging.getLogger(__name__)

_FIELDS = "include_pattern and include_pattern_relative_path"

# What has been said: the jobs of an experiment are packaged one after the other.
_said: set[str] = set()


@dataclass(kw_only=True)
class GitArchivePackager(ArchivePackager):
    """Takes along what a commit holds, and files on disk that patterns name.

    What is changed and not committed stays behind, which a warning says once, file by file. To
    take that along, use `SnapshotPackager`.

    Attributes:
        basepath: a directory of the repository, instead of the current one.
        subpath: take only this directory, as the root of the archive.
        ref: the commit: a branch, a tag, a hash.
        include_submodules: also those within submodules, at the commits that are recorded.
        include_pattern: further files, from disk, as patterns of a shell relative to the top of
            the repository. Directories are taken whole.
        include_pattern_relative_path: for each pattern, what the names of its files are relative
            to; the top of the repository if empty.
        check_uncommitted_changes: refuse to go on if a tracked file is changed.
        check_untracked_files: refuse to go on if there are new files that are not ignored.
    """

    basepath: str = ""
    subpath: str = ""
    ref: str = "HEAD"
    include_submodules: bool = True
    include_pattern: str | list[str] = ""
    include_pattern_relative_path: str | list[str] = ""
    check_uncommitted_changes: bool = False
    check_untracked_files: bool = False

    def _parts(self, path: Path, name: str) -> Sequence[Part]:
        patterns = _disk.pairs(
            self.include_pattern, self.include_pattern_relative_path, fields=_FIELDS
        )
        subpath = clean_subpath(self.subpath)
        repository = Repository.around(Path(self.basepath).expanduser() if self.basepath else path)
        changes = changes_of(repository)
        self._refuse(repository, changes)
        commit = repository.commit(self.ref)
        if subpath and not repository.is_directory(commit, subpath):
            raise PackagingError(
                f"subpath={self.subpath!r} is not a directory of {self.ref!r} in "
                f"{str(repository.top)!r}. Commit it, or correct the path."
            )
        parts: list[Part]
        if self.include_submodules:
            parts, absent = with_submodules(repository, commit, subpath)
            _say_what_is_absent(repository, absent)
            changes = list(file_by_file(repository, changes))
        else:
            parts = [GitTree(repository, commit, subpath)]
            changes = [change for change in changes if not is_submodule(repository, change)]
        taken: set[str] = set()
        for pattern, relative_to in patterns:
            found = _disk.found_by(pattern, relative_to, start=repository.top)
            taken.update(os.path.relpath(file, repository.top) for file in found.values())
            parts.append(DiskFiles(found))
        _say_what_stays(repository, changes, subpath, taken)
        return parts

    def _refuse(self, repository: Repository, changes: Sequence[Change]) -> None:
        changed = [change.path for change in changes if not change.untracked]
        if self.check_uncommitted_changes and changed:
            raise UncommittedChangesError(
                f"There are uncommitted changes in {str(repository.top)!r}: {listed(changed)}. "
                "Commit them, or set check_uncommitted_changes=False."
            )
        untracked = [change.path for change in changes if change.untracked]
        if self.check_untracked_files and untracked:
            raise UncommittedChangesError(
                f"There are untracked files in {str(repository.top)!r}: {listed(untracked)}. "
                "Add or ignore them, or set check_untracked_files=False."
            )

    def _concatenate_tar_files(
        self, ctx: Any, output_file: str, files_to_concatenate: list[str]
    ) -> None:
        """Merge tar files into one that is not compressed, and delete them. Later ones win.

        Not used here. Kept for subclasses; ``ctx`` has no effect.
        """
        if not files_to_concatenate:
            raise ValueError("There are no files to concatenate.")
        inputs = [Path(file) for file in files_to_concatenate]
        members = merged([TarFile(file) for file in inputs])
        beside = Path(f"{output_file}.{os.urandom(8).hex()}.tmp")
        try:
            with beside.open("xb") as output:
                dotted = (replace(member, name=f"./{member.name}") for member in members)
                output.writelines(_tar.tar_pieces(dotted))
            for file in inputs:
                file.unlink()
            beside.replace(output_file)
        finally:
            beside.unlink(missing_ok=True)


def _say_what_stays(
    repository: Repository, changes: Sequence[Change], subpath: str, taken: Collection[str]
) -> None:
    prefix = f"{subpath}/" if subpath else ""
    left = [
        f"{change.path} (new)" if change.untracked else change.path
        for change in changes
        if change.path.startswith(prefix) and change.path not in taken
    ]
    if left:
        _say_once(
            f"Not in the archive, because not committed in {str(repository.top)!r}: "
            f"{listed(left)}. Commit, or use SnapshotPackager to take along what is on disk."
        )


def _say_what_is_absent(repository: Repository, submodules: Sequence[str]) -> None:
    if submodules:
        _say_once(
            f"Not in the archive, because not checked out in {str(repository.top)!r}: "
            f"submodules {listed(submodules)}. Run `git submodule update --init --recursive`."
        )


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        log.warning("%s", message)


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, {"Context": "invoke.context"})
