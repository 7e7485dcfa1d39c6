"""Submit, watch and stop jobs on Run:ai; what scheduler and executor have in common."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from nemo_run._backends.kubernetes import pods as kubernetes_pods
from nemo_run._backends.kubernetes.pods import PLAIN_REASONS, failed_first
from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._backends.runai import payloads
from nemo_run._backends.runai.client import (
    BACKEND,
    SUBMIT_PATIENCE_S,
    Kind,
    Pod,
    RunAI,
    Workload,
)
from nemo_run._backends.runai.site import Site, stored_secret
from nemo_run._backends.runai.volume import Code, Item, Volume
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
    SubmitError,
)

if TYPE_CHECKING:
    from nemo_run.core.execution.dgxcloud import DGXCloudExecutor

log = logging.getLogger(__name__)

STOP_S = 120.0
"""How long a workload may take to stop; Kubernetes gives its pods half a minute."""
_POLL_S = (0.1, 3.0)
_STAGING_HINT = (
    ". Files go through the cluster's API server, kube_apiserver_url, which must accept Run:ai's "
    "tokens and let this client run commands in pods. From a pod that has the volume, use "
    "launched_from_cluster=True."
)
_STOPPED = frozenset({"Stopped", "Completed", "Failed"})
EXIT_CODE_S = 180.0
"""How long after the end of a pod its exit code is worth waiting for."""


def site_of(executor: DGXCloudExecutor) -> Site:
    """Return where jobs of ``executor`` go; a literal secret is kept, so that others find it."""
    return Site(
        base_url=executor.base_url,
        kube_url=executor.kube_apiserver_url,
        client_id=executor.client_id,
        secret=stored_secret(executor.base_url, executor.client_id, executor.client_secret),
        project=executor.project_name,
        patience_s=SUBMIT_PATIENCE_S,
    )


def volume_of(executor: DGXCloudExecutor, site: Site) -> Volume:
    return site.volume(
        mounted=executor.launched_from_cluster,
        pvcs=executor.pvcs,
        security=executor.custom_spec.get("security") or {},
        home=executor.pvc_nemo_run_dir,
    )


def script_path(executor: DGXCloudExecutor, name: str) -> str:
    """Return where the script of a workload is, on the volume: a path without blanks or quotes."""
    return str(PurePosixPath(executor.pvc_nemo_run_dir) / ".dgx_cloud" / name / "launch_script.sh")


def payload(
    executor: DGXCloudExecutor, site: Site, *, name: str, tag: str, script: str = ""
) -> dict[str, Any]:
    """Return the body that creates a job whose script is on the volume, as `script_path` says."""
    return payloads.job(
        name=name,
        project=site.as_project,
        script=script or script_path(executor, name),
        image=executor.container_image,
        pvcs=executor.pvcs,
        gpus=executor.gpus_per_node,
        nodes=executor.nodes,
        framework=executor.distributed_framework,
        retries=executor.retries,
        env=executor.env_vars,
        tag=tag,
        custom=executor.custom_spec,
    )


def submit(
    executor: DGXCloudExecutor,
    site: Site,
    *,
    name: str,
    tag: str,
    script: str,
    wanted: Callable[[], None] = lambda: None,
) -> Workload:
    """Move the files of a job to the volume and create its workload, unless that is there.

    ``wanted`` is called right before it is created, and raises if it is not any more.

    Raises:
        SubmitError: it was not created.
        BackendUnavailableError: Run:ai did not answer whether it was.
    """
    client = site.client()
    try:
        found = client.find(name, site.project_id)
        if found is not None:
            return found
        volume_of(executor, site).put(
            [Item(path=executor.place, source=Path(executor.job_dir))],
            last=Item(path=script_path(executor, name), text=script),
            code=_code(executor),
        )
    except SubmitError:
        raise
    except BackendError as err:
        raise _refused(name, err, hint=_STAGING_HINT) from err
    wanted()
    try:
        return client.create_named(executor._kind, payload(executor, site, name=name, tag=tag))
    except BackendUnavailableError:
        raise
    except BackendError as err:
        raise _refused(name, err) from err


def _code(executor: DGXCloudExecutor) -> Code | None:
    """Return what the code of a job came in, if that is an archive that we keep."""
    # One that was not assigned to a job has no name.
    archive = Path(executor.job_dir) / f"{getattr(executor, 'job_name', '')}.tar.gz"
    if not archive.is_file():
        return None
    from nemo_run.core.packaging._store import find, hash_of

    kept = find(hash_of(archive))
    return Code(archive=kept, path=f"{executor.pvc_job_dir}/code") if kept else None


def _refused(name: str, err: BackendError, *, hint: str = "") -> SubmitError:
    return SubmitError(
        f"Job {name} was not submitted to DGX Cloud: {err}{hint}",
        backend=BACKEND,
        operation="submit",
        detail=err.detail,
    )


def stop(client: RunAI, kind: Kind, workload_id: str, *, stop_s: float = STOP_S) -> None:
    """Suspend a workload and return when it has stopped, or is gone.

    Raises:
        BackendError: it goes on.
    """
    try:
        if client.get(kind, workload_id).phase not in _STOPPED:
            client.suspend(kind, workload_id)
        wait_stopped(client, kind, workload_id, stop_s=stop_s)
    except JobNotFoundError:
        log.debug("%s is gone", workload_id)


def wait_stopped(client: RunAI, kind: Kind, workload_id: str, *, stop_s: float = STOP_S) -> None:
    """Return when a workload has stopped; see `stop`."""
    waiting = Waiting(*_POLL_S, timeout_s=stop_s)
    while (phase := client.get(kind, workload_id).phase) not in _STOPPED:
        if waiting.is_over:
            raise BackendError(
                f"Run:ai was asked to stop workload {workload_id}, but it is {phase} after "
                f"{stop_s:.0f} s. Ask again, or look at it in Run:ai.",
                backend=BACKEND,
                operation="cancel",
                detail=phase,
            )
        waiting.pause()


def has_ended(client: RunAI, kind: Kind, workload_id: str) -> bool:
    try:
        return client.get(kind, workload_id).phase in _STOPPED
    except JobNotFoundError:
        return True


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What the pods of a workload tell about how it went."""

    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None


def ending(
    client: RunAI, kube: Kube, workload_id: str, *, replicas: int, failed: bool = True
) -> Ending:
    """Return what can be found out, exit codes where it has ``failed``.

    Raises:
        BackendUnavailableError: more can be found out a little later.
    """
    try:
        pods = client.pods(workload_id)
    except JobNotFoundError as err:
        log.info("%s: its pods are not known: %s", workload_id, err)
        return Ending()
    # Of the last attempt, the pod that failed first: the others were ended for it.
    last = sorted(pods[-replicas:], key=lambda pod: pod.completed_at or float("inf"))
    asked = last if failed else []
    states = [state for state in (_pod_state(kube, pod) for pod in asked) if state is not None]
    bad = failed_first(states)
    # A pod that never started has no end, and says what it waits for.
    reasons = (bad.reason if bad else "", *(state.waits_for for state in states))
    return Ending(
        exit_code=bad.exit_code if bad else None,
        reason=next((reason for reason in reasons if reason not in PLAIN_REASONS), ""),
        restarts=max(0, len(pods) - replicas),
        started_at=min((p.started_at for p in pods if p.started_at is not None), default=None),
        ended_at=max((p.completed_at for p in pods if p.completed_at is not None), default=None),
    )


def _pod_state(kube: Kube, pod: Pod) -> kubernetes_pods.Pod | None:
    try:
        return kube.pod(pod.name)
    except BackendError as err:
        age_s = float("inf") if pod.completed_at is None else time.time() - pod.completed_at
        if isinstance(err, BackendUnavailableError) and 0 <= age_s < EXIT_CODE_S:
            raise
        log.info("%s: its exit code is not known: %s", pod.name, err)
        return None
