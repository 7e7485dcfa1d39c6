"""Write down where an experiment comes from, without keeping it waiting."""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._credentials import is_reference, secret_fields
from nemo_run._experiments.provenance.record import (
    PATCH,
    ArchiveRecord,
    GitState,
    Provenance,
    write_provenance,
)
from nemo_run._files import read_whole, write_whole
from nemo_run._home import get_nemorun_home, working_directory
from nemo_run._secrets.masking import masked_arguments, secret_values
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import RecordError
from nemo_run.package_info import __version__
from nemo_run.run.job import Job, JobGroup

if TYPE_CHECKING:
    from nemo_run._experiments.rerun import RecordedCode

log = logging.getLogger(__name__)

_SUFFIX = ".tar.gz"


class Recorder:
    """Records the provenance of one experiment: git is asked at once, and heard when it is done.

    1. `record` writes what is known by then, so there is a record before the first submission.
    2. What git says is added as soon as it has said it.
    """

    def __init__(self, directory: Path, code: RecordedCode | None = None) -> None:
        """Begin; ``code`` is what is run instead of the code of today."""
        self._directory = directory
        self._code = code
        self._writing = threading.Lock()
        self._facts: Provenance | None = None
        self._git: GitState | None = None
        self._listener: threading.Thread | None = None
        root = repository_around(working_directory())
        if code is not None:
            self._take_over(code)
        elif root is not None:
            self._git = GitState(root=str(root), note="the launcher ended before git answered")
            # Even starting a process can take many milliseconds on a busy machine.
            self._listener = threading.Thread(target=self._ask, args=(root,), daemon=True)
            self._listener.start()

    def _take_over(self, code: RecordedCode) -> None:
        self._git = code.provenance.git
        patch = read_whole(code.directory / PATCH)
        if patch is not None:
            write_whole(self._directory / PATCH, patch, sync=False)

    def _ask(self, root: Path) -> None:
        # Not needed outside of a repository, and here nothing waits for it.
        from nemo_run._experiments.provenance.git_state import git_state

        answer = git_state(root, self._directory)
        with self._writing:
            self._git = answer
            try:
                self._write()
            except RecordError as err:  # another process may have deleted the experiment since
                log.debug("%s", err)

    def record(self, jobs: Sequence[Job | JobGroup]) -> None:
        """Write the record: with what git says where jobs leave this machine, else at once.

        Raises:
            RecordError: it cannot be written.
        """
        facts = _facts(jobs)
        # Submitting elsewhere takes longer than git, and goes on when we are killed.
        if not all(job.executor.CAPABILITIES.local_paths for job in jobs):
            self.finish()
        with self._writing:
            self._facts = facts
            self._write()

    def finish(self) -> None:
        """Wait until git has answered, for which its time is limited, and that is written down."""
        if self._listener is not None:
            self._listener.join()

    def _write(self) -> None:
        if self._facts is not None:
            origin = self._code.origin if self._code else ""
            facts = replace(self._facts, git=self._git, code_from=origin)
            write_provenance(self._directory, facts)


def repository_around(directory: Path) -> Path | None:
    """Return the top of the work tree that ``directory`` is in, or None; starts no process."""
    for parent in (directory, *directory.parents):
        # A file in worktrees and submodules.
        if (parent / ".git").exists():
            return parent
    return None


def _facts(jobs: Sequence[Job | JobGroup]) -> Provenance:
    executors = [executor for job in jobs for executor in job.executors_in_order]
    return Provenance(
        recorded_at=time.time(),
        nemo_run=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        executable=sys.executable,
        host=os.uname().nodename,
        user=_user(),
        argv=masked_arguments(sys.argv, _secrets(executors)),
        cwd=str(working_directory()),
        packages=installed_packages(sys.path),
        archives=_archives(jobs),
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container that runs under a number
        return str(os.getuid())


def _secrets(executors: Iterable[Executor]) -> set[str]:
    found = secret_values(os.environ)
    for executor in executors:
        found |= secret_values(executor.env_vars)
        for name in secret_fields(executor):
            value = getattr(executor, name)
            if isinstance(value, str) and not is_reference(value):
                found.add(value)
    return found


def installed_packages(path: Sequence[str]) -> dict[str, str]:
    """Return the versions of what can be imported from ``path``, by the names of directories.

    Reading the metadata itself would take a hundred times as long.
    """
    found: dict[str, str] = {}
    for place in path:
        with suppress(OSError), os.scandir(place or ".") as entries:
            for entry in entries:
                stem, dot, kind = entry.name.rpartition(".")
                if dot and kind == "dist-info":
                    name, _, version = stem.rpartition("-")
                    found.setdefault(name, version)
    return dict(sorted(found.items()))


def _archives(jobs: Sequence[Job | JobGroup]) -> dict[str, ArchiveRecord]:
    found: dict[str, ArchiveRecord] = {}
    hashes: dict[tuple[int, int], str] | None = None
    for job in jobs:
        path = Path(job.executor.job_dir) / f"{job.id}{_SUFFIX}"
        if path.is_file():
            hashes = _kept_hashes() if hashes is None else hashes
            seen = path.stat()
            file = (seen.st_dev, seen.st_ino)
            if file not in hashes:
                hashes[file] = _hash_of(path)
            found[job.id] = ArchiveRecord(sha256=hashes[file], size_bytes=seen.st_size)
    return found


def _kept_hashes() -> dict[tuple[int, int], str]:
    """Return the hashes of archives that are kept: a job's is usually another name of one."""
    store = Path(get_nemorun_home()) / "archives"
    with suppress(OSError), os.scandir(store) as entries:
        device = store.stat().st_dev
        return {
            (device, entry.inode()): entry.name.removesuffix(_SUFFIX)
            for entry in entries
            if entry.name.endswith(_SUFFIX)
        }
    return {}


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
