"""Read the job indexes that release 0.12 left in the home directory. They are never written.

For local jobs 0.12 kept one JSON object, ``{app id: [state, app id, log directory, [role, ...]]}``,
which it copied in place: a crash could leave half of it, and a launcher that died left its jobs
PENDING or RUNNING forever, without a process id to look for. What we say about such a job is, in
this order:

1. what the ``SUCCESS`` file says that 0.12 wrote into the log directory when a job had ended,
   well or badly;
2. the state in the index, if it is a final one;
3. if there is a ``SUCCESS`` file without a final state, 0.12 closed the job while it was running:
   it was cancelled, unless every replica had ended with code 0 by then;
4. UNKNOWN, with the last state in the message. It is not a final state, since an orphan of a dead
   launcher may still run; there is no way to find out.

For jobs in a cloud it kept ``{app id: {...}}``, the app id being experiment, role and the cloud's
id of the job with ``___`` between them. Those can be asked about at the cloud.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_run._files import read_regular
from nemo_run._jobs.records import JobRecord, JobRef, RoleSize, is_terminal

log = logging.getLogger(__name__)

LOCAL_INDEX = ".local_jobs.json"

_LOCAL_SCHEDULER = "local_persistent"
_INDEX_KEY = "legacy_index"


def find_local_job(index: Path, app_id: str) -> JobRecord | None:
    """Return a job of the local index ``index``, or None if it has no usable entry for it."""
    entry = _local_entry(app_id, _read_index(index).get(app_id))
    return None if entry is None else _local_record(entry, index)


def local_jobs(index: Path) -> Iterator[JobRecord]:
    """Yield the jobs of the local index ``index``, the latest added first."""
    for app_id, value in reversed(_read_index(index).items()):
        entry = _local_entry(app_id, value)
        if entry is not None:
            yield _local_record(entry, index)


def find_cloud_job(index: Path, app_id: str, scheduler: str) -> JobRecord | None:
    """Return a job of the index ``index`` of a cloud's jobs, or None if it is not in there."""
    if cloud_entry(index, app_id) is None:
        return None
    rest, _, native_id = app_id.rpartition("___")
    experiment, _, role = rest.partition("___")
    written_at = index.stat().st_mtime
    return JobRecord(
        app_id=app_id,
        scheduler=scheduler,
        experiment_id=experiment,
        roles=(RoleSize(role, 1),),
        ref=JobRef(native_id=native_id),
        state="SUBMITTED",
        submitted_at=written_at,
        last_seen_at=written_at,
        job_dir="",
    )


def cloud_entry(index: Path, app_id: str) -> dict[str, Any] | None:
    """Return what the index ``index`` of a cloud's jobs says of a job, or None."""
    entry = _read_index(index).get(app_id)
    return entry if isinstance(entry, dict) else None


def is_legacy(ref: JobRef | None) -> bool:
    """Tell whether a job was started by 0.12, so that only this module can be asked."""
    return ref is not None and _INDEX_KEY in ref.where


@dataclass(frozen=True, kw_only=True)
class _LocalEntry:
    app_id: str
    state: str
    log_dir: Path
    roles: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    state: str
    message: str = ""
    exit_code: int | None = None
    ended_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Summary:
    """What is in a ``SUCCESS`` file."""

    state: str
    ended_at: float
    exit_codes: Mapping[str, tuple[int | None, ...]]

    @property
    def all_codes(self) -> tuple[int | None, ...]:
        return tuple(code for codes in self.exit_codes.values() for code in codes)

    @property
    def exit_code(self) -> int | None:
        """The first code that is not 0, else 0 if that is known of every replica."""
        codes = self.all_codes
        bad = next((code for code in codes if code), None)
        return bad if bad is not None else 0 if codes and None not in codes else None


def _read_index(index: Path) -> dict[str, Any]:
    try:
        text = read_regular(index).decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    except OSError as err:
        log.warning("the index of release 0.12 cannot be read, its jobs are left out: %s", err)
        return {}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = _whole_entries(text)
        log.warning("%s is damaged: %d of its jobs could be read", index, len(data))
    return data if isinstance(data, dict) else {}


def _whole_entries(text: str) -> dict[str, Any]:
    """Return the entries of a JSON object up to where it breaks off."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    position = _after("{", text, 0)
    try:
        while position is not None:
            key, end = decoder.raw_decode(text, position)
            colon = _after(":", text, end)
            if colon is None or not isinstance(key, str):
                break
            found[key], end = decoder.raw_decode(text, colon)
            position = _after(",", text, end)
    except (ValueError, RecursionError):
        log.debug("an index breaks off after %d entries", len(found))
    return found


def _after(mark: str, text: str, position: int) -> int | None:
    """Return where the next JSON value starts if ``mark`` is what comes before it."""
    match = re.compile(rf"\s*{re.escape(mark)}\s*").match(text, position)
    return match.end() if match else None


def _local_entry(app_id: str, value: Any) -> _LocalEntry | None:
    match value:
        case [str(state), str(), str(log_dir), [*roles]] if all(isinstance(r, str) for r in roles):
            return _LocalEntry(
                app_id=app_id, state=state, log_dir=Path(log_dir), roles=tuple(roles)
            )
    return None


def _local_record(entry: _LocalEntry, index: Path) -> JobRecord:
    summary = _read_summary(entry)
    outcome = _outcome(entry.state, summary)
    job_dir = _job_dir(entry.log_dir)
    submitted_at = _submitted_at(entry, index)
    digest = hashlib.sha256(entry.app_id.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    return JobRecord(
        app_id=entry.app_id,
        scheduler=_LOCAL_SCHEDULER,
        experiment_id=_experiment_id(job_dir),
        roles=tuple(RoleSize(role, _replicas(entry, role, summary)) for role in entry.roles),
        ref=JobRef(native_id=entry.app_id, where={_INDEX_KEY: str(index)}),
        # Made from the id, so that reading the index twice gives the same record.
        tag=f"nr-{digest}",
        state=outcome.state,
        message=outcome.message,
        exit_code=outcome.exit_code,
        ui_url=f"file://{entry.log_dir}",
        submitted_at=submitted_at,
        last_seen_at=outcome.ended_at or submitted_at,
        ended_at=outcome.ended_at,
        job_dir=str(job_dir),
        log_dir=str(entry.log_dir),
    )


def _outcome(state: str, summary: _Summary | None) -> _Outcome:
    if summary is None:
        if is_terminal(state):
            return _Outcome(state=state)
        return _Outcome(
            state="UNKNOWN",
            message=f"last known state {state}, written by an earlier release of nemo_run "
            "that did not see the job end",
        )
    if is_terminal(summary.state):
        final, message = summary.state, ""
    elif is_terminal(state):
        final, message = state, ""
    elif summary.exit_code == 0:
        final, message = "SUCCEEDED", ""
    else:
        final, message = "CANCELLED", f"closed while {summary.state} by an earlier release"
    return _Outcome(
        state=final, message=message, exit_code=summary.exit_code, ended_at=summary.ended_at
    )


def _read_summary(entry: _LocalEntry) -> _Summary | None:
    path = entry.log_dir / "SUCCESS"
    try:
        written_at = path.stat().st_mtime
        data = json.loads(read_regular(path))
        if data.get("app_id", entry.app_id) != entry.app_id:
            return None
        updated_at = data.get("last_updated")
        return _Summary(
            state=str(data["final_state"]),
            # 0.12 has -1 here for a job it never looked at.
            ended_at=updated_at
            if isinstance(updated_at, (int, float)) and updated_at > 0
            else written_at,
            exit_codes={
                role: tuple(_code(replica.get("exitcode")) for replica in replicas)
                for role, replicas in data.get("roles", {}).items()
            },
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        log.debug("%s: cannot be used: %s", path, err)
        return None


def _code(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _job_dir(log_dir: Path) -> Path:
    """Undo ``<job directory>/nemo_run/<app id>``."""
    return log_dir.parent.parent if log_dir.parent.name == "nemo_run" else log_dir


def _experiment_id(job_dir: Path) -> str:
    """Undo ``<home>/experiments/<title>/<id>/<job>``; a job outside of an experiment has none."""
    match job_dir.parts:
        case [*_, "experiments", _, experiment_id, _]:
            return experiment_id
    return ""


def _replicas(entry: _LocalEntry, role: str, summary: _Summary | None) -> int:
    if summary is not None and summary.exit_codes.get(role):
        return len(summary.exit_codes[role])
    try:
        names = [path.name for path in (entry.log_dir / role).iterdir()]
    except (OSError, ValueError):  # ValueError: a path no file system could hold
        return 1
    return sum(name.isdecimal() for name in names) or 1


def _submitted_at(entry: _LocalEntry, index: Path) -> float:
    """Take the time at which the replicas' log directories were made, or the nearest we have."""
    for path in (*(entry.log_dir / role for role in entry.roles), entry.log_dir, index):
        try:
            return path.stat().st_mtime
        except (OSError, ValueError):  # ValueError: a path no file system could hold
            continue
    return 0.0
