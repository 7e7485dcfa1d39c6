"""Whether a `KubeflowExecutor` could be used: asked before a job, and by ``nemorun doctor``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nemo_run._backends.kubeflow.client import GROUP, TRAINJOBS, Cluster
from nemo_run._backends.kubeflow.manifests import NODE
from nemo_run._backends.kubeflow.site import BACKEND, Site
from nemo_run.core.execution.checks import Finding, attempt
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
    NemoRunError,
    SubmitError,
)

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Right:
    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        below = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.resource}{below}"


_ALWAYS = (
    _Right("create", TRAINJOBS, GROUP),
    _Right("get", TRAINJOBS, GROUP),
    _Right("delete", TRAINJOBS, GROUP),
    _Right("create", "secrets"),
    _Right("get", "secrets"),
    _Right("patch", "secrets"),
    _Right("delete", "secrets"),
    _Right("list", "pods"),
    _Right("get", "pods"),
    _Right("delete", "pods"),
    _Right("get", "pods", subresource="log"),
)
_known_rights: set[tuple[str, str, _Right]] = set()
_WITH_VOLUME = (
    _Right("create", "pods"),
    _Right("create", "pods", subresource="exec"),
)


def preflight(cluster: Cluster, executor: KubeflowExecutor) -> None:
    """Find what would keep a job from running, before anything is made in the cluster.

    What the cluster does not let us look at is left to it.

    Raises:
        SubmitError: says what is missing and what to do.
        BackendUnavailableError: the cluster cannot be asked.
    """
    for look in (_check_namespace, _check_rights, _check_runtime, _check_claim):
        try:
            look(cluster, executor)
        except AuthenticationError as err:
            log.debug("not looked at: %s", err)


def diagnose(executor: KubeflowExecutor) -> Iterator[Finding]:
    """Yield a finding for each thing that a job needs, up to the first it cannot do without."""
    yield attempt("settings", executor.check)
    try:
        cluster = Site.current(executor.namespace).cluster()
    except NemoRunError as err:
        yield Finding("cluster", "failed", str(err))
        return
    site = cluster.site

    def reach() -> str:
        check_kubeflow(cluster)
        return f"{site.server}, context {site.context}" if site.context else site.server

    reached = attempt("cluster", reach)
    yield reached
    if reached.verdict == "failed":
        return
    yield _look("namespace", cluster, executor)
    yield _look("rights", cluster, executor)
    yield _look("runtime", cluster, executor)
    if executor.workdir_pvc:
        yield _look("volume", cluster, executor)
    else:
        yield Finding("volume", "ok", "none: files travel with the job, logs go with its pods")
    yield Finding("image", "unknown", f"{executor.image} is pulled when a job starts.")


def _look(subject: str, cluster: Cluster, executor: KubeflowExecutor) -> Finding:
    look = {
        "namespace": _check_namespace,
        "rights": _check_rights,
        "runtime": _check_runtime,
        "volume": _check_claim,
    }[subject]
    try:
        return Finding(subject, "ok", look(cluster, executor))
    except AuthenticationError as err:
        return Finding(subject, "unknown", f"Kubernetes does not let this user look: {err.detail}")
    except NemoRunError as err:
        return Finding(subject, "failed", str(err))


def check_kubeflow(cluster: Cluster) -> None:
    """Find out whether the cluster lets us in and knows what a TrainJob is.

    Raises:
        SubmitError: says which of these is not so.
        BackendUnavailableError: the cluster cannot be asked.
    """
    try:
        served = cluster.is_served()
    except BackendUnavailableError:
        raise
    except AuthenticationError as err:
        raise _missing(
            f"The cluster at {cluster.site.server} does not let us in: {err.detail}. Check the "
            f"credentials of context {cluster.site.context!r}."
        ) from err
    except BackendError as err:
        raise _missing(str(err)) from err
    if not served:
        raise _missing(
            f"The cluster at {cluster.site.server} does not know TrainJobs ({GROUP}). Install "
            f"Kubeflow Trainer there, or switch to another context than {cluster.site.context!r}."
        )


def _check_namespace(cluster: Cluster, executor: KubeflowExecutor) -> str:
    try:
        cluster.check_namespace()
    except JobNotFoundError as err:
        raise _missing(
            f"There is no namespace {executor.namespace!r} at {cluster.site.server}. Set "
            "`namespace` to one of yours."
        ) from err
    return executor.namespace


def _check_rights(cluster: Cluster, executor: KubeflowExecutor) -> str:
    rights = (*_ALWAYS, *(_WITH_VOLUME if executor.workdir_pvc else ()))
    lacking = [str(right) for right in rights if not _granted(cluster, right)]
    if lacking:
        raise _missing(
            f"In namespace {executor.namespace!r} we may not: {', '.join(lacking)}. Ask the "
            "cluster's administrators for a role that allows it."
        )
    return ", ".join(map(str, rights))


def _granted(cluster: Cluster, right: _Right) -> bool:
    """Tell whether we may do something; what we once might is not asked for again."""
    known = (cluster.site.server, cluster.namespace, right)
    if known in _known_rights:
        return True
    allowed = cluster.allows(
        right.verb, right.resource, group=right.group, subresource=right.subresource
    )
    if allowed:
        _known_rights.add(known)
    return allowed


def _check_runtime(cluster: Cluster, executor: KubeflowExecutor) -> str:
    try:
        names = cluster.runtime_jobs(executor.runtime_ref)
    except JobNotFoundError as err:
        raise _missing(
            f"The cluster has no ClusterTrainingRuntime {executor.runtime_ref!r}. Set "
            "`runtime_ref` to one that `kubectl get clustertrainingruntimes` shows."
        ) from err
    if NODE not in names:
        raise _missing(
            f"ClusterTrainingRuntime {executor.runtime_ref!r} has no job {NODE!r}, which is what "
            f"our task would run in; it has: {', '.join(names)}. Use another one."
        )
    return executor.runtime_ref


def _check_claim(cluster: Cluster, executor: KubeflowExecutor) -> str:
    if not executor.workdir_pvc:
        return ""
    try:
        phase = cluster.claim_phase(executor.workdir_pvc)
    except JobNotFoundError as err:
        raise _missing(
            f"Namespace {executor.namespace!r} has no PersistentVolumeClaim "
            f"{executor.workdir_pvc!r}. Set `workdir_pvc` to one that is there."
        ) from err
    return f"{executor.workdir_pvc} ({phase}), mounted at {executor.workdir_pvc_path}"


def _missing(text: str) -> SubmitError:
    return SubmitError(text, backend=BACKEND, operation="check")
