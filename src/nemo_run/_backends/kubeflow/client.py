"""The calls we make to a Kubernetes cluster with Kubeflow Trainer.

Requests are plain JSON, so that nothing is left out that a release of a client does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from nemo_run._backends.kubeflow.site import BACKEND, Site, way_to
from nemo_run._backends.kubernetes.pods import Condition, conditions_of
from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._transport.answers import Answer, decoded, expect
from nemo_run._transport.http import Http, Reply
from nemo_run.exceptions import BackendUnavailableError, JobNotFoundError

T = TypeVar("T")

GROUP, VERSION, TRAINJOBS = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
RUNTIMES = "clustertrainingruntimes"
TAG_LABEL = "nemo-run/tag"
MARK_LABEL = "nemo-run/mark"
"""Of a job whose script leaves a nonce: that. A pod does not see labels of its TrainJob."""
_API = f"/apis/{GROUP}/{VERSION}"


@dataclass(frozen=True, kw_only=True)
class Part:
    """How many pods of a part of a TrainJob are how far; Kubeflow calls a part a job."""

    active: int
    ready: int
    failed: int
    succeeded: int

    @classmethod
    def read(cls, answer: Answer) -> Part:
        words = ("active", "ready", "failed", "succeeded")
        return cls(**{word: answer.number(word, 0) for word in words})


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """A TrainJob as the cluster has it.

    Attributes:
        tag: of the submission that made it; empty where it is not one of ours.
        nonce: what is in all that its script leaves.
        deleting: whether it is being removed.
    """

    name: str
    uid: str
    tag: str
    nonce: str
    nodes: int
    deleting: bool
    conditions: tuple[Condition, ...]
    parts: tuple[Part, ...]

    @classmethod
    def read(cls, answer: Answer) -> TrainJob:
        metadata, status = answer.inner("metadata"), answer.inner("status")
        return cls(
            name=metadata.id("name"),
            uid=metadata.id("uid"),
            tag=metadata.texts("labels").get(TAG_LABEL, ""),
            nonce=metadata.texts("labels").get(MARK_LABEL, ""),
            nodes=answer.inner("spec").inner("trainer").number("numNodes", 1),
            deleting=metadata.has("deletionTimestamp"),
            conditions=conditions_of(status),
            parts=tuple(map(Part.read, status.items("jobsStatus"))),
        )


class Cluster(Kube):
    """One namespace of a cluster. Safe to use from several threads, and after a fork."""

    def __init__(self, site: Site) -> None:
        super().__init__(
            Http(
                lambda refused: way_to(site, renewed=refused is not None),
                backend=BACKEND,
                patience_s=site.patience_s,
                server=site.server or "The cluster",
            ),
            site.namespace,
        )
        self.site = site

    # TrainJobs.

    def trainjob(self, name: str) -> TrainJob:
        """Return a TrainJob.

        Raises:
            JobNotFoundError: there is none.
        """
        return self._if_served(lambda: self.http.ask("GET", self._jobs(name), _called(name)))

    def create_trainjob(self, body: Mapping[str, Any]) -> TrainJob:
        """Create a TrainJob.

        Raises:
            Conflict: there is one of that name.
        """
        metadata = body["metadata"]
        read = _called(metadata["name"], (metadata.get("labels") or {}).get(TAG_LABEL, ""))
        return self.http.ask("POST", self._jobs(), read, body=body)

    def delete_trainjob(self, name: str) -> None:
        """Remove a TrainJob; it is there until all that belongs to it is gone.

        Raises:
            JobNotFoundError: there is none.
        """
        query = {"propagationPolicy": "Foreground"}
        self._if_served(lambda: self.http.do("DELETE", self._jobs(name), query=query))

    def _jobs(self, name: str = "") -> str:
        return self.path(TRAINJOBS, name, group=f"{GROUP}/{VERSION}")

    def _if_served(self, act: Callable[[], T]) -> T:
        """Have "not found" said only by a cluster that knows what a TrainJob is."""
        try:
            return act()
        except (JobNotFoundError, BackendUnavailableError) as err:
            if not err.detail.startswith("404") or self.is_served():
                raise
            # Kubeflow is being upgraded, or a gateway answers: no word about the job.
            raise BackendUnavailableError(
                f"{err}: no TrainJobs are known",
                backend=BACKEND,
                operation=err.operation,
                detail=f"{err.detail}: no TrainJobs are known",
            ) from err

    def is_served(self) -> bool:
        """Tell whether the cluster knows what a TrainJob is."""

        def take(reply: Reply) -> bool:
            resources = Answer(decoded(reply.body)).items("resources", required=True)
            return any(item.text("name", "") == TRAINJOBS for item in resources)

        # An API server says it in plain words, not by an object.
        return self.http.call("GET", _API, take, missing=False)

    def runtime_jobs(self, name: str) -> list[str]:
        """Return the names of the jobs that a ClusterTrainingRuntime consists of."""

        def read(answer: Answer) -> list[str]:
            template = answer.inner("spec").inner("template").inner("spec")
            return [item.text("name", "") for item in template.items("replicatedJobs")]

        return self.http.ask("GET", f"{_API}/{RUNTIMES}/{quote(name, safe='')}", read)

    # What every cluster has.

    def create_secret(self, body: Mapping[str, Any]) -> None:
        """Create a secret.

        Raises:
            Conflict: there is one of that name.
        """
        name = body["metadata"]["name"]
        self.http.ask("POST", self.path("secrets"), _name_is(name), body=body)

    def secret_tag(self, name: str) -> str:
        """Return the tag of the submission that made a secret; empty where none of ours did."""

        def read(answer: Answer) -> str:
            return answer.inner("metadata").texts("labels").get(TAG_LABEL, "")

        return self.http.ask("GET", self.path("secrets", name), read)

    def patch_secret(self, name: str, changes: Mapping[str, Any]) -> None:
        self.http.ask("PATCH", self.path("secrets", name), _name_is(name), body=changes)

    def delete_secret(self, name: str) -> None:
        """Remove a secret; removing what is gone is fine."""
        self.delete(self.path("secrets", name))

    def claim_phase(self, name: str) -> str:
        """Return how the claim of a volume is, such as ``Bound``."""

        def read(answer: Answer) -> str:
            return answer.inner("status").text("phase", "")

        return self.http.ask("GET", self.path("persistentvolumeclaims", name), read)

    def check_namespace(self) -> None:
        """Ask for the namespace.

        Raises:
            JobNotFoundError: there is none of that name.
        """
        path = f"/api/v1/namespaces/{quote(self.namespace, safe='')}"
        self.http.ask("GET", path, _name_is(self.namespace))

    def allows(self, verb: str, resource: str, *, group: str = "", subresource: str = "") -> bool:
        """Tell whether we may do something in this namespace."""
        wanted = {
            "namespace": self.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            **({"subresource": subresource} if subresource else {}),
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return self.http.ask("POST", path, lambda a: a.inner("status").flag("allowed"), body=body)


def _called(name: str, tag: str = "") -> Callable[[Answer], TrainJob]:
    """Return what reads a TrainJob of that name, and of that tag where one is given."""

    def read(answer: Answer) -> TrainJob:
        job = TrainJob.read(answer)
        expect("TrainJob", name, job.name)
        if tag:
            expect("a TrainJob with tag", tag, job.tag)
        return job

    return read


def _name_is(name: str) -> Callable[[Answer], None]:
    """Return what makes sure that an answer is about the object that was asked for."""
    return lambda answer: expect("an object called", name, answer.inner("metadata").id("name"))
