"""What is known of where an experiment came from: the code, the machine, the person, the call.

It is kept in two files of the experiment's directory: ``_PROVENANCE`` (JSON) and, where there were
uncommitted changes, ``_CHANGES.patch``, which `git apply` puts on top of the commit.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nemo_run._files import read_whole, write_whole
from nemo_run.exceptions import RecordError

log = logging.getLogger(__name__)

T = TypeVar("T")

FILE, PATCH = "_PROVENANCE", "_CHANGES.patch"

_FORMAT = 1
_SHORT = 7


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The repository that an experiment was launched in, as it was then.

    Attributes:
        root: its top directory.
        commit: empty where there is none yet, or where it is not known.
        branch: empty where no branch was checked out.
        remote: where it comes from, without credentials.
        changed: tracked files that are not as committed.
        untracked: files and directories that git neither tracks nor ignores.
        patch: the file with the changes, in the experiment's directory; empty where there is none.
        note: why something is not known.
    """

    root: str
    commit: str = ""
    branch: str = ""
    remote: str = ""
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    patch: str = ""
    note: str = ""

    def __str__(self) -> str:
        """Say it in a line: ``1a2b3c4 on main, 2 files changed``."""
        if not self.commit and self.note:
            return f"not known: {self.note}"
        where = f" on {self.branch}" if self.branch else ", detached" if self.commit else ""
        parts = [(self.commit[:_SHORT] or "no commit yet") + where]
        if self.changed:
            parts.append(f"{len(self.changed)} file{'s' * (len(self.changed) > 1)} changed")
        if self.untracked:
            parts.append(f"{len(self.untracked)} untracked")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class ArchiveRecord:
    """The archive of code that travelled with a job."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where an experiment came from; secrets are masked.

    Attributes:
        recorded_at: seconds since the epoch.
        nemo_run, python: versions.
        executable: the interpreter that launched.
        argv, cwd: how and where it was called.
        packages: versions of the distributions that it could import, by name.
        archives: the code that travelled, by job id; jobs that took none along are not in it.
        git: None outside of a repository.
        code_from: the experiment whose code ran, where it was not collected for this one.
    """

    recorded_at: float
    nemo_run: str
    python: str
    executable: str
    host: str
    user: str
    argv: tuple[str, ...]
    cwd: str
    packages: Mapping[str, str] = field(default_factory=dict, repr=False)
    archives: Mapping[str, ArchiveRecord] = field(default_factory=dict)
    git: GitState | None = None
    code_from: str = ""

    @property
    def code(self) -> str:
        """The state of the code in a line; empty where it is not in a repository."""
        parts = [str(self.git) if self.git else ""]
        parts.append(f"as recorded by {self.code_from}" if self.code_from else "")
        return ", ".join(filter(None, parts))


def write_provenance(directory: Path, provenance: Provenance) -> None:
    """Replace what is recorded in an experiment's directory; only its owner can read it.

    Raises:
        RecordError: it cannot be written.
    """
    path = directory / FILE
    text = json.dumps({"format": _FORMAT, **dataclasses.asdict(provenance)}, indent=1)
    try:
        write_whole(path, text.encode("ascii"), sync=False)
    except OSError as err:
        raise RecordError(f"Cannot write {str(path)!r}: {err.strerror}.", path=path) from err


def read_provenance(directory: Path) -> Provenance | None:
    """Return what is recorded, or None where nothing is: 0.12 did not, and before it was run.

    Raises:
        RecordError: the file is damaged, or of a later release.
    """
    path = directory / FILE
    try:
        data = read_whole(path)
        if data is None:
            return None
        stored = json.loads(data)
        if stored["format"] > _FORMAT:
            raise RecordError(
                f"Cannot read {str(path)!r}: a later release wrote it. Upgrade nemo_run.", path=path
            )
        return _from_json(stored)
    except OSError as err:
        raise RecordError(f"Cannot read {str(path)!r}: {err.strerror}.", path=path) from err
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise RecordError(f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path) from err


def known_provenance(directory: Path) -> Provenance | None:
    """Return what is recorded, for people to see: None also where it cannot be read."""
    try:
        return read_provenance(directory)
    except RecordError as err:
        log.warning("%s", err)
        return None


def _from_json(stored: Mapping[str, Any]) -> Provenance:
    git = stored["git"]
    archives = {job: _known(ArchiveRecord, kept) for job, kept in stored["archives"].items()}
    return _known(
        Provenance,
        {
            **stored,
            "argv": tuple(stored["argv"]),
            "archives": archives,
            "git": None
            if git is None
            else _known(
                GitState,
                {
                    **git,
                    "changed": tuple(git["changed"]),
                    "untracked": tuple(git["untracked"]),
                },
            ),
        },
    )


def _known(kind: type[T], values: Mapping[str, Any]) -> T:
    """Make a ``kind``, leaving out what a later minor release has added."""
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]  # only given dataclasses
    return kind(**{name: value for name, value in values.items() if name in names})
