"""Submit, look at and end RayClusters and RayJobs; what clusters and jobs have in common."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nemo_run._backends.kubernetes.pods import Pod
from nemo_run._backends.ray.kuberay.client import BACKEND, KubeRay, RayObject
from nemo_run._backends.ray.kuberay.logs import submitters
from nemo_run._backends.ray.kuberay.manifests import (
    PLURAL,
    secret_body,
    secret_name,
    tagged,
)
from nemo_run._transport.http import Conflict
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendError, BackendUnavailableError, SubmitError

if TYPE_CHECKING:
    from nemo_run.core.execution.kuberay import KubeRayExecutor

log = logging.getLogger(__name__)

SUBMIT_PATIENCE_S, STOP_PATIENCE_S = 120.0, 20.0
_GOING_ON = frozenset({"RUNNING", "PENDING"})
_ENDED = frozenset({"Complete", "Failed"})
_LOST = (
    "the head of its Ray cluster was started again and does not know the job any more; "
    "what ran of it has ended"
)


class KubeRaySubmitError(SubmitError, RuntimeError):
    """An object was not created. Also a ``RuntimeError``, since scripts may have caught that."""


def submit(
    api: KubeRay, executor: KubeRayExecutor, plural: str, body: Mapping[str, Any], tag: str
) -> RayObject:
    """Create an object and the secret of its variables; an answer that was lost is asked for.

    Raises:
        KubeRaySubmitError: it was not created.
        BackendUnavailableError: whether it was is not known now.
    """
    name = body["metadata"]["name"]
    secret = secret_body(executor, name, tag)
    try:
        if secret is not None:
            _put_secret(api, secret)
        try:
            found = api.create(plural, tagged(body, tag))
        except Conflict:
            # Of an earlier attempt whose answer was lost, if it has our tag.
            there = api.find(plural, name)
            if there is None or there.tag != tag:
                raise
            found = there
    except BackendUnavailableError:
        raise
    except BackendError as err:
        if secret is not None:
            api.delete_secret(secret_name(name))
        raise KubeRaySubmitError(
            f"{name} was not submitted to Kubernetes: {err}",
            backend=BACKEND,
            operation="submit",
            detail=err.detail,
        ) from err
    if secret is not None:
        api.patch_secret(secret_name(name), found.owner)
    _warn_of_open_dashboard(executor, body, found)
    return found


def _put_secret(api: KubeRay, body: Mapping[str, Any]) -> None:
    name = body["metadata"]["name"]
    try:
        api.create_secret(body)
    except Conflict:
        # Of an object that is gone, or of an attempt whose answer was lost.
        api.delete_secret(name)
        api.create_secret(body)


def _warn_of_open_dashboard(
    executor: KubeRayExecutor, body: Mapping[str, Any], found: RayObject
) -> None:
    def asks(spec: Mapping[str, Any]) -> bool:
        return "authOptions" in spec.get("rayClusterSpec", spec)

    if asks(body["spec"]) and not asks(found.spec):
        log.warning(
            "%s: this KubeRay does not know tokens, so the dashboard runs commands of every client "
            "of the cluster's network. Restrict it by a NetworkPolicy, or update KubeRay to 1.5.",
            found.name,
        )
    elif executor.service_type != "ClusterIP" and not asks(body["spec"]):
        log.warning(
            "%s: service_type=%s opens the dashboard, which runs commands of every client and asks "
            "for no token before Ray 2.52. Use ClusterIP and port_forward().",
            found.name,
            executor.service_type,
        )


def pods_of(api: KubeRay, plural: str, name: str, found: RayObject | None) -> list[Pod]:
    """Return the pods that belong to an object."""
    if plural == PLURAL:
        return api.ray_pods(name)
    cluster = found.said("rayClusterName") if found is not None else ""
    return [*submitters(api, name), *(api.ray_pods(cluster) if cluster else ())]


def wait_gone(api: KubeRay, plural: str, name: str, *, timeout_s: float, poll_s: float) -> bool:
    """Wait until an object and its pods are gone; False if they are not in that time."""
    waiting = Waiting(min(0.1, poll_s), poll_s, timeout_s=timeout_s)
    last = api.find(plural, name)
    while True:
        found = api.find(plural, name)
        last = found or last
        if found is None and not pods_of(api, plural, name, last):
            return True
        if waiting.is_over:
            return False
        waiting.pause()


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """How a RayJob is, in the operator's words; corrected where the operator cannot know.

    Attributes:
        message: why, where there is something to say.
    """

    job: str
    deployment: str
    message: str = ""

    @property
    def has_ended(self) -> bool:
        return self.deployment in _ENDED

    @property
    def outcome(self) -> str:
        """The state of an ended job for its record."""
        if self.job == "SUCCEEDED":
            return "SUCCEEDED"
        return "CANCELLED" if self.job == "STOPPED" else "FAILED"


def seen(api: KubeRay, job: RayObject) -> SeenJob:
    """Return how a RayJob is."""
    status = job.said("jobStatus") or "UNKNOWN"
    deployment = job.said("jobDeploymentStatus") or "UNKNOWN"
    if deployment == "Running" and status in _GOING_ON and _is_lost(api, job):
        # The operator waits for ever for a job that no head knows (kuberay#2359, #3903).
        return SeenJob(job="FAILED", deployment="Failed", message=_LOST)
    said = ": ".join(filter(None, (job.said("reason"), job.said("message"))))
    if job.deleting:
        said = said or "it is being deleted"
    return SeenJob(job=status, deployment=deployment, message=said)


def _is_lost(api: KubeRay, job: RayObject) -> bool:
    cluster = job.said("rayClusterName")
    head, tries = api.head(cluster), submitters(api, job.name)
    if head is None or not tries or not _all_ended(tries):
        return False  # a submitter that runs may still submit it
    restarted = any(item.restarts for item in head.containers)
    if not restarted and head.created_at <= tries[-1].created_at:
        return False
    return api.knows_job(cluster, job.said("jobId")) is False


def _all_ended(pods: list[Pod]) -> bool:
    return all(pod.phase in ("Succeeded", "Failed") for pod in pods)


def why_not_ready(api: KubeRay, cluster: str) -> str:
    """Return what keeps the pods of a Ray cluster from running, as far as Kubernetes says."""
    for pod in api.ray_pods(cluster):
        unscheduled = (c for c in pod.conditions if c.kind == "PodScheduled" and not c.holds)
        said = pod.waits_for or next(map(str, unscheduled), "")
        if said:
            return f"pod {pod.name}: {said}"
    return ""


def is_ready(pod: Pod) -> bool:
    """Tell whether a pod runs and says that it can be used."""
    conditions = {item.kind: item.holds for item in pod.conditions}
    return pod.phase == "Running" and conditions.get("Ready", False)
