"""Get the code of a job ready to travel: what executors use of packaging."""

from __future__ import annotations

from pathlib import Path

from nemo_run._home import working_directory
from nemo_run.core.packaging._archiving import collect
from nemo_run.core.packaging._delivery import FarSide, deliver, upload
from nemo_run.core.packaging._disk import DiskFiles, everything_below
from nemo_run.core.packaging._extract import extract
from nemo_run.core.packaging._git import GitError, Repository
from nemo_run.core.packaging._store import StagedCode, find, write
from nemo_run.core.packaging.base import Packager
from nemo_run.core.packaging.git import GitArchivePackager
from nemo_run.exceptions import ConfigError

__all__ = [
    "FarSide",
    "StagedCode",
    "check_assigned",
    "deliver",
    "extract",
    "find",
    "pack_directory",
    "stage",
    "upload",
]


def stage(packager: Packager, job_dir: str, job_name: str) -> StagedCode | None:
    """Collect the code into ``<job_dir>/<job_name>.tar.gz``; None if nothing has to travel.

    The archive is kept in the store too, from where `find` gets it by its hash.

    Raises:
        PackagingError: something could not be collected.
        ConfigError: a setting of the packager is wrong, or there is no job to collect for.
    """
    check_assigned(job_dir)
    return collect(packager, base_directory(packager), job_dir, job_name)


def check_assigned(job_dir: str) -> None:
    """Refuse to collect code for no job: it would go into the user's directory."""
    if not job_dir:
        raise ConfigError("This executor belongs to no job yet. Call assign(...) first.")


def base_directory(packager: Packager) -> Path:
    """Return the directory a packager starts from: the current one, or for git the top of it."""
    here = working_directory()
    if not isinstance(packager, GitArchivePackager):
        return here
    try:
        return Repository.around(here).top
    except GitError:
        return here  # its basepath may name another place


def pack_directory(directory: Path, archive: Path) -> StagedCode:
    """Pack everything in a directory, empty directories too, into the file ``archive``.

    Equal directories make equal bytes. What only its owner can read stays that way. ``archive``
    is replaced when the new one is complete, and is not packed itself if it is in there.
    """
    skip = {str(archive)}
    beside = archive.with_name(f".{archive.name}.packing")
    paths = {
        path.removeprefix(f"{directory}/"): path
        for path in everything_below(str(directory), skip)
        if path != str(directory)
    }
    beside.unlink(missing_ok=True)
    try:
        staged = write([DiskFiles(paths, private=True)], beside)
        beside.replace(archive)
    finally:
        beside.unlink(missing_ok=True)
    return StagedCode(archive, staged.sha256, staged.size_bytes)
