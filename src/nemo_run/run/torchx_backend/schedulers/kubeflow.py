"""Jobs on Kubernetes, as TrainJobs of Kubeflow."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torchx.schedulers.api import Scheduler, Stream
from torchx.specs import AppDef, AppState, is_terminal, runopts

from nemo_run import _later
from nemo_run._backends.kubeflow import jobs, legacy, manifests, refs
from nemo_run._backends.kubeflow.calls import launch_script
from nemo_run._backends.kubeflow.client import GROUP, TRAINJOBS, VERSION, Cluster
from nemo_run._backends.kubeflow.kept import Keeping, KeptLog, keep_logs
from nemo_run._backends.kubeflow.logs import NodeLogs
from nemo_run._backends.kubeflow.pods import nodes_of, seen
from nemo_run._backends.kubeflow.site import Site
from nemo_run._backends.kubeflow.volume import WorkVolume
from nemo_run._backends.kubernetes.notes import masked_variable, planned_id
from nemo_run._backends.kubernetes.pod_lines import Window
from nemo_run._backends.kubernetes.pod_logs import LAST_LINES
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import JobRecord, JobRef, mark_nonce
from nemo_run._secrets.masking import mask_environment
from nemo_run._values import literal
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.kubeflow import KubeflowExecutor, KubeflowJobState
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    JobNotFoundError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers.api import (
    TAG,
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

log = logging.getLogger(__name__)

LEGACY_INDEX = ".kubeflow_jobs.json"


def __getattr__(name: str) -> Any:
    return _later.file_at_home(__name__, name, {"KUBEFLOW_JOB_DIRS": LEGACY_INDEX})


KUBEFLOW_STATES: dict[KubeflowJobState | None, AppState] = {
    KubeflowJobState.CREATED: AppState.SUBMITTED,
    KubeflowJobState.RUNNING: AppState.RUNNING,
    KubeflowJobState.SUCCEEDED: AppState.SUCCEEDED,
    KubeflowJobState.FAILED: AppState.FAILED,
    KubeflowJobState.UNKNOWN: AppState.PENDING,
    None: AppState.PENDING,
}

_DELETED = "deleted in the cluster"
_MOVING_S = 3600.0
"""How long moving the files of a job may well take."""
_OURS = frozenset({"code", "configs", "scripts"})
"""What is in the directory of every job."""


@dataclass
class KubeflowJobRequest:
    """A job to be created.

    Attributes:
        cmd: what each pod runs.
        name: of the TrainJob; no other submission has it.
    """

    app: AppDef = field(repr=False)  # has the environment in it
    executor: KubeflowExecutor
    cmd: list[str]
    name: str


class KubeflowScheduler(
    SchedulerMixin[KubeflowExecutor, KubeflowJobRequest], Scheduler[dict[str, str]]
):
    """Runs jobs as TrainJobs, and asks the cluster about them."""

    EXECUTOR: ClassVar[type[Executor]] = KubeflowExecutor

    def __init__(self, session_name: str) -> None:
        super().__init__("kubeflow", session_name)

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("job_dir", type_=str, help="The directory of the job on this machine.")
        return opts

    def _plan(self, app: AppDef, executor: KubeflowExecutor) -> KubeflowJobRequest:
        executor.check()
        if not executor.job_dir:
            raise ConfigError("This executor belongs to no job yet. Call assign(...) first.")
        role = app.roles[0]
        role.num_replicas = executor.num_nodes
        role.args = [_there(arg, executor) for arg in role.args]
        name = manifests.trainjob_name(executor.train_job_basename or role.name, app.metadata[TAG])
        request = KubeflowJobRequest(app=app, executor=executor, cmd=jobs.command(), name=name)
        _script(request)  # says what is wrong with it
        return request

    def _describe_request(self, request: KubeflowJobRequest) -> str:
        executor, name = request.executor, request.name
        tag = request.app.metadata[TAG]
        body = manifests.submitted_body(executor, name, request.cmd, tag=tag)
        # What makes the name unique is not worth seeing before it exists.
        shown = name.rpartition("-")[0] + "-*"
        trainer = body["spec"].get("trainer") or {}
        # Those of env_list are there by the user's own will, and not masked yet.
        trainer["env"] = [masked_variable(variable) for variable in trainer.get("env") or ()]
        text = f"POST /apis/{GROUP}/{VERSION}/namespaces/{executor.namespace}/{TRAINJOBS}\n"
        text += json.dumps(body, indent=2, ensure_ascii=False)
        text += f"\n\n# Script of {request.app.roles[0].name}, secrets masked\n"
        return (text + _script(request, masked=True)).replace(name, shown)

    def _planned_id(self, request: KubeflowJobRequest) -> str:
        role = request.app.roles[0].name
        return planned_id(request.executor.experiment_id, role, request.name)

    def _planned_ref(self, record: JobRecord) -> JobRef | None:
        return refs.NOTES.read(record.job_dir, jobs.name_in(record.app_id))

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        index = Path(get_nemorun_home()) / LEGACY_INDEX
        return legacy.find(index, app_id, self._scheduler_name())

    def _launch(self, request: KubeflowJobRequest) -> JobRef:
        ref = _noted(request)
        jobs.submit(
            request.executor,
            Site.from_where(ref.where, patience_s=jobs.SUBMIT_PATIENCE_S),
            name=request.name,
            tag=request.app.metadata[TAG],
            # An earlier release may have noted it, without a nonce.
            script=_script(request, nonce=ref.where.get("nonce", "")),
            nonce=ref.where.get("nonce", ""),
            wanted=lambda: refs.NOTES.check_wanted(ref),
        )
        ref = replace(ref, native_id=request.name)
        if refs.NOTES.is_cancelled(ref):
            self._stop(ref)
        return ref

    def _poll(self, ref: JobRef) -> JobStatus:
        cluster = refs.site_of(ref).cluster()
        status = self._look(ref, cluster)
        if status.state in (AppState.SUCCEEDED, AppState.FAILED):
            keep_logs(
                ref,
                lambda replica: self._pod_lines(ref, cluster, LogQuery(role="", replica=replica)),
                ended_at=status.ended_at or time.time(),
            )
        return status

    def _look(self, ref: JobRef, cluster: Cluster) -> JobStatus:
        name, nodes = ref.where["name"], int(ref.where["nodes"])
        job = jobs.find(cluster, name, ref.where["tag"])
        if job is None:
            return self._without_job(ref, cluster)
        if not refs.was_created(ref):
            jobs.give_secret(cluster, job)
            refs.mark_created(ref)
        pods = nodes_of(cluster, name, ref.where.get("nonce", ""))
        found = seen(job, pods, nodes, on_volume=bool(ref.where["claim"]))
        state = KUBEFLOW_STATES[found.state]
        status = JobStatus(
            # A job that is there is more than submitted.
            state=max(AppState.PENDING, state),
            message=found.message,
            exit_code=found.exit_code,
            url=_url(ref),
            restarts=found.restarts,
            started_at=found.started_at,
            ended_at=found.ended_at,
        )
        if state is AppState.FAILED and found.exit_code is None:
            return self._with_exit_code(ref, cluster, status)
        return status

    def _without_job(self, ref: JobRef, cluster: Cluster) -> JobStatus:
        """Return how a job is that has no TrainJob, or none any more."""
        name = ref.where["name"]
        if nodes_of(cluster, name):
            return JobStatus(state=AppState.RUNNING, message="it is being deleted", url=_url(ref))
        if refs.NOTES.is_cancelled(ref):
            said = "" if refs.was_created(ref) else "cancelled before it was created"
            return JobStatus(state=AppState.CANCELLED, message=said)
        if not refs.was_created(ref):
            return JobStatus(state=AppState.UNSUBMITTED)
        if not ref.where["server"]:
            raise JobNotFoundError(
                f"The cluster of the current context has no TrainJob {name}, and 0.12 did not "
                "write down which cluster it was submitted to. If it was another, switch to its "
                "context.",
                backend=self.backend,
                operation="status",
            )
        gone = JobStatus(state=AppState.CANCELLED, message=_DELETED, url=_url(ref))
        return self._with_exit_code(ref, cluster, gone)

    def _with_exit_code(self, ref: JobRef, cluster: Cluster, status: JobStatus) -> JobStatus:
        """Return a status with what the pods left on the volume, if they have ended there."""
        volume = WorkVolume.from_where(ref.where, cluster)
        if volume is None:
            return status
        try:
            nonce = ref.where.get("nonce", "")
            found = jobs.outcomes(volume, ref.where["place"], ref.where["name"], nonce)
        except BackendUnavailableError:
            raise
        except BackendError as err:
            if status.state is AppState.FAILED or not volume.exists():
                log.warning("%s: how it ended is not known: %s", ref.where["name"], err)
                return status
            # It may have expired after its end, which the volume still tells.
            raise BackendUnavailableError(
                f"The TrainJob is gone, and how it ended cannot be read now: {err}",
                backend=self.backend,
                operation="status",
                detail=err.detail,
            ) from err
        bad = next((end for _, end in sorted(found.items()) if end.exit_code), None)
        restarts = max((end.attempts - 1 for end in found.values()), default=0)
        if bad is not None:
            return replace(
                status, state=AppState.FAILED, exit_code=bad.exit_code, restarts=restarts
            )
        if status.state is AppState.CANCELLED and len(found) == int(ref.where["nodes"]):
            return replace(status, state=AppState.SUCCEEDED, exit_code=0, restarts=restarts)
        return status

    def _stop(self, ref: JobRef) -> None:
        self._delete(ref, at_once=False)

    def _kill(self, ref: JobRef) -> None:
        self._delete(ref, at_once=True)

    def _delete(self, ref: JobRef, *, at_once: bool) -> None:
        cluster, name = refs.patient_site_of(ref).cluster(), ref.where["name"]
        job = jobs.find(cluster, name, ref.where["tag"])
        if job is not None and is_terminal(self._look(ref, cluster).state):
            return
        if job is None and refs.was_created(ref):
            return
        refs.NOTES.cancel(ref)
        # One that was created meanwhile ends, too, and one that is not will not be.
        if job is not None or jobs.find(cluster, name, ref.where["tag"]) is not None:
            with Keeping(ref, cluster):
                jobs.stop(cluster, name, at_once=at_once)
        if ref.where["tag"]:
            jobs.remove_secret(cluster, name)

    def unused(self) -> dict[str, str]:
        """Return pods that moved files for launchers that did not live to remove them."""
        found: dict[str, str] = {}
        records = self._store.list(self._scheduler_name())
        wheres = [record.ref.where for record in records if record.ref is not None]
        for site in {Site.from_where(where) for where in wheres if where.get("server")}:
            for pod in site.cluster().pods(f"{manifests.PURPOSE_LABEL}={manifests.MOVER}"):
                if pod.phase != "Running" or time.time() - pod.created_at > _MOVING_S:
                    what = f"pod {pod.name} of namespace {site.namespace}"
                    found[what] = f"kubectl delete pod {pod.name} -n {site.namespace}"
        return found

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        if query.stream is not Stream.COMBINED:
            raise UnsupportedError(
                f"A pod has one log for both streams, so {query.stream.name} alone cannot be had."
            )
        return self._pod_lines(ref, refs.site_of(ref).cluster(), query)

    def _pod_lines(self, ref: JobRef, cluster: Cluster, query: LogQuery) -> Iterator[bytes]:
        def ended() -> bool:
            try:
                return is_terminal(self._poll(ref).state)
            except JobNotFoundError:
                return True

        def otherwise() -> Iterator[bytes]:
            volume = WorkVolume.from_where(ref.where, cluster)
            if volume is None:
                yield from KeptLog(ref, query.replica).read()
                return
            directory = jobs.state_dir(ref.where["place"], ref.where["name"])
            last_lines = LAST_LINES if query.last_only else None
            yield from volume.read(f"{directory}/log-{query.replica}.out", last_lines=last_lines)

        return NodeLogs(
            cluster,
            ref.where["name"],
            query.replica,
            continued=bool(ref.where.get("claim")),
            window=Window(since=query.since, until=query.until),
            nonce=ref.where.get("nonce", ""),
        ).read(follow=query.follow, last_only=query.last_only, ended=ended, otherwise=otherwise)


def create_scheduler(session_name: str, **kwargs: Any) -> KubeflowScheduler:
    """Return a scheduler for Kubernetes with Kubeflow."""
    return KubeflowScheduler(session_name)


def _script(request: KubeflowJobRequest, *, nonce: str = "", masked: bool = False) -> str:
    role = request.app.roles[0]
    return launch_script(
        request.executor,
        [role.entrypoint, *role.args],
        name=request.name,
        env=mask_environment(role.env) if masked else role.env,
        retries=role.max_retries,
        nonce=nonce,
    )


def _there(arg: str, executor: KubeflowExecutor) -> str:
    """Return an argument with paths of this machine, or of our link, as the pods see them."""
    if isinstance(arg, literal):
        return arg
    place = executor.place or manifests.RUNDIR
    if executor.workdir_local_path:
        arg = _moved(arg, Path(executor.workdir_local_path), place)
    start = f"{manifests.RUNDIR}/"
    if not arg.startswith(start) or arg.startswith(f"{place}/"):
        return arg
    below = arg[len(start) :]
    # The link of that name can only be made where the container runs as root, and not where the
    # work volume has it, which then may have files of that name, too.
    ours = below.partition("/")[0] in _OURS
    is_volume = executor.workdir_pvc and executor.workdir_pvc_path.rstrip("/") == manifests.RUNDIR
    return f"{place}/{below}" if ours or not is_volume else arg


def _moved(text: str, directory: Path, place: str) -> str:
    """Return a text with the absolute path of a directory, and of what is below it, replaced."""
    paths = dict.fromkeys(map(str, (directory.resolve(), directory.absolute())))
    either = "|".join(map(re.escape, paths))
    return re.sub(rf"(?<![\w./-])({either})(?![\w.-])", lambda _: place, text)


def _url(ref: JobRef) -> str:
    where = ref.where
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{where['namespace']}/{TRAINJOBS}/{where['name']}"
    return f"{where['server']}{path}"


def _noted(request: KubeflowJobRequest) -> JobRef:
    """Return where to submit a job to, written down before it is.

    Where an earlier launcher has written that, it may have been submitted: then it is there or
    nowhere, whatever the current context is now.
    """
    executor = request.executor
    ref = refs.NOTES.read(executor.job_dir, request.name)
    if ref is None:
        ref = JobRef(native_id="", where=_where(request, Site.current(executor.namespace)))
        refs.NOTES.write(ref)
    return ref


def _where(request: KubeflowJobRequest, site: Site) -> dict[str, str]:
    executor = request.executor
    volume = WorkVolume.of(executor, site.cluster(), request.name)
    return {
        **site.to_where(),
        **volume.to_where(),
        "name": request.name,
        "tag": request.app.metadata[TAG],
        "nonce": mark_nonce(request.app.metadata[TAG]),
        "nodes": str(executor.num_nodes),
        "job_dir": executor.job_dir,
        "place": executor.place,
    }
