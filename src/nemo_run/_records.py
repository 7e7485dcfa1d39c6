"""What we remember about a submitted job: one small JSON file each, under ``<home>/jobs``.

Beside it is what was last seen of a job that goes on, in a file of the same form ending in
``.seen``: see :meth:`JobStore.note`.

Times are seconds since the epoch in UTC, as ``time.time()`` gives them. States are names of
``torchx.specs.AppState``, so that reading a record does not load torchx.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nemo_run._files import make_private_directory, read_whole, swap_whole, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run.exceptions import ConfigError, JobNotFoundError, RecordError

log = logging.getLogger(__name__)

T = TypeVar("T")

FORMAT = (1, 0)
"""Major and minor: a minor step only adds keys, a major one is not for older releases to read."""

TERMINAL_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})

# How far a job has come. Between the middle four it moves both ways: a requeued or preempted job
# goes from RUNNING back to PENDING, and one the cluster spoke unclearly about leaves UNKNOWN again.
_STAGES = {
    "UNSUBMITTED": 0,
    "SUBMITTED": 1,
    "PENDING": 1,
    "RUNNING": 1,
    "UNKNOWN": 1,
    "SUCCEEDED": 2,
    "FAILED": 2,
    "CANCELLED": 2,
}

_SCHEDULER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_UNSAFE_IN_FILE_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_START_LENGTH = 60


def is_terminal(state: str) -> bool:
    """Tell whether a job in ``state`` has ended for good."""
    return state in TERMINAL_STATES


def new_tag() -> str:
    """Make a tag no other job has: letters, digits and a dash, so every backend takes it."""
    return f"nr-{os.urandom(10).hex()}"


@dataclass(frozen=True, kw_only=True)
class JobRef:
    """How to find a job again at its backend. Written to disk as it is: never put a secret here.

    Attributes:
        native_id: what the backend calls the job.
        where: what else is needed to ask for it, such as a server and the reference to a secret.
    """

    native_id: str
    where: Mapping[str, str] = field(default_factory=dict, hash=False)


class RoleSize(NamedTuple):
    """A role of a job and how many replicas of it were asked for."""

    name: str
    replicas: int


class JobPart(NamedTuple):
    """A part of a job with a state of its own: an element of an array, or a component.

    Attributes:
        number: what the backend counts it by.
        host: where it runs, or ran, as far as the backend says.
    """

    number: int
    state: str
    exit_code: int | None = None
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """What is known about one job.

    Attributes:
        ref: None as long as the job is not known to have been submitted.
        tag: put on the remote job, so that it can be found there if its launcher died before the
            native id was written down.
        exit_code: of the job's process, or None where it is not known.
        submitted_at: when we set out to submit it.
        last_seen_at: when the backend last answered for it.
        ended_at: None while the job has not ended, or where nobody knows when it did.
        parts: of a job that the backend runs in several, what is known of each.
        extra: keys a later minor format added; kept, so that writing does not lose them.
    """

    app_id: str
    scheduler: str
    experiment_id: str = ""
    roles: tuple[RoleSize, ...] = ()
    ref: JobRef | None = None
    tag: str = field(default_factory=new_tag)
    state: str = "UNSUBMITTED"
    message: str = ""
    exit_code: int | None = None
    ui_url: str = ""
    restarts: int = 0
    submitted_at: float
    last_seen_at: float
    started_at: float | None = None
    ended_at: float | None = None
    parts: tuple[JobPart, ...] = ()
    job_dir: str
    log_dir: str = ""
    format: tuple[int, int] = FORMAT
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        if self.state not in _STAGES:
            raise ValueError(f"{self.state!r} is not the name of an AppState")

    @property
    def is_terminal(self) -> bool:
        return is_terminal(self.state)

    def to_json(self) -> dict[str, Any]:
        ref = self.ref
        return {
            "format": "{}.{}".format(*self.format),
            "app_id": self.app_id,
            "scheduler": self.scheduler,
            "experiment_id": self.experiment_id,
            "roles": [role._asdict() for role in self.roles],
            "ref": None if ref is None else {"native_id": ref.native_id, "where": dict(ref.where)},
            "tag": self.tag,
            "state": self.state,
            "message": self.message,
            "exit_code": self.exit_code,
            "ui_url": self.ui_url,
            "restarts": self.restarts,
            "submitted_at": self.submitted_at,
            "last_seen_at": self.last_seen_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "job_dir": self.job_dir,
            "log_dir": self.log_dir,
            **({"parts": [part._asdict() for part in self.parts]} if self.parts else {}),
            **self.extra,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobRecord:
        """Read what :meth:`to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: ``data`` is not a record.
        """
        ref = data.get("ref")
        return cls(
            format=_parse_format(data["format"]),
            app_id=_text(data["app_id"]),
            scheduler=_text(data["scheduler"]),
            experiment_id=_text(data.get("experiment_id", "")),
            roles=tuple(
                RoleSize(_text(role["name"]), _integer(role["replicas"]))
                for role in data.get("roles", ())
            ),
            ref=None if ref is None else _parse_ref(ref),
            tag=_text(data["tag"]),
            state=_text(data["state"]),
            message=_text(data.get("message", "")),
            exit_code=_optional(_integer, data.get("exit_code")),
            ui_url=_text(data.get("ui_url", "")),
            restarts=_integer(data.get("restarts", 0)),
            submitted_at=_number(data["submitted_at"]),
            last_seen_at=_number(data["last_seen_at"]),
            started_at=_optional(_number, data.get("started_at")),
            ended_at=_optional(_number, data.get("ended_at")),
            job_dir=_text(data["job_dir"]),
            log_dir=_text(data.get("log_dir", "")),
            parts=tuple(map(_parse_part, data.get("parts", ()))),
            extra={key: value for key, value in data.items() if key not in _KEYS},
        )


def advance(old: JobRecord, new: JobRecord) -> JobRecord:
    """Return what to remember of a job recorded as ``old`` when ``new`` is heard of it.

    1. A job that has ended stays as it ended; hearing of the same end again only fills in what was
       not known before.
    2. A job that was submitted does not become unsubmitted, and its reference is never lost.
    3. Otherwise ``new`` is what counts.
    """
    if (old.app_id, old.scheduler) != (new.app_id, new.scheduler):
        raise ValueError(f"{new.app_id!r} is not the job {old.app_id!r} of {old.scheduler}")
    if old.is_terminal and new.state == old.state:
        return replace(
            old,
            ref=old.ref or new.ref,
            message=old.message or new.message,
            exit_code=new.exit_code if old.exit_code is None else old.exit_code,
            ui_url=old.ui_url or new.ui_url,
            parts=old.parts or new.parts,
            ended_at=new.ended_at if old.ended_at is None else old.ended_at,
        )
    if old.is_terminal or _STAGES[new.state] < _STAGES[old.state]:
        return old
    return replace(
        new,
        ref=new.ref or old.ref,
        format=max(old.format, new.format),
        extra={**old.extra, **new.extra},
    )


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
            # What is known now is worth more than a file nobody can read.
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


def _not_recorded(record: JobRecord, path: Path, err: OSError) -> RecordError:
    return RecordError(
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
        raise RecordError(
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
    if _parse_format(values["format"])[0] <= FORMAT[0]:
        return JobRecord.from_json(values)
    return _text(values["format"])


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


def _parse_format(value: Any) -> tuple[int, int]:
    major, minor = _text(value).split(".")
    return int(major), int(minor)


def _parse_part(data: Mapping[str, Any]) -> JobPart:
    return JobPart(
        number=_integer(data["number"]),
        state=_text(data["state"]),
        exit_code=_optional(_integer, data.get("exit_code")),
        host=_text(data.get("host", "")),
    )


def _parse_ref(data: Mapping[str, Any]) -> JobRef:
    where = {key: _text(value) for key, value in data.get("where", {}).items()}
    return JobRef(native_id=_text(data["native_id"]), where=where)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return value


def _optional(parse: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else parse(value)


_KEYS = frozenset(item.name for item in fields(JobRecord)) - {"extra"}
