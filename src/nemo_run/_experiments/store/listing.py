"""What is known of many experiments, read quickly: no torchx, no configs, and nothing is asked.

States are the names of ``torchx.specs.AppState``, as in job records.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nemo_run._experiments.store import launcher
from nemo_run._files import read_regular, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.wording import told
from nemo_run.exceptions import NemoRunError, RecordError

log = logging.getLogger(__name__)

LABELS = "labels.json"
STATE = "_STATE"
_CONFIG, _TASKS, _PLAN = "_CONFIG", "_TASKS", "_PLAN"
_MAX_NESTING = 4
# As in _jobs.records, which takes longer to import than a thousand experiments to list.
_ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


class Labels(NamedTuple):
    """What a user wrote on an experiment."""

    tags: tuple[str, ...] = ()
    note: str = ""


NO_LABELS = Labels()


class JobSummary(NamedTuple):
    """What was last written down of a job."""

    state: str = "UNSUBMITTED"
    handles: tuple[str, ...] = ()
    exit_code: int | None = None
    message: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    lost: bool = False

    @property
    def ended(self) -> bool:
        return self.lost or self.state in _ENDED

    @property
    def scheduler(self) -> str:
        return self.handles[0].partition(":")[0] if self.handles else ""


class Entry(NamedTuple):
    """One experiment in the list of all.

    Attributes:
        created_at: from the id, which has it to the nanosecond; else from the directory.
        launcher_gone: jobs had not ended when this was read, and no process would start more.
    """

    id: str
    title: str
    path: str
    created_at: float
    jobs: tuple[JobSummary, ...] = ()
    labels: Labels = NO_LABELS
    launcher_gone: bool = False

    @property
    def state(self) -> str:
        return "UNSUBMITTED" if self.stands_still else combined([job.state for job in self.jobs])

    @property
    def ended(self) -> bool:
        return all(job.ended for job in self.jobs)

    @property
    def waits_for_resume(self) -> bool:
        """Whether there are jobs that no process will start."""
        return self.launcher_gone and any(not (job.ended or job.handles) for job in self.jobs)

    @property
    def stands_still(self) -> bool:
        """Whether nothing will happen before the experiment is resumed."""
        return self.waits_for_resume and all(job.ended or not job.handles for job in self.jobs)

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs are in which state, the most frequent first."""
        found: dict[str, int] = {}
        for job in self.jobs:
            found[job.state] = found.get(job.state, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def reason(self) -> str:
        """Why the first job failed that did, with its position where there are several."""
        for bad in ("FAILED", "UNKNOWN"):
            for index, job in enumerate(self.jobs):
                if job.state == bad and job.message:
                    return job.message if len(self.jobs) == 1 else f"job {index}: {job.message}"
        return ""

    @property
    def executors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(job.scheduler for job in self.jobs if job.scheduler))

    @property
    def started_at(self) -> float | None:
        return min((job.started_at for job in self.jobs if job.started_at), default=None)

    @property
    def ended_at(self) -> float | None:
        ends = [job.ended_at for job in self.jobs if job.ended_at]
        return max(ends, default=None) if self.ended else None


def combined(states: Sequence[str]) -> str:
    """Return the state of several jobs: running while one is, and one bad end spoils it."""
    if not states:
        return "UNSUBMITTED"
    if _ENDED.issuperset(states):
        return next((bad for bad in ("FAILED", "CANCELLED") if bad in states), "SUCCEEDED")
    for live in ("RUNNING", "PENDING", "SUBMITTED", "UNKNOWN"):
        if live in states:
            return live
    return "UNSUBMITTED" if _ENDED.isdisjoint(states) else "RUNNING"


def experiments_root(base_dir: str | None = None) -> str:
    """Return the directory that holds all titles."""
    return str(Path(base_dir or get_nemorun_home()).expanduser().absolute() / "experiments")


def find_all(root: str) -> list[tuple[float, str, str]]:
    """Return the time, title and path of every experiment below ``root``, the newest first."""
    found = list(_below(root, "", 0))
    found.sort(key=lambda item: (item[0], item[2]), reverse=True)
    return found


def _below(directory: str, title: str, depth: int) -> Iterator[tuple[float, str, str]]:
    try:
        with os.scandir(directory) as scanned:
            entries = list(scanned)
    except OSError:
        return
    for entry in entries:
        name = entry.name
        stamp = name.rpartition("_")[2]
        timed = len(stamp) > 12 and stamp.isdecimal()
        if depth and timed and name[: -len(stamp) - 1] == title.rpartition("/")[2]:
            yield int(stamp) / 1e9, title, entry.path
        elif not _is_being_removed(name) and entry.is_dir():
            # Ids need not have a time in them, and 0.12 nested titles that have slashes.
            if depth and os.path.exists(f"{entry.path}/{_CONFIG}"):  # noqa: PTH110 - thousands
                created = int(stamp) / 1e9 if timed else entry.stat().st_mtime
                yield created, title, entry.path
            elif depth < _MAX_NESTING and not (depth and name.startswith(".")):
                nested = f"{title}/{name}" if title else name
                yield from _below(entry.path, nested, depth + 1)


def _is_being_removed(name: str) -> bool:
    # Titles and ids may begin with a dot, too.
    return name.startswith(".") and name.endswith(".removed")


def read_entry(created_at: float, title: str, path: str) -> Entry | None:
    """Return what is known of the experiment in a directory; None if there is none (any more)."""
    try:
        # Few calls, since there may be thousands of experiments on a slow file system.
        names = os.listdir(f"{path}/{STATE}")  # noqa: PTH208
    except OSError:
        names = []
    known: dict[int, JobSummary] = {}
    for name in names:
        index, _, kind = name.partition(".")
        if kind == "json" and index.isdecimal():
            known[int(index)] = _read_job(f"{path}/{STATE}/{name}")
    jobs = _all_jobs(path, known)
    if jobs is None:
        return None
    labels = read_labels(path) if LABELS in names else NO_LABELS
    gone = not all(job.ended for job in jobs) and launcher.is_gone(path)
    name = os.path.basename(path)  # noqa: PTH119
    return Entry(name, title, path, created_at, jobs, labels, gone)


def _all_jobs(path: str, known: Mapping[int, JobSummary]) -> tuple[JobSummary, ...] | None:
    """Return a summary for every job, also for those of which nothing was written down yet."""
    try:
        count = sum(name.endswith(".json") for name in os.listdir(f"{path}/{_PLAN}"))  # noqa: PTH208
    except OSError:
        if not known:
            return _read_old_jobs(path)
        count = 0
    return tuple(known.get(index, _NOTHING) for index in range(max(count, len(known))))


_NOTHING = JobSummary()


def _read_job(path: str) -> JobSummary:
    try:
        members: list[dict[str, Any]] = json.loads(read_regular(path))["members"]
        if len(members) == 1:
            return _summary(members[0])
        parts = [_summary(member) for member in members]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        log.warning("%s cannot be read: %s", path, err)
        return JobSummary(state="UNKNOWN", message="its state cannot be read")
    failed = [part for part in parts if part.state == "FAILED"]
    starts = [part.started_at for part in parts if part.started_at]
    ends = [part.ended_at for part in parts if part.ended_at]
    return JobSummary(
        state=combined([part.state for part in parts]),
        handles=tuple(handle for part in parts for handle in part.handles),
        exit_code=next((p.exit_code for p in [*failed, *parts] if p.exit_code is not None), None),
        message="; ".join(dict.fromkeys(part.message for part in parts if part.message)),
        started_at=min(starts, default=None),
        ended_at=max(ends, default=None),
        lost=all(part.ended for part in parts) and any(part.lost for part in parts),
    )


def _summary(member: dict[str, Any]) -> JobSummary:
    handle = member["handle"]
    return JobSummary(
        member["state"],
        (handle,) if handle else (),
        member.get("exit_code"),
        told(member.get("message", ""), (member.get("cause") or {}).get("summary", "")),
        member.get("started_at"),
        member.get("ended_at"),
        member.get("lost", False),
    )


def _read_old_jobs(path: str) -> tuple[JobSummary, ...] | None:
    """Return what 0.12 stored in the jobs themselves; None where there is no experiment."""
    if not (Path(path) / _TASKS).exists():
        return () if (Path(path) / _CONFIG).exists() else None
    return tuple(
        JobSummary(state=job.state if job.launched else "UNSUBMITTED", handles=job.handles)
        for job in read_jobs(path)
    )


class StoredJob(NamedTuple):
    """What a stored job says about itself, without any class of it being imported.

    Attributes:
        executor: what is stored of its executor, and ``task`` of its task or tasks; see `peek`.
    """

    id: str
    executor: Any
    task: Any
    dependencies: tuple[str, ...] = ()
    launched: bool = False
    state: str = "UNSUBMITTED"
    handles: tuple[str, ...] = ()

    @property
    def executor_name(self) -> str:
        first = self.executor[0] if isinstance(self.executor, list) else self.executor
        return str(getattr(first, "target", "")).rpartition(":")[2]


def stored_title(path: str) -> str:
    """Return the title that the experiment in a directory has; empty if it cannot be read."""
    from nemo_run.core.serialization.peek import peek

    try:
        stored = peek(read_regular(f"{path}/{_CONFIG}").decode())
    except (OSError, ValueError, LookupError, NemoRunError):
        return ""
    return str(getattr(stored, "arguments", {}).get("title") or "")


def read_jobs(path: str) -> list[StoredJob]:
    """Return the jobs of an experiment in order, tasks and executors as plain data.

    Raises:
        RecordError: the file is missing or damaged.
    """
    from nemo_run.core.serialization.peek import peek

    file = Path(path) / _TASKS
    try:
        texts = json.loads(read_regular(file))
        return [_stored_job(peek(job).arguments, peek(task)) for job, task in texts]
    except FileNotFoundError as err:
        raise RecordError(
            f"{path!r} has no {_TASKS}: it was never run, or is no experiment.", path=file
        ) from err
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise RecordError(f"Cannot read {str(file)!r}: it is damaged ({err}).", path=file) from err


def _stored_job(job: Any, task: Any) -> StoredJob:
    states = job.get("states") or [job.get("state", "UNSUBMITTED")]
    handles = job.get("handles") or [job.get("handle", "")]
    return StoredJob(
        id=str(job["id"]),
        executor=job.get("executor") or job.get("executors"),
        task=task,
        dependencies=tuple(job.get("dependencies") or ()),
        launched=bool(job.get("launched")),
        state=combined([str(state).rpartition(".")[2] for state in states]),
        handles=tuple(handle for handle in handles if handle),
    )


def read_labels(path: str) -> Labels:
    """Return what a user wrote on the experiment in a directory."""
    try:
        data = json.loads(read_regular(f"{path}/{STATE}/{LABELS}"))
        return Labels(tuple(map(str, data.get("tags", ()))), str(data.get("note", "")))
    except FileNotFoundError:
        return NO_LABELS
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as err:
        log.warning("The labels of %s cannot be read: %s", path, err)
        return NO_LABELS


def write_labels(path: str, labels: Labels) -> None:
    """Replace what is written on an experiment.

    Raises:
        RecordError: it cannot be written.
    """
    data = json.dumps({"tags": list(labels.tags), "note": labels.note}) + "\n"
    file = Path(path) / STATE / LABELS
    try:
        file.parent.mkdir(exist_ok=True)
        write_whole(file, data.encode())
    except OSError as err:
        raise RecordError(f"Cannot write {str(file)!r}: {err.strerror}.", path=file) from err


def with_jobs(entry: Entry, jobs: Sequence[JobSummary]) -> Entry:
    """Return an entry with what has become of its jobs meanwhile."""
    return entry._replace(jobs=tuple(jobs))
