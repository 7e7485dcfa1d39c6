"""What we remember about a submitted job; `store` keeps it on disk.

Times are seconds since the epoch in UTC, as ``time.time()`` gives them. States are names of
``torchx.specs.AppState``, so that reading a record does not load torchx.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

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


def is_terminal(state: str) -> bool:
    """Tell whether a job in ``state`` has ended for good."""
    return state in TERMINAL_STATES


TAG = "nemo_run/tag"
"""Key of ``AppDef.metadata``: what makes this submission unlike any other, chosen before it."""


def new_tag() -> str:
    """Make a tag no other job has: letters, digits and a dash, so every backend takes it."""
    return f"nr-{os.urandom(10).hex()}"


def mark_nonce(tag: str) -> str:
    """Return what is in the marks of a job with that tag, which its task does not see whole."""
    return hashlib.sha256(f"mark\0{tag}".encode()).hexdigest()[:16]


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


class JobAttempt(NamedTuple):
    """One of the tries of a job that is tried again when it fails.

    Attributes:
        number: from 1.
        replica: which process of the job it was, as ``role/number``.
        logs: files with its output, and at which byte of each that begins.
    """

    number: int
    replica: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    logs: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobAttempt:
        """Read what ``_asdict`` gave.

        Raises:
            KeyError, TypeError, ValueError: ``data`` is not an attempt.
        """
        return cls(
            number=_integer(data["number"]),
            replica=_text(data.get("replica", "")),
            exit_code=_optional(_integer, data.get("exit_code")),
            started_at=_optional(_number, data.get("started_at")),
            ended_at=_optional(_number, data.get("ended_at")),
            logs=tuple((_text(path), _integer(begin)) for path, begin in data.get("logs", ())),
        )


class JobUsage(NamedTuple):
    """What a job used, as far as its backend knows.

    Attributes:
        cpu_s: processor time of all its processes and attempts.
        peak_memory_bytes: the most that one of its processes had in memory at a time.
    """

    cpu_s: float | None = None
    peak_memory_bytes: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> JobUsage | None:
        """Read what ``_asdict`` gave; None for None.

        Raises:
            AttributeError, TypeError: ``data`` is something else.
        """
        if data is None:
            return None
        return cls(
            cpu_s=_optional(_number, data.get("cpu_s")),
            peak_memory_bytes=_optional(_integer, data.get("peak_memory_bytes")),
        )


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
        ended_at: None while the job has not ended, or where it is not known when it did.
        parts: of a job that the backend runs in several, what is known of each.
        attempts: of a job that is tried again, where the backend keeps them apart.
        usage: of resources; None where the backend does not say it.
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
    attempts: tuple[JobAttempt, ...] = ()
    usage: JobUsage | None = None
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
            **({"attempts": [a._asdict() for a in self.attempts]} if self.attempts else {}),
            **({"usage": self.usage._asdict()} if self.usage else {}),
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
            format=format_of(data),
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
            attempts=tuple(map(JobAttempt.from_json, data.get("attempts", ()))),
            usage=JobUsage.from_json(data.get("usage")),
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
            attempts=old.attempts or new.attempts,
            usage=old.usage or new.usage,
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


def format_of(data: Mapping[str, Any]) -> tuple[int, int]:
    """Return the format that a record was written in.

    Raises:
        KeyError, TypeError, ValueError: ``data`` is not a record.
    """
    major, minor = _text(data["format"]).split(".")
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
