"""Submit, watch and end TrainJobs; what scheduler and executor have in common."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._backends.kubeflow import manifests
from nemo_run._backends.kubeflow.client import Cluster, TrainJob
from nemo_run._backends.kubeflow.pods import nodes_of
from nemo_run._backends.kubeflow.script import STATE_DIR, Outcome, is_script
from nemo_run._backends.kubeflow.site import BACKEND, Site
from nemo_run._backends.kubeflow.volume import FOLDER, WorkVolume, packed
from nemo_run._transport.http import Conflict
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    JobNotFoundError,
    SubmitError,
)

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import KubeflowExecutor
    from nemo_run.core.execution.leftovers import Leftover

log = logging.getLogger(__name__)

SUBMIT_PATIENCE_S = 120.0
STOP_PATIENCE_S = 20.0
STOP_S = 300.0
"""How long a job may take to end; Kubernetes gives its pods half a minute."""
MOST_BYTES = 900_000
"""Of a secret: Kubernetes takes one MiB of each, and more in base64."""
_POLL_S = (0.1, 3.0)
_END = re.compile(rb"^end-([0-9]{1,9}) ([0-9a-f ]{1,60})$", re.MULTILINE)


def submit(
    executor: KubeflowExecutor,
    site: Site,
    *,
    name: str,
    tag: str,
    script: str,
    nonce: str,
    wanted: Callable[[], None] = lambda: None,
) -> TrainJob:
    """Bring the files of a job to where it runs and create its TrainJob, unless that is there.

    ``nonce`` is the one that ``script`` was made with. ``wanted`` is called right before the
    TrainJob is created, and raises if it is not wanted any more.

    Raises:
        SubmitError: it was not created.
        BackendUnavailableError: nor was it now; it may have been by an earlier attempt.
        ConnectionLostError: the cluster did not answer whether it was.
    """
    from nemo_run._backends.kubeflow.checks import check_kubeflow, preflight

    cluster = site.cluster()
    try:
        check_kubeflow(cluster)
        found = find(cluster, name, tag)
        if found is None:
            preflight(cluster, executor)
            data = {manifests.SCRIPT_KEY: script.encode("utf-8", "surrogateescape")}
            if executor.workdir_pvc:
                volume = WorkVolume.of(executor, cluster, name)
                place = executor.code_dir
                volume.put(
                    _directory(executor),
                    place,
                    without=staying(executor),
                    seal=f"{STATE_DIR}/{name}/placed",
                )
            else:
                data[manifests.FILES_KEY] = _files(executor)
            wanted()
            body = manifests.secret_body(executor, name, tag=tag, data=data)
            with _in_doubt(name):
                _put_secret(cluster, body, tag)
    except (SubmitError, BackendUnavailableError):
        raise
    except BackendError as err:
        raise _refused(name, err) from err
    if found is None:
        found = _create(cluster, executor, name, tag=tag, nonce=nonce)
    give_secret(cluster, found)
    return found


def _directory(executor: KubeflowExecutor) -> Path | None:
    """Return the directory of the job; an executor that belongs to none has no files."""
    return Path(executor.job_dir) if executor.job_dir else None


def staying(executor: KubeflowExecutor) -> set[str]:
    """Return what we have in the directory of a job that is not for the job to see."""
    names = {FOLDER, f"{executor.job_name}.tar.gz"}
    if is_script(Path(executor.job_dir, manifests.SCRIPT_KEY)):
        names.add(manifests.SCRIPT_KEY)
    return names


def _files(executor: KubeflowExecutor) -> bytes:
    data = packed(_directory(executor), staying(executor))
    if len(data) > MOST_BYTES:
        raise SubmitError(
            f"The files of the job are {len(data) / 1e6:.1f} MB when packed, and without a volume "
            f"at most {MOST_BYTES / 1e6:.1f} MB can travel. Set workdir_pvc to the claim of a "
            "volume, or have the packager take less.",
            backend=BACKEND,
            operation="stage",
        )
    return data


def _put_secret(cluster: Cluster, body: Mapping[str, Any], tag: str) -> None:
    try:
        cluster.create_secret(body)
    except Conflict:
        name = body["metadata"]["name"]
        try:
            theirs = cluster.secret_tag(name)
        except AuthenticationError:
            # By its name it is ours, of an attempt whose answer was lost; only we remove it.
            remove_secret(cluster, name)
            raise
        if theirs != tag:
            raise


def _create(
    cluster: Cluster, executor: KubeflowExecutor, name: str, *, tag: str, nonce: str
) -> TrainJob:
    body = manifests.submitted_body(executor, name, command(), tag=tag, nonce=nonce)
    try:
        with _in_doubt(name):
            return cluster.create_trainjob(body)
    except Conflict as err:
        # Of an earlier attempt whose answer was lost, if it has our tag.
        with _in_doubt(name):
            found = find(cluster, name, tag)
        if found is not None:
            return found
        remove_secret(cluster, name)
        raise _refused(name, err) from err
    except BackendUnavailableError:
        raise
    except BackendError as err:
        remove_secret(cluster, name)
        raise _refused(name, err) from err


@contextmanager
def _in_doubt(name: str) -> Iterator[None]:
    """Say of an outage that something of the job may have been made, so that it is asked about."""
    try:
        yield
    except BackendUnavailableError as err:
        raise ConnectionLostError(
            f"It is not known whether job {name} was submitted: {err}",
            backend=BACKEND,
            operation="submit",
            detail=err.detail,
        ) from err


def give_secret(cluster: Cluster, job: TrainJob) -> None:
    """Let the secret of a job go with it."""
    try:
        cluster.patch_secret(job.name, manifests.owned_by(job))
    except BackendError as err:
        log.warning("secret %s was not tied to its job, delete it after the job: %s", job.name, err)


def remove_secret(cluster: Cluster, name: str) -> None:
    """Delete the secret of a job that is over, also of one that was never created."""
    try:
        cluster.delete_secret(name)
    except BackendError as err:
        log.warning("secret %s could not be deleted, delete it yourself: %s", name, err)


def command() -> list[str]:
    """Return what every pod of a job runs."""
    return ["/bin/bash", f"{manifests.JOB_PATH}/{manifests.SCRIPT_KEY}"]


def name_in(job: str) -> str:
    """Return the name of a TrainJob, out of the id or handle of a job where that is given."""
    return job.rpartition("___")[2]


def find(cluster: Cluster, name: str, tag: str) -> TrainJob | None:
    """Return the TrainJob of a submission, None where there is none; an empty tag means any."""
    try:
        job = cluster.trainjob(name)
    except JobNotFoundError:
        return None
    return job if tag in ("", job.tag) else None


def _refused(name: str, err: BackendError) -> SubmitError:
    return SubmitError(
        f"Job {name} was not submitted to Kubernetes: {err}",
        backend=BACKEND,
        operation="submit",
        detail=err.detail,
    )


def stop(cluster: Cluster, name: str, *, at_once: bool = False, stop_s: float = STOP_S) -> None:
    """Delete a TrainJob and return when it and its pods are gone.

    Raises:
        BackendError: it goes on.
    """
    try:
        cluster.delete_trainjob(name)
    except JobNotFoundError:
        log.debug("%s is gone", name)
    if at_once:
        for pod in nodes_of(cluster, name):
            # With none at all, a pod would be gone before its node has ended what runs in it.
            cluster.delete_pod(pod.name, grace_s=1)
    if not wait_gone(cluster, name, timeout_s=stop_s):
        raise BackendError(
            f"Kubernetes was asked to delete job {name}, but its pods are still there after "
            f"{stop_s:.0f} s. Ask again, or look at it with kubectl.",
            backend=BACKEND,
            operation="cancel",
        )


def wait_gone(cluster: Cluster, name: str, *, timeout_s: float, poll_s: float = _POLL_S[1]) -> bool:
    """Wait until a TrainJob and its pods are gone; False if they are not in that time."""
    waiting = Waiting(min(_POLL_S[0], poll_s), poll_s, timeout_s=timeout_s)
    while find(cluster, name, "") is not None or nodes_of(cluster, name):
        if waiting.is_over:
            return False
        waiting.pause()
    return True


def state_dir(place: str, name: str) -> str:
    """Return where the pods of a job leave logs and outcomes, on the work volume."""
    return f"{place}/{STATE_DIR}/{name}"


def outcomes(volume: WorkVolume, place: str, name: str, nonce: str) -> dict[int, Outcome]:
    """Return how the task ended on each node, from what its pods left on the volume."""
    found = {}
    for match in _END.finditer(volume.listed(state_dir(place, name), "end-*")):
        outcome = Outcome.from_file(match[2].decode(), nonce)
        if outcome is not None:
            found[int(match[1])] = outcome
    return found


def leftovers(handle: str) -> Iterator[Leftover]:
    """Yield what the cluster keeps of an ended job."""
    from nemo_run._jobs.store import JobStore
    from nemo_run.core.execution.leftovers import Leftover, app_id_of

    record = JobStore().find(app_id_of(handle), BACKEND)
    if record is None or record.ref is None or not record.ref.where.get("name"):
        return
    where = record.ref.where
    name = where["name"]
    cluster = Site.from_where(where, patience_s=STOP_PATIENCE_S).cluster()

    def remove() -> None:
        if find(cluster, name, where["tag"]) is not None:
            stop(cluster, name)
        if where["tag"]:  # 0.12 makes none, so that it would be another job's
            cluster.delete_secret(name)

    yield Leftover(f"TrainJob {name} of namespace {where['namespace']}", remove)
