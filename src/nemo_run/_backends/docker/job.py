"""A job on Docker that was submitted: how it is, how it ended, its logs, its end.

The engine is asked as long as there are containers. What they left in the job directory is enough
once they are gone.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchx.specs import AppState, is_terminal

from nemo_run._backends.docker import client as docker_client
from nemo_run._backends.docker import connection, output
from nemo_run._backends.docker.client import Container, Engine
from nemo_run._backends.docker.files import JobFiles, MemberFiles, exit_code_in
from nemo_run._jobs.log_lines import LogQuery, for_terminal
from nemo_run._jobs.records import JobRef
from nemo_run._jobs.status import JobStatus
from nemo_run._parallel import in_parallel
from nemo_run._transport import log_files
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
    NemoRunError,
)

log = logging.getLogger(__name__)

DOCKER_STATES: dict[str, AppState] = {
    # The launcher that made it has not come to start it.
    "created": AppState.UNSUBMITTED,
    "restarting": AppState.PENDING,
    "paused": AppState.PENDING,
    "removing": AppState.PENDING,
    "running": AppState.RUNNING,
    "exited": AppState.SUCCEEDED,  # or not: the exit code tells
    "dead": AppState.FAILED,
}
"""By Docker's words for the states of a container."""

STOPPING_S = 10
"""How long a job may take to clean up before it is made to end."""

ASK_EVERY_S = 0.25
MESSAGE_LINES = 3
MESSAGE_BYTES = 4096


class SubmittedJob:
    """A job, found by its reference."""

    def __init__(self, ref: JobRef) -> None:
        self.id = ref.native_id
        self._where = ref.where
        self.files = JobFiles(Path(ref.where["state_dir"]))
        self.members: dict[str, str] = json.loads(ref.where["containers"])
        """Of each role, what the label of its container says."""
        self._retries: dict[str, int] = json.loads(ref.where.get("retries", "{}"))
        # 0.12 has its files elsewhere.
        self._legacy_dir = ref.where.get("legacy_dir", "")

    @property
    def engine(self) -> Engine:
        return connection.connect(self._where.get("host", ""))

    # How it is.

    def status(self) -> JobStatus:
        """Return how the job is, and settle it if it has ended.

        Raises:
            BackendUnavailableError: the engine does not answer, and the job has not ended yet.
            JobNotFoundError: this may be another engine than the one it was submitted to.
        """
        kept = self._kept_status()
        if kept is not None:
            return kept
        try:
            containers = self._containers()
        except BackendUnavailableError:
            if not all(self._has_ended_here(role) for role in self.members):
                raise
            statuses = {role: self._left(role) for role in self.members}
            status = self._together(statuses)
            self._keep(status, statuses)
            return status
        if len(containers) < len(self.members):
            # Another process may have seen the end since.
            kept = self._kept_status(old=not containers)
            if kept is not None:
                return kept
        statuses = {role: self._member(role, containers) for role in self.members}
        status = self._together(statuses)
        if is_terminal(status.state):
            self._settle(status, statuses, containers.values())
        else:
            self._share_fate(statuses, containers)
        return status

    def _kept_status(self, *, old: bool = False) -> JobStatus | None:
        """Return how the job ended; ``old`` says that there are no containers any more."""
        outcome = self.files.read_outcome()
        if outcome is None and old:
            outcome = self.files.read_old_outcome()
        if outcome is None:
            return None
        names = {item.name for item in dataclasses.fields(JobStatus)} - {"state", "url"}
        values = {name: outcome[name] for name in names if outcome.get(name) is not None}
        return JobStatus(state=AppState[outcome["state"]], **values)

    def _containers(self) -> dict[str, Container]:
        engine = self.engine
        found = {container.member: container for container in engine.containers(self.id)}
        # 0.12 did not note which engine it was.
        is_there = bool(found) or self._where.get("engine", "") == engine.id
        if not is_there and not all(map(self._has_ended_here, self.members)):
            raise JobNotFoundError(
                f"The Docker engine {engine.host or 'of this machine'} has no container of job "
                f"{self.id}, and is not known to be the one that it was submitted to."
                f"{' Set DOCKER_HOST to that one.' if self._legacy_dir else ''}",
                backend=docker_client.BACKEND,
            )
        return found

    def _member(self, role: str, containers: Mapping[str, Container]) -> JobStatus:
        container = containers.get(self.members[role])
        if container is None:
            return self._left(role)
        state = DOCKER_STATES.get(container.status, AppState.UNKNOWN)
        if container.status == "exited" and container.exit_code:
            state = AppState.FAILED
        ended = is_terminal(state)
        return JobStatus(
            state=state,
            message=self._message(role, container) if state is AppState.FAILED else "",
            exit_code=container.exit_code if ended else None,
            restarts=container.restarts,
            started_at=container.started_at,
            ended_at=container.ended_at if ended else None,
        )

    def _left(self, role: str) -> JobStatus:
        """Return how a task ended whose container is gone."""
        files = self._member_files(role)
        code, ended_at = self._exit_code(role), files.ended_at
        restarts = max(0, files.attempts - 1)
        if code is None:
            return JobStatus(
                state=AppState.FAILED,
                message="its container was removed before it had ended",
                restarts=restarts,
            )
        state = AppState.FAILED if code else AppState.SUCCEEDED
        return JobStatus(state=state, exit_code=code, restarts=restarts, ended_at=ended_at)

    def _has_ended_here(self, role: str) -> bool:
        """Tell, without the engine, whether a task has ended and is not started again."""
        # No job of 0.12's could have a second try.
        used_up = bool(self._legacy_dir) or self._member_files(role).attempts > self._retries.get(
            role, 0
        )
        code = self._exit_code(role)  # of that try: see the script of the container
        return code == 0 or (code is not None and used_up)

    def _exit_code(self, role: str) -> int | None:
        if self._legacy_dir:
            path = Path(self._legacy_dir) / f"status_{self.members[role]}.out"
            return exit_code_in(path, path.parent, self.id)
        return self._member_files(role).exit_code

    def _message(self, role: str, container: Container) -> str:
        if container.out_of_memory:
            return "a process of it was killed for want of memory"
        if container.error:
            return container.error
        if self._member_files(role).attempts or self._legacy_dir:
            return ""
        # The command was not reached, or the container may not write where we look.
        try:
            said = b""
            for piece in self.engine.output(container.id):
                said = (said + piece)[-MESSAGE_BYTES:]
        except BackendError:
            return ""
        lines = for_terminal(said.decode("utf-8", "replace")).splitlines()
        return " ".join(lines[-MESSAGE_LINES:])

    def _together(self, statuses: Mapping[str, JobStatus]) -> JobStatus:
        """Return the status of the job by those of its tasks."""
        states = [status.state for status in statuses.values()]
        started = [s.started_at for s in statuses.values() if s.started_at is not None]
        restarts = max(status.restarts for status in statuses.values())
        common: dict[str, Any] = {
            "restarts": restarts,
            "started_at": min(started, default=None),
        }
        if not all(map(is_terminal, states)):
            for state in (AppState.UNSUBMITTED, AppState.RUNNING, AppState.PENDING):
                if state in states:
                    return JobStatus(state=state, **common)
            return JobStatus(state=AppState.UNKNOWN, **common)
        ends = [s.ended_at for s in statuses.values() if s.ended_at is not None]
        common["ended_at"] = max(ends, default=None)
        if self._was_cancelled(statuses):
            code = next((s.exit_code for s in statuses.values() if s.exit_code), None)
            return JobStatus(state=AppState.CANCELLED, exit_code=code, **common)
        role = failed_first(statuses)
        if role is None:
            return JobStatus(state=AppState.SUCCEEDED, exit_code=0, **common)
        message = statuses[role].message
        if len(statuses) > 1:
            message = f"{role} failed{': ' if message else ''}{message}"
        return JobStatus(
            state=AppState.FAILED,
            message=message,
            exit_code=statuses[role].exit_code,
            **common,
        )

    def _was_cancelled(self, statuses: Mapping[str, JobStatus]) -> bool:
        """Tell whether an ended job was cancelled."""
        asked_at = self.files.was_cancelled_at
        if asked_at is None:
            return False
        members = [self._member_files(role) for role in statuses]
        well = all(status.exit_code == 0 for status in statuses.values())
        if well and all(files.attempts for files in members):
            return any(files.was_asked for files in members)  # or the engine could not ask it
        ends = [s.ended_at for s in statuses.values() if s.ended_at is not None]
        # One that had tries left was between two of them.
        for_good = all(map(self._has_ended_here, self.members))
        by_itself = len(ends) == len(statuses) and max(ends) < asked_at and for_good
        return not by_itself

    # Its end.

    def _share_fate(
        self, statuses: Mapping[str, JobStatus], containers: Mapping[str, Container]
    ) -> None:
        """End the other tasks of a group, once one has failed for good."""
        states = {status.state for status in statuses.values()}
        if AppState.FAILED not in states or AppState.UNSUBMITTED in states:
            return
        given_up_at = self.files.was_given_up_at
        self.files.give_up()
        patient = given_up_at is None or time.time() - given_up_at < STOPPING_S
        for role, status in statuses.items():
            container = containers.get(self.members[role])
            if container is not None and not is_terminal(status.state):
                if given_up_at is None:
                    log.info("%s: a task has failed, so %s is ended", self.id, role)
                if given_up_at is None or not patient:
                    self.engine.signal(container.id, "SIGTERM" if patient else "SIGKILL")

    def end(self, *, wait_s: int = STOPPING_S) -> None:
        """End all containers, giving them ``wait_s`` to clean up; return when they have ended.

        Raises:
            BackendUnavailableError: the engine does not answer.
        """
        status = self.status()
        if is_terminal(status.state):
            return
        self.files.cancel()
        self._stop_containers(wait_s)

    def _stop_containers(self, wait_s: int) -> None:
        engine = self.engine

        def stop(container: Container) -> None:
            if container.status == "created":
                engine.remove(container.id)
            else:
                engine.stop(container.id, wait_s=wait_s)

        in_parallel(stop, engine.containers(self.id))

    def _settle(
        self,
        status: JobStatus,
        statuses: Mapping[str, JobStatus],
        containers: Collection[Container],
    ) -> None:
        """Keep how the job ended and what it said, then remove its containers.

        Raises:
            BackendUnavailableError: only the engine has the output.
        """
        if self._legacy_dir:
            return
        try:
            for container in containers:
                if container.member in self.members.values():
                    output.keep(self.engine, container, self.files.member(container.member))
            outcome = self._keep(status, statuses)
        except OSError as err:
            log.warning("%s: its containers stay for now: %s", self.id, err)
            return
        try:
            for container in containers:
                self.engine.remove(container.id)
            self.files.write_outcome({**outcome, "removed": True})
        except (NemoRunError, OSError) as err:
            log.warning("%s: its containers stay for now: %s", self.id, err)

    def _keep(self, status: JobStatus, statuses: Mapping[str, JobStatus]) -> dict[str, Any]:
        """Write down how the job ended, and forget what only its containers needed."""
        outcome = {
            "state": status.state.name,
            "message": status.message,
            "exit_code": status.exit_code,
            "restarts": status.restarts,
            "started_at": status.started_at,
            "ended_at": status.ended_at,
            "failed_first": failed_first(statuses),
        }
        if not self._legacy_dir:
            for role in self.members:
                self._member_files(role).forget_environment()
            self.files.write_outcome(outcome)
        return outcome

    # Its logs.

    def read(self, query: LogQuery, ended: Callable[[], bool]) -> Iterator[bytes]:
        """Return blocks of whole lines of one task's log."""
        files = self._member_files(query.role)
        path = files.log
        if self._legacy_dir:
            path = Path(self._legacy_dir) / f"log_{self.members[query.role]}.out"
        if query.since is not None or query.until is not None:
            self._note_times(query.role, files)
        root = self.files.job_dir
        return log_files.read_file(path, files.clock, query, _seldom(ended), root=root)

    def _note_times(self, role: str, files: MemberFiles) -> None:
        try:
            container = self._containers().get(self.members[role])
            if container is not None and not self._legacy_dir:
                output.write_clock(self.engine, container, files)
        except BackendError as err:
            log.debug("%s: %s", self.id, err)

    def failed_first(self, query: LogQuery) -> LogQuery:
        """Return the query for the log of the task that failed first."""
        outcome = self.files.read_outcome() or self.files.read_old_outcome() or {}
        role = outcome.get("failed_first")
        return dataclasses.replace(query, role=role) if role in self.members else query

    def _member_files(self, role: str) -> MemberFiles:
        return self.files.member(self.members[role])


def failed_first(statuses: Mapping[str, JobStatus]) -> str | None:
    """Return the task that failed before the others did, or were ended."""
    failed = [role for role, status in statuses.items() if status.state is AppState.FAILED]
    never = float("inf")
    return min(failed, key=lambda role: statuses[role].ended_at or never, default=None)


def _seldom(ended: Callable[[], bool]) -> Callable[[], bool]:
    """Return ``ended``, asked less often than a log is looked at."""
    asked_at = -ASK_EVERY_S
    answer = False

    def asked() -> bool:
        nonlocal asked_at, answer
        if not answer and time.monotonic() - asked_at >= ASK_EVERY_S:
            asked_at = time.monotonic()
            answer = ended()
        return answer

    return asked
