"""Jobs on this machine that outlive the process, terminal or supervisor that looked after them."""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torchx.schedulers.api import AppDryRunInfo, DescribeAppResponse, Scheduler, Stream
from torchx.schedulers.local_scheduler import (
    CWDImageProvider,
    ImageProvider,
    LocalOpts,
    LocalScheduler,
    PopenRequest,
    ReplicaParam,
)
from torchx.specs import AppDef, AppState, Role

from nemo_run import _later
from nemo_run._backends.local import replica as local_replica
from nemo_run._backends.local.attempts import attempts_of
from nemo_run._backends.local.fork_server import fork_server
from nemo_run._backends.local.spec import ReplicaSpec
from nemo_run._backends.local.status import ReplicaStatus, State, inspect
from nemo_run._home import get_nemorun_home, working_directory
from nemo_run._jobs import legacy
from nemo_run._jobs.records import JobRecord, JobRef, JobUsage
from nemo_run._names import slug
from nemo_run._order import combined
from nemo_run._parallel import in_parallel
from nemo_run._transport import log_files
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.exceptions import ConfigError, SubmitError
from nemo_run.run.torchx_backend.schedulers._local_request import LocalRequest, described
from nemo_run.run.torchx_backend.schedulers.api import (
    CWD,
    TAG,
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nemo_run.run.experiment import Experiment

log = logging.getLogger(__name__)


def __getattr__(name: str) -> Any:
    return _later.file_at_home(__name__, name, {"LOCAL_JOB_DIRS": legacy.LOCAL_INDEX})


STATES: dict[State, AppState] = {
    # Recorded, but no supervisor took it over: its launcher was killed first.
    "unsubmitted": AppState.UNSUBMITTED,
    "pending": AppState.PENDING,
    "running": AppState.RUNNING,
    "succeeded": AppState.SUCCEEDED,
    "failed": AppState.FAILED,
    "cancelled": AppState.CANCELLED,
}


class PersistentLocalScheduler(SchedulerMixin[LocalExecutor, PopenRequest], LocalScheduler):
    """Runs each replica under a supervisor of its own; keeps nothing in memory.

    ``cache_size`` and ``experiment`` are accepted for compatibility: there is no limit on live
    jobs.
    """

    EXECUTOR: ClassVar[type[Executor]] = LocalExecutor
    MAX_ROLES = None
    OUTLIVES_MACHINE = False

    def __init__(
        self,
        session_name: str,
        image_provider_class: Callable[[LocalOpts], ImageProvider],
        cache_size: int = 100,
        extra_paths: list[str] | None = None,
        experiment: Experiment | None = None,
    ) -> None:
        # Not LocalScheduler's: that takes over the signals of the process.
        Scheduler.__init__(self, "local", session_name)
        if cache_size <= 0:
            raise ConfigError(f"cache_size must be greater than zero, not {cache_size}.")
        self._image_provider_class = image_provider_class
        self._extra_paths = extra_paths or []

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return what is known of a job of any process; None where nothing is."""
        return super().describe(app_id)

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Start the job and return its app id; it goes on when this process ends."""
        return super().schedule(dryrun_info)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the log lines of one replica; ``since`` and ``until`` are exact to a second.

        Raises:
            JobNotFoundError: the job, or that role or replica of it, is unknown.
            ConfigError: ``regex`` is not one, or the job's streams were not kept apart.
        """
        return super().log_iter(app_id, role_name, k, regex, since, until, should_tail, streams)

    def close(self) -> None:
        """Do nothing: jobs go on."""

    def __del__(self) -> None:
        pass

    def _plan(self, app: AppDef, executor: LocalExecutor) -> PopenRequest:
        app_id = f"{slug(app.name)}-{app.metadata[TAG]}"
        log_dir = Path(executor.job_dir) / self.session_name / app_id
        images = self._image_provider_class({})
        params: dict[str, list[ReplicaParam]] = {}
        directories: dict[str, list[str]] = {}
        for role in app.roles:
            replicas = [
                self._replica_param(role, k, log_dir, images) for k in range(role.num_replicas)
            ]
            params[role.name] = replicas
            directories[role.name] = [
                str(_replica_dir(log_dir, role.name, k)) for k in range(role.num_replicas)
            ]
        request = LocalRequest(
            app_id,
            str(log_dir),
            params,
            directories,
            retries=executor.retries,
            time_limit_s=executor.time_limit_s,
            separate_streams=executor.separate_streams,
            slots=executor.slots(os.environ),
        )
        for replicas in params.values():
            for param in replicas:
                self._spec(param, request)  # says what is wrong with it
        return request

    def _replica_param(
        self, role: Role, k: int, log_dir: Path, images: ImageProvider
    ) -> ReplicaParam:
        # torchx's own macros are not substituted: arguments arrive as they were given.
        role = copy.deepcopy(role)
        directory = _replica_dir(log_dir, role.name, k)
        role.env = {
            "TORCHX_RANK0_HOST": "localhost",
            "TORCHELASTIC_ERROR_FILE": str(directory / "error.json"),
            "PET_LOG_DIR": str(log_dir / "torchelastic" / slug(role.name)),
            **role.env,
        }
        if len(role.args) == 2 and role.args[0] == "-c" and role.args[1][:1] == '"':
            # Script.to_command() quotes inline text for a shell; there is none here.
            role.args[1] = role.args[1][1:-1].replace('\\"', '"')
        param = images.get_replica_param(
            images.fetch_role(role),
            role,
            *(str(directory / name) for name in ("stdout.log", "stderr.log", "combined.log")),
        )
        param.cwd = role.metadata.get(CWD) or param.cwd or str(working_directory())
        return param

    def _describe_request(self, request: PopenRequest) -> str:
        return "\n".join(described(request))

    def launching_several(self) -> AbstractContextManager[None]:
        return fork_server()

    def _planned_id(self, request: PopenRequest) -> str:
        return request.app_id

    def _planned_ref(self, record: JobRecord) -> JobRef:
        return JobRef(native_id=record.app_id, where=_where(record.log_dir, record.roles))

    def _log_dir(self, request: PopenRequest) -> str:
        return request.log_dir

    def _launch(self, request: PopenRequest) -> JobRef:
        if not isinstance(request, LocalRequest):
            raise SubmitError("Only what submit_dryrun() returned can be started.")
        sizes = {role: len(params) for role, params in request.role_params.items()}
        started: list[Path] = []
        try:
            with fork_server() if sum(sizes.values()) > 1 else nullcontext():
                for role, params in request.role_params.items():
                    for directory, param in zip(request.role_log_dirs[role], params, strict=True):
                        local_replica.start(Path(directory), self._spec(param, request))
                        started.append(Path(directory))
        except BaseException as err:
            _stop_all(started, grace_s=0)
            if started:
                # Replicas that were ended cannot be started again: nothing to be tried later.
                err.__cause__ = None
            raise
        return JobRef(native_id=request.app_id, where=_where(request.log_dir, sizes.items()))

    def _spec(self, param: ReplicaParam, request: LocalRequest) -> ReplicaSpec:
        return ReplicaSpec(
            argv=tuple(param.args),
            env=self._environment(param.env, os.environ),
            cwd=str(Path(param.cwd or "").absolute()),
            retries=request.retries,
            time_limit_s=request.time_limit_s,
            separate=request.separate_streams,
            slots=request.slots or None,
        )

    def _environment(self, own: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
        env = {"PYTHONUNBUFFERED": "x", **inherited, **own}
        # The interpreter's directory comes last, for machines that have no "python" of their own.
        paths = [own.get("PATH"), inherited.get("PATH", os.defpath)]
        paths = [*self._extra_paths, *paths, str(Path(sys.executable).parent)]
        env["PATH"] = os.pathsep.join(path for path in paths if path)
        return env

    def _poll(self, ref: JobRef) -> JobStatus:
        if legacy.is_legacy(ref):
            return self._poll_legacy(ref)
        directories = _directories(ref)
        found = [_attended(directory) for directory in directories]
        attempts = [
            attempt
            for directory, replica in zip(directories, found, strict=True)
            for attempt in attempts_of(directory, replica)
        ]
        state = combined([STATES[replica.state] for replica in found])
        codes = [replica.exit_code for replica in found if replica.exit_code is not None]
        starts = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
        ends = [replica.ended_at for replica in found if replica.ended_at is not None]
        return JobStatus(
            state=state,
            message="; ".join(dict.fromkeys(filter(None, map(_message, found)))),
            exit_code=next((code for code in codes if code), codes[0] if codes else None),
            url=f"file://{ref.where['log_dir']}",
            restarts=max((max(0, replica.attempt - 1) for replica in found), default=0),
            started_at=min(starts, default=None),
            attempts=tuple(attempts),
            ended_at=max(ends, default=None) if all(r.is_final for r in found) else None,
            usage=_usage(found),
        )

    def _stop(self, ref: JobRef) -> None:
        if not legacy.is_legacy(ref):
            _stop_all(_directories(ref))

    def _announce_stop(self, ref: JobRef) -> None:
        if not legacy.is_legacy(ref):
            for directory in _directories(ref):
                local_replica.announce_stop(directory)

    def _kill(self, ref: JobRef) -> None:
        if not legacy.is_legacy(ref):
            _stop_all(_directories(ref), grace_s=0)

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        if legacy.is_legacy(ref):
            record = self._legacy_record(ref.native_id)
            old = Path(record.log_dir if record else "", query.role, str(query.replica))
            return log_files.read(old, query)
        directory = _replica_dir(Path(ref.where["log_dir"]), query.role, query.replica)
        return log_files.read(directory, query, lambda: _attended(directory).is_final)

    def tail(self, app_id: str, query: LogQuery, lines: int) -> Sequence[str]:
        """Return the last lines of a log; of a failed job, those of what failed first."""
        record = self._find(app_id)
        if record is not None and record.state == "FAILED" and not legacy.is_legacy(record.ref):
            role, replica = _failed_first(record, (query.role, query.replica))
            query = replace(query, role=role, replica=replica)
        return super().tail(app_id, query, lines)

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        return legacy.find_local_job(Path(get_nemorun_home()) / legacy.LOCAL_INDEX, app_id)

    def _poll_legacy(self, ref: JobRef) -> JobStatus:
        record = self._legacy_record(ref.native_id)
        if record is None:
            return JobStatus(state=AppState.UNKNOWN, message="the index of 0.12 is gone")
        return JobStatus(
            state=AppState[record.state],
            message=record.message,
            exit_code=record.exit_code,
            url=f"file://{record.log_dir}",
            ended_at=record.ended_at,
        )


def create_scheduler(
    session_name: str, cache_size: int = 100, extra_paths: list[str] | None = None, **kwargs: Any
) -> PersistentLocalScheduler:
    """Return a scheduler that runs jobs in the current directory."""
    return PersistentLocalScheduler(
        session_name=session_name,
        image_provider_class=CWDImageProvider,
        cache_size=cache_size,
        extra_paths=extra_paths,
        experiment=kwargs.get("experiment"),
    )


def _attended(directory: Path) -> ReplicaStatus:
    """Return the status of a replica, given a new supervisor first if its own was killed."""
    status = inspect(directory)
    try:
        if status.unattended and local_replica.adopt(directory):
            status = inspect(directory)
    except SubmitError as err:
        log.debug("%s", err)  # from where nothing can be written one can still look
    return status


def _usage(replicas: Sequence[ReplicaStatus]) -> JobUsage | None:
    times = [replica.cpu_s for replica in replicas if replica.cpu_s is not None]
    peaks = [replica.peak_kib for replica in replicas if replica.peak_kib is not None]
    return JobUsage(sum(times), max(peaks) * 1024) if times and peaks else None


def _failed_first(record: JobRecord, otherwise: tuple[str, int]) -> tuple[str, int]:
    """Return role and number of the replica that failed before the others did."""
    found = [
        (status.ended_at or float("inf"), role.name, k)
        for role in record.roles
        for k in range(role.replicas)
        for status in [inspect(_replica_dir(Path(record.log_dir), role.name, k))]
        if status.state == "failed"
    ]
    return min(found)[1:] if found else otherwise


def _stop_all(directories: Sequence[Path], grace_s: float | None = None) -> None:
    """End replicas side by side, so that stubborn ones do not add up."""
    stop = functools.partial(local_replica.stop, grace_s=grace_s)
    in_parallel(stop, directories, workers=len(directories))


def _message(status: ReplicaStatus) -> str:
    """Return what there is to say beyond the exit code."""
    return "" if status.message == f"exit code {status.exit_code}" else status.message


def _replica_dir(log_dir: Path, role: str, k: int) -> Path:
    name = slug(role)
    if name != role:
        # Other roles may look the same once they can name a directory.
        name += "-" + hashlib.sha256(role.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return log_dir / name / str(k)


def _where(log_dir: str, sizes: Iterable[tuple[str, int]]) -> dict[str, str]:
    return {"log_dir": log_dir, **{f"role {name}": str(count) for name, count in sizes}}


def _directories(ref: JobRef) -> list[Path]:
    return [
        _replica_dir(Path(ref.where["log_dir"]), key.removeprefix("role "), k)
        for key, count in ref.where.items()
        if key.startswith("role ")
        for k in range(int(count))
    ]
