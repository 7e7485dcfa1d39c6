"""Jobs on DGX Cloud, as workloads of Run:ai."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torchx.schedulers.api import (
    AppDryRunInfo,
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
)
from torchx.specs import AppDef, AppState, runopts

from nemo_run import _later
from nemo_run._backends.kubernetes.notes import masked_variable, name_in, planned_id
from nemo_run._backends.kubernetes.pod_lines import Window
from nemo_run._backends.kubernetes.script import RUNDIR
from nemo_run._backends.runai import jobs, legacy, logs, refs
from nemo_run._backends.runai.client import RunAI, Workload
from nemo_run._backends.runai.payloads import workload_name
from nemo_run._backends.runai.site import Site
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run._secrets.masking import masked_text
from nemo_run._values import literal
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor, DGXCloudRequest, DGXCloudState
from nemo_run.exceptions import JobNotFoundError, UnsupportedError
from nemo_run.run.torchx_backend.schedulers.api import (
    TAG,
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

log = logging.getLogger(__name__)

LEGACY_INDEX = ".dgx_jobs.json"


def __getattr__(name: str) -> Any:
    return _later.file_at_home(__name__, name, {"DGX_JOB_DIRS": LEGACY_INDEX})


DGX_STATES: dict[DGXCloudState, AppState] = {
    DGXCloudState.CREATING: AppState.PENDING,
    DGXCloudState.INITIALIZING: AppState.SUBMITTED,
    DGXCloudState.RESUMING: AppState.RUNNING,
    DGXCloudState.PENDING: AppState.PENDING,
    # These two still have pods, and go on to what the next look finds.
    DGXCloudState.DELETING: AppState.RUNNING,
    DGXCloudState.TERMINATING: AppState.RUNNING,
    DGXCloudState.RUNNING: AppState.RUNNING,
    DGXCloudState.UPDATING: AppState.RUNNING,
    DGXCloudState.STOPPED: AppState.CANCELLED,
    # Shown for a while after a stop was accepted; the job cannot come back from it.
    DGXCloudState.STOPPING: AppState.CANCELLED,
    # Where a pod has failed; without that it may recover, and is RUNNING (see `_poll`).
    DGXCloudState.DEGRADED: AppState.FAILED,
    DGXCloudState.FAILED: AppState.FAILED,
    DGXCloudState.COMPLETED: AppState.SUCCEEDED,
    # Run:ai has not heard of its cluster for a while, which says nothing about the job: one that
    # was RUNNING is so still (see `_remember`).
    DGXCloudState.UNKNOWN: AppState.PENDING,
}

UNHEARD = "Run:ai cannot tell how it is at present"


@dataclass
class DGXRequest:
    """A job to be created.

    Attributes:
        cmd: what each pod runs.
        name: of the workload; no other submission has it.
    """

    app: AppDef = field(repr=False)  # has the environment in it
    executor: DGXCloudExecutor
    cmd: list[str]
    name: str


class DGXCloudScheduler(SchedulerMixin[DGXCloudExecutor, DGXRequest], Scheduler[dict[str, str]]):
    """Runs jobs as Run:ai trainings or distributed workloads, and asks Run:ai about them."""

    EXECUTOR: ClassVar[type[Executor]] = DGXCloudExecutor

    def __init__(self, session_name: str) -> None:
        super().__init__("dgx", session_name)

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("job_dir", type_=str, help="The directory of the job on this machine.")
        return opts

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return what is known of a job, of any process; None where nothing is."""
        return super().describe(app_id)

    def list(self) -> list[ListAppResponse]:
        """Return the jobs that were submitted from this home directory, the latest first."""
        return super().list()

    def schedule(self, dryrun_info: AppDryRunInfo[DGXRequest]) -> str:
        """Move the job's files to the volume, create its workload, and return its app id."""
        return super().schedule(dryrun_info)

    def _plan(self, app: AppDef, executor: DGXCloudExecutor) -> DGXRequest:
        executor.check()
        role = app.roles[0]
        role.num_replicas = executor.nodes
        # The link of that name can only be made where the container runs as root.
        role.args = [_on_volume(arg, executor.place) for arg in role.args]
        name = workload_name(role.name, app.metadata[TAG])
        request = DGXRequest(
            app=app,
            executor=executor,
            cmd=["/bin/bash", jobs.script_path(executor, name)],
            name=name,
        )
        _script(request).materialize()  # says what is wrong with it
        return request

    def _describe_request(self, request: DGXRequest) -> str:
        site = _unresolved_site(request.executor)
        body = jobs.payload(
            request.executor, site, name=request.name, tag=request.app.metadata[TAG]
        )
        # What makes the name unique is not worth seeing before it exists.
        shown = request.name.rpartition("-")[0] + "-*"
        # Those of custom_spec are there by the user's own will, and not masked yet.
        body["spec"]["environmentVariables"] = [
            masked_variable(variable) for variable in body["spec"]["environmentVariables"] or ()
        ]
        text = f"POST {masked_text(site.base_url)}/workloads/{request.executor._kind}\n"
        text += json.dumps(body, indent=2) + "\n\n" + repr(_script(request))
        return text.replace(request.name, shown)

    def _planned_id(self, request: DGXRequest) -> str:
        role = request.app.roles[0].name
        return planned_id(request.executor.experiment_id, role, request.name)

    def _planned_ref(self, record: JobRecord) -> JobRef | None:
        return refs.NOTES.read(record.job_dir, name_in(record.app_id))

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        index = Path(get_nemorun_home()) / LEGACY_INDEX
        return legacy.find(index, app_id, self._scheduler_name())

    def _launch(self, request: DGXRequest) -> JobRef:
        executor, name = request.executor, request.name
        site = jobs.site_of(executor).found()
        ref = JobRef(native_id="", where=_where(request, site))
        refs.NOTES.write(ref)
        created = jobs.submit(
            executor,
            site,
            name=name,
            tag=request.app.metadata[TAG],
            script=_script(request).materialize(),
            wanted=lambda: refs.NOTES.check_wanted(ref),
        )
        ref = replace(ref, native_id=created.id)
        if refs.NOTES.is_cancelled(ref):
            self._stop(ref)
        return ref

    def _poll(self, ref: JobRef) -> JobStatus:
        site, kind = refs.site_of(ref), refs.kind_of(ref)
        client = site.client()
        workload = refs.find_workload(client, ref)
        if workload is None:
            if refs.NOTES.is_cancelled(ref):
                return JobStatus(
                    state=AppState.CANCELLED, message="cancelled before it was created"
                )
            return JobStatus(state=AppState.UNSUBMITTED)
        phase = DGXCloudState.of(workload.phase)
        # Run:ai goes from Creating to Initializing and to Pending; as states, they do not go back.
        state = max(AppState.PENDING, DGX_STATES[phase])
        message = workload.message if state is AppState.CANCELLED else ""
        status = JobStatus(
            state=state,
            message=UNHEARD if phase is DGXCloudState.UNKNOWN and workload.phase else message,
            url=f"{site.base_url}/workloads/{kind}/{workload.id}",
        )
        if state not in (AppState.SUCCEEDED, AppState.FAILED):
            return status
        failed = state is AppState.FAILED
        found = jobs.ending(
            client, site.kube(), workload.id, replicas=int(ref.where["nodes"]), failed=failed
        )
        if phase is DGXCloudState.DEGRADED and not found.exit_code:
            return replace(
                status, state=AppState.RUNNING, message="degraded: not all of its pods are well"
            )
        return replace(
            status,
            exit_code=found.exit_code if failed else 0,
            message=workload.message or found.reason if failed else "",
            restarts=found.restarts,
            started_at=found.started_at,
            ended_at=found.ended_at,
        )

    def _remember(self, record: JobRecord, status: JobStatus) -> JobStatus:
        if status.message == UNHEARD and record.state == AppState.RUNNING.name:
            status = replace(status, state=AppState.RUNNING)  # as it was when Run:ai last knew
        return super()._remember(record, status)

    def _stop(self, ref: JobRef) -> None:
        site = refs.patient_site_of(ref)
        workload = self._to_be_stopped(site.client(), ref)
        if workload is not None:
            jobs.stop(site.client(), refs.kind_of(ref), workload.id)

    def _kill(self, ref: JobRef) -> None:
        site, kind = refs.patient_site_of(ref), refs.kind_of(ref)
        client, kube = site.client(), site.kube()
        workload = self._to_be_stopped(client, ref)
        if workload is None:
            return
        pods = client.pods(workload.id)
        try:
            client.suspend(kind, workload.id)
        except JobNotFoundError:
            return
        for pod in pods:
            kube.delete_pod(pod.name, grace_s=0)
        jobs.stop(client, kind, workload.id)

    def _to_be_stopped(self, client: RunAI, ref: JobRef) -> Workload | None:
        """Return the workload, after telling its launcher if it is not there yet."""
        workload = refs.find_workload(client, ref)
        if workload is None and not ref.native_id:
            refs.NOTES.cancel(ref)
            workload = refs.find_workload(client, ref)
        return workload

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        if query.stream is not Stream.COMBINED:
            raise UnsupportedError(
                f"A pod has one log for both streams, so {query.stream.name} alone cannot be had."
            )
        return self._read(ref, query)

    def _read(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        site = refs.site_of(ref)
        if not site.project_id:  # of a job that 0.12 submitted
            site = logs.answer(site.found, follow=query.follow)
        client = site.client()
        workload = logs.answer(lambda: refs.find_workload(client, ref), follow=query.follow)
        if workload is None:
            return
        where = ref.where
        window = Window(since=query.since, until=query.until)
        mounted = where["mounted"] == "yes"
        volume = site.volume(
            mounted=mounted,
            pvcs=json.loads(where["pvcs"]),
            security=json.loads(where["security"]),
            home=where["pvc_home"],
        )
        pattern = logs.files_of(where["name"], query.replica, int(where["nodes"]))

        def ended() -> bool:
            return refs.has_ended(client, ref)

        if mounted and not window:
            yield from logs.read_files(
                volume, where["pvc_job_dir"], pattern, follow=query.follow, ended=ended
            )
            return
        yield from logs.WorkloadLogs(client, site.kube(), workload.id, query.replica, window).read(
            follow=query.follow,
            last_only=query.last_only,
            ended=ended,
            otherwise=lambda: volume.read(where["pvc_job_dir"], pattern),
        )


def create_scheduler(session_name: str, **kwargs: Any) -> DGXCloudScheduler:
    """Return a scheduler for DGX Cloud."""
    return DGXCloudScheduler(session_name)


def _script(request: DGXRequest) -> DGXCloudRequest:
    role = request.app.roles[0]
    return DGXCloudRequest(
        launch_cmd=[role.entrypoint, *role.args],
        jobs=[role.name],
        executor=request.executor,
        max_retries=role.max_retries,
        extra_env=role.env,
        launcher=request.executor.launcher_in_use(),
    )


def _on_volume(arg: str, pvc_job_dir: str) -> str:
    if isinstance(arg, literal) or not arg.startswith(f"{RUNDIR}/"):
        return arg
    return pvc_job_dir + arg[len(RUNDIR) :]


def _unresolved_site(executor: DGXCloudExecutor) -> Site:
    """Return the site to be shown, its project not looked up."""
    return Site(
        base_url=executor.base_url,
        kube_url=executor.kube_apiserver_url,
        client_id=executor.client_id,
        secret="",
        project=executor.project_name,
        project_id=f"<of {executor.project_name}>",
        cluster_id=f"<of {executor.project_name}>",
    )


def _where(request: DGXRequest, site: Site) -> dict[str, str]:
    executor = request.executor
    return {
        **site.to_where(),
        "kind": executor._kind,
        "name": request.name,
        "nodes": str(executor.nodes),
        "job_dir": executor.job_dir,
        "pvc_home": executor.pvc_nemo_run_dir,
        "pvc_job_dir": executor.place,
        "mounted": "yes" if executor.launched_from_cluster else "no",
        "pvcs": json.dumps(executor.pvcs),
        "security": json.dumps(executor.custom_spec.get("security") or {}),
    }
