"""The directory of an experiment: what is in which file, and how it is read and written.

Next to the files of NeMo Run 0.12 there are, for each job, ``_STATE/<n>.json`` (what became of
it, written after every step) and ``_PLAN/<n>.json`` (the application to submit, so that any
process can go on where another was killed).
"""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchx.specs import AppState

from nemo_run._experiments.store.launcher import LOCK
from nemo_run._experiments.store.plans import Plan
from nemo_run._experiments.store.states import JobState, MemberState
from nemo_run._files import make_private_directory, read_regular, read_whole, try_lock, write_whole
from nemo_run._jobs.cause import Cause
from nemo_run._jobs.records import JobAttempt, JobPart, JobUsage
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    ConfigError,
    RecordError,
    RecordUnavailableError,
)

log = logging.getLogger(__name__)

CONFIG, VERSION, TASKS, TUNNELS, DONE = "_CONFIG", "_VERSION", "_TASKS", "_TUNNELS", "_DONE"
STATE, PLAN = "_STATE", "_PLAN"

_SAID_BYTES = 1024


class ExperimentDirectory:
    """The files of one experiment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd: int | None = None  # while this process conducts
        self._said = ""

    def create(self, exist_ok: bool = False) -> None:
        """Make the directory.

        Raises:
            ConfigError: it cannot be made, or is there already.
        """
        try:
            make_private_directory(self.path.parent)
        except OSError as err:
            raise self._cannot_create(err) from err
        try:
            self.path.mkdir(mode=0o700, exist_ok=exist_ok)
        except FileExistsError as err:
            raise ConfigError(
                f"Experiment directory {str(self.path)!r} is there already. "
                "Use another id, or none."
            ) from err
        except OSError as err:
            raise self._cannot_create(err) from err

    def _cannot_create(self, err: OSError) -> ConfigError:
        return ConfigError(
            f"Cannot create the experiment directory {str(self.path)!r}: {err.strerror} "
            f"({err.filename}). Set NEMORUN_HOME, or base_dir, to where you can write."
        )

    def remove(self) -> None:
        """Delete the directory and everything in it; it may be gone already."""
        # Moved away first: git may be writing the changes of the work tree to it, and a file that
        # comes while the others are deleted would keep the directory.
        gone = self.path.with_name(f".{self.path.name}.removed")
        with suppress(OSError):
            self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name: str, text: str, *, sync: bool = False) -> None:
        """Replace a file as a whole, so that no reader sees half of it.

        Only the owner can read it: stored executors and plans hold environments. With ``sync``
        it is there after a power failure, too.
        """
        path = self.path / name
        data = text.encode("utf-8", "surrogateescape")
        try:
            try:
                write_whole(path, data, sync=sync)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, data, sync=sync)
        except OSError as err:
            raise RecordUnavailableError(
                f"Cannot write {str(path)!r}: {err.strerror}. What was written before is kept.",
                path=path,
            ) from err

    def read(self, name: str) -> str | None:
        """Return a file's text, or None if it is not there.

        Raises:
            RecordUnavailableError: it cannot be read now.
        """
        path = self.path / name
        try:
            data = read_whole(path)
        except OSError as err:
            raise RecordUnavailableError(
                f"Cannot read {str(path)!r}: {err.strerror}.", path=path
            ) from err
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def read_tasks(self) -> list[tuple[str, str]]:
        """Return the stored jobs, each with its task, as they are in the file.

        Raises:
            RecordError: the file is missing or damaged.
        """
        path = self.path / TASKS
        text = self.read(TASKS)
        if text is None:
            raise RecordError(
                f"{str(self.path)!r} has no {TASKS}: it was never run, or is no experiment.",
                path=path,
            )
        try:
            return [(str(job), str(task)) for job, task in json.loads(text)]
        except (ValueError, TypeError, RecursionError) as err:
            raise RecordError(
                f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path
            ) from err

    def write_state(self, index: int, state: JobState, *, sync: bool) -> None:
        """Write down what is known of the job at ``index``."""
        members = [
            {
                **vars(member),
                "state": member.state.name,
                "parts": [part._asdict() for part in member.parts],
                "attempts": [attempt._asdict() for attempt in member.attempts],
                "cause": member.cause.to_json() if member.cause else None,
                "usage": member.usage._asdict() if member.usage else None,
            }
            for member in state.members
        ]
        self.write(f"{STATE}/{index}.json", json.dumps({"members": members}), sync=sync)

    def read_state(self, index: int) -> JobState | None:
        """Return what is known of a job; None where nothing was written (by 0.12, or yet)."""
        text = self.read(f"{STATE}/{index}.json")
        if text is None:
            return None
        known = {f.name for f in dataclasses.fields(MemberState)}
        try:
            members = [
                MemberState(
                    **{
                        **{key: value for key, value in member.items() if key in known},
                        "state": AppState[member["state"]],
                        "parts": tuple(JobPart(**part) for part in member.get("parts", ())),
                        "attempts": tuple(map(JobAttempt.from_json, member.get("attempts", ()))),
                        "cause": Cause.from_json(member.get("cause")),
                        "usage": JobUsage.from_json(member.get("usage")),
                    }
                )
                for member in json.loads(text)["members"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            path = self.path / STATE / f"{index}.json"
            raise RecordError(
                f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path
            ) from err
        return JobState(members)

    def write_plan(self, index: int, plan: Plan) -> None:
        """Keep what is launched for a job."""
        self.write(f"{PLAN}/{index}.json", json.dumps(plan.to_json()))

    def read_plan(self, index: int) -> Plan | None:
        """Return what to launch for a job; None where no plan was kept.

        Raises:
            RecordError: the file is damaged.
        """
        text = self.read(f"{PLAN}/{index}.json")
        if text is None:
            return None
        try:
            return Plan.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            path = self.path / PLAN / f"{index}.json"
            raise RecordError(
                f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path
            ) from err

    def note_canceller(self, index: int, who: str) -> None:
        """Keep who asked for the end of a job; the first request counts."""
        if self.canceller(index) is None:
            with suppress(RecordUnavailableError):  # the end does not wait for a full disk
                self.write(f"{STATE}/{index}.by", who)

    def canceller(self, index: int) -> str | None:
        """Return who asked for the end of a job, if that was noted."""
        with suppress(RecordUnavailableError):
            return self.read(f"{STATE}/{index}.by")
        return None

    def request_cancel(self, index: int) -> None:
        """Ask the conductor not to start a job that has not been started."""
        self.write(f"{STATE}/{index}.cancel", "")

    def cancel_requested(self, index: int) -> bool:
        return (self.path / STATE / f"{index}.cancel").exists()

    def mark_done(self) -> None:
        """Note that the context of a launched experiment has ended."""
        (self.path / DONE).touch()

    @property
    def done(self) -> bool:
        return (self.path / DONE).exists()

    @contextmanager
    def conducting(self, patience_s: float = 0.0) -> Iterator[bool]:
        """Keep other conductors away; gives False where there is one. Dies with its holder.

        A process that only looks holds the lock for a moment; ``patience_s`` outlasts that.
        """
        descriptor = self._open_lock()
        try:
            waiting = Waiting(0.01, 0.01, timeout_s=patience_s)
            while not (alone := try_lock(descriptor)) and not waiting.is_over:
                waiting.pause()
            if alone:
                self._lock_fd = descriptor
                self._said = "?"
                self.say("")  # the space for what may have to be said when the disk is full
            yield alone
        finally:
            self._lock_fd = None
            os.close(descriptor)

    def _open_lock(self) -> int:
        try:
            return os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            if err.errno not in (errno.EROFS, errno.EACCES):
                raise
            # A home that can only be read: what can be opened can be locked.
            return os.open(self.path / CONFIG, os.O_RDONLY | os.O_CLOEXEC)

    def say(self, text: str) -> bool:
        """Show a line in the status while this process conducts; True if it is new.

        It is written over the last one, so that it needs no space on a disk that is full.
        """
        if self._lock_fd is None or text == self._said:
            return False
        self._said = text
        line = text.replace("\n", " ").encode("utf-8", "replace")[:_SAID_BYTES]
        with suppress(OSError):
            os.pwrite(self._lock_fd, line.ljust(_SAID_BYTES), 0)
        return True

    def said(self) -> str:
        """Return what keeps the conductor from going on; nothing where there is none."""
        try:
            text = read_regular(self.path / LOCK).decode("utf-8", "replace").strip()
        except OSError:
            return ""
        if not text:
            return ""
        with self.conducting() as nobody_conducts:
            return "" if nobody_conducts else text
