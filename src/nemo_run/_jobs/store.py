"""The records of jobs on disk: one small JSON file each, under ``<home>/jobs``.

Beside it is what was last seen of a job that goes on, in a file of the same form ending in
``.seen``: see :meth:`JobStore.note`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nemo_run._files import make_private_directory, read_whole, swap_whole, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import FORMAT, JobRecord, advance, format_of
from nemo_run.exceptions import (
    ConfigError,
    JobNotFoundError,
    RecordError,
    RecordUnavailableError,
)

log = logging.getLogger(__name__)

_SCHEDULER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_UNSAFE_IN_FILE_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_START_LENGTH = 60


class JobStore:
    """The records under a home directory, by default the one in use when a method is called.

    1. A reader sees a record as it was before or after a write, never a part of one.
    2. Writers of different jobs never wait for each other and never lose each other's records.
    3. It takes no locks, so it works on a home directory shared by several machines.
    4. Only the owner can read what it writes.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home

    def find(self, app_id: str, scheduler: str) -> JobRecord | None:
        """Return the record of a job, or None if there is none.

        Raises:
            RecordError: there is one, but it cannot be read.
        """
        path = self.path(app_id, scheduler)
        data = _read(path)
        if data is None:
            return None
        return _as_last_seen(_of_job(_parse(data, path), app_id, scheduler, path), path)

    def get(self, app_id: str, scheduler: str) -> JobRecord:
        """Return the record of a job.

        Raises:
            JobNotFoundError: there is none.
            RecordError: there is one, but it cannot be read.
        """
        record = self.find(app_id, scheduler)
        if record is None:
            raise JobNotFoundError(
                f"No {scheduler} job {app_id!r} is recorded in {self._directory(scheduler)}. "
                "Check the id, and that NEMORUN_HOME is what it was when the job was submitted.",
                backend=scheduler,
                operation="find",
            )
        return record

    def put(self, record: JobRecord, *, sync: bool = True) -> JobRecord:
        """Remember ``record`` and return what is remembered now: see :func:`advance`.

        Without ``sync`` it may be lost if this machine loses power, for jobs that end with it
        anyway. A damaged record is replaced; one that a later release wrote is not. Of two
        processes that write about the same job in the same instant, the later one may not have
        seen the other's news; asking the backend again mends that.

        Raises:
            RecordError: it could not be written, or a later release wrote the one that is there.
        """
        path = self.path(record.app_id, record.scheduler)
        try:
            make_private_directory(path.parent)
            while True:
                before = _read(path)
                old = None if before is None else self._readable(before, record, path)
                stored = record if old is None else advance(old, record)
                if stored == old or swap_whole(path, before, _dump(stored), sync=sync):
                    break
            if stored.is_terminal:
                _seen_beside(path).unlink(missing_ok=True)
        except OSError as err:
            raise _not_recorded(record, path, err) from err
        return stored

    def note(self, record: JobRecord) -> None:
        """Remember what was last seen of a job that goes on; cheap, for it comes often.

        That may be lost if this machine loses power. It has a file of its own, so that what
        :meth:`put` wrote cannot be lost with it. A job that is not recorded yet is put.

        Raises:
            RecordError: it could not be written.
        """
        path = self.path(record.app_id, record.scheduler)
        if not path.exists():
            self.put(record)
            return
        try:
            write_whole(_seen_beside(path), _dump(record), sync=False)
        except OSError as err:
            raise _not_recorded(record, path, err) from err

    def delete(self, app_id: str, scheduler: str) -> None:
        """Forget a job. Forgetting one that is not recorded is fine."""
        path = self.path(app_id, scheduler)
        path.unlink(missing_ok=True)
        _seen_beside(path).unlink(missing_ok=True)

    def list(self, scheduler: str) -> Iterator[JobRecord]:
        """Yield the records of a scheduler's jobs, the latest submitted first.

        A record that cannot be read is left out, with a warning that names its file.
        """
        records = []
        for path in _record_files(self._directory(scheduler)):
            try:
                data = _read(path)
                if data is not None:
                    records.append(_as_last_seen(_parse(data, path), path))
            except RecordError as err:
                log.warning("left out a record: %s", err)
        records.sort(key=lambda record: (record.submitted_at, record.app_id), reverse=True)
        yield from records

    def schedulers(self) -> Sequence[str]:
        """Return the names of the schedulers that have records here."""
        home = Path(get_nemorun_home()) if self._home is None else self._home
        try:
            names = sorted(path.name for path in (home / "jobs").iterdir() if path.is_dir())
        except OSError:
            return []
        return [name for name in names if _SCHEDULER_NAME.fullmatch(name)]

    def path(self, app_id: str, scheduler: str) -> Path:
        """Return the file a job is recorded in, whether or not it is there."""
        start = _UNSAFE_IN_FILE_NAME.sub("_", app_id[:_START_LENGTH]).lstrip(".-") or "_"
        # App ids are arbitrary text, and some file systems ignore case: only the hash tells apart.
        digest = hashlib.sha256(app_id.encode("utf-8", "surrogatepass")).hexdigest()[:20]
        return self._directory(scheduler) / f"{start}-{digest}.json"

    def _directory(self, scheduler: str) -> Path:
        if not _SCHEDULER_NAME.fullmatch(scheduler):
            raise ConfigError(
                f"{scheduler!r} is not the name of a scheduler: names are made of letters, digits, "
                "'_', '-' and '.', such as 'local_persistent'."
            )
        home = Path(get_nemorun_home()) if self._home is None else self._home
        return home / "jobs" / scheduler

    def _readable(self, data: bytes, record: JobRecord, path: Path) -> JobRecord | None:
        try:
            return _of_job(_parse(data, path), record.app_id, record.scheduler, path)
        except _NewerFormatError:
            raise
        except RecordError as err:
            # What is known now is worth more than an unreadable file.
            log.warning("replaced a record: %s", err)
            return None


class _NewerFormatError(RecordError):
    """A record of a later release, which must not be overwritten."""


def _seen_beside(path: Path) -> Path:
    """Return the file for what was last seen of a job that goes on, beside its record."""
    return path.with_suffix(".seen")


def _as_last_seen(record: JobRecord, path: Path) -> JobRecord:
    if record.is_terminal:
        return record
    beside = _seen_beside(path)
    try:
        data = _read(beside)
        seen = None if data is None else _parse(data, beside)
    except RecordError as err:
        log.debug("%s", err)
        return record
    # Numbers of jobs come back when a cluster is set up anew; tags do not.
    if seen is None or seen.tag != record.tag or seen.last_seen_at < record.last_seen_at:
        return record
    return advance(record, seen)


def _not_recorded(record: JobRecord, path: Path, err: OSError) -> RecordUnavailableError:
    return RecordUnavailableError(
        f"Could not record {record.scheduler} job {record.app_id!r}: {err}. "
        f"Make {path.parent} a directory you can write to, with space left.",
        path=path,
    )


def _record_files(directory: Path) -> Iterator[Path]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    yield Path(entry.path)
    except FileNotFoundError:
        return


def _read(path: str | os.PathLike[str]) -> bytes | None:
    try:
        return read_whole(path)
    except OSError as err:
        raise RecordUnavailableError(
            f"Could not read the job record {path}: {err.strerror}. Make it a file you can read.",
            path=Path(path),
        ) from err


def _parse(data: bytes, path: str | os.PathLike[str]) -> JobRecord:
    try:
        record = _read_json(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as err:
        raise RecordError(
            f"Could not read the job record {path}: it is damaged ({type(err).__name__}: {err}). "
            "Delete the file to forget the job.",
            path=Path(path),
        ) from err
    if isinstance(record, JobRecord):
        return record
    raise _NewerFormatError(
        f"Could not read the job record {path}: a later release of nemo_run wrote it, in format "
        f"{record}, and this one knows up to {FORMAT[0]}. Upgrade nemo_run.",
        path=Path(path),
    )


# While a job runs its record is read far more often than it changes.
@functools.lru_cache(maxsize=2048)
def _read_json(data: bytes) -> JobRecord | str:
    """Return a record, or the format of one that a later release wrote."""
    values = json.loads(data)
    if format_of(values)[0] <= FORMAT[0]:
        return JobRecord.from_json(values)
    return str(values["format"])


def _of_job(record: JobRecord, app_id: str, scheduler: str, path: Path) -> JobRecord:
    if (record.app_id, record.scheduler) != (app_id, scheduler):
        raise RecordError(
            f"The job record {path} should be about {app_id!r}, but is about {record.app_id!r} of "
            f"{record.scheduler}. Delete the file if it was copied there.",
            path=path,
        )
    return record


def _dump(record: JobRecord) -> bytes:
    return (json.dumps(record.to_json(), indent=2) + "\n").encode("ascii")
