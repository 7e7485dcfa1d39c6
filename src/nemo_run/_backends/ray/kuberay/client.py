"""The calls we make to a Kubernetes cluster with KubeRay."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from nemo_run._backends.kubeflow.client import TAG_LABEL, Cluster
from nemo_run._backends.kubeflow.site import Site
from nemo_run._backends.kubernetes.pods import Pod
from nemo_run._backends.ray.kuberay.manifests import GROUP, VERSION
from nemo_run._transport.answers import Answer, decoded, expect
from nemo_run._transport.http import Http, Reply, Way
from nemo_run.exceptions import (
    AuthenticationError,
    BackendUnavailableError,
    JobNotFoundError,
    SubmitError,
)

BACKEND = "kuberay"
OLD_VERSION = "v1alpha1"
CLUSTER_LABEL, NODE_LABEL = "ray.io/cluster", "ray.io/node-type"
DASHBOARD = 8265
_TOKEN_KEY = "auth_token"


@dataclass(frozen=True, kw_only=True)
class RayObject:
    """A RayCluster or RayJob as the cluster has it.

    Attributes:
        tag: of the submission that made it; empty where it is not one of ours.
        deleting: whether it is being removed.
        spec, status: in the operator's words.
    """

    name: str
    uid: str
    kind: str
    api_version: str
    tag: str
    deleting: bool
    spec: Mapping[str, Any] = field(repr=False)
    status: Mapping[str, Any]

    @classmethod
    def read(cls, answer: Answer) -> RayObject:
        metadata = answer.inner("metadata")
        return cls(
            name=metadata.id("name"),
            uid=metadata.id("uid"),
            kind=answer.text("kind", ""),
            api_version=answer.text("apiVersion", ""),
            tag=metadata.texts("labels").get(TAG_LABEL, ""),
            deleting=metadata.has("deletionTimestamp"),
            spec=answer.inner("spec").data,
            status=answer.inner("status").data,
        )

    def said(self, name: str) -> str:
        """Return a word of the status; empty where it is not there."""
        return Answer(self.status).text(name, "")

    @property
    def owner(self) -> dict[str, Any]:
        """The change that lets another object go with this one."""
        reference = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
        }
        return {"metadata": {"ownerReferences": [reference]}}


class KubeRay(Cluster):
    """One namespace of a cluster. Safe to use from several threads, and after a fork."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.http.backend = BACKEND
        self._version = ""

    def version(self) -> str:
        """Return the version of the operator's objects to use: the newest that we know.

        Raises:
            SubmitError: no operator is installed.
        """
        if not self._version:

            def take(reply: Reply) -> list[str]:
                versions = Answer(decoded(reply.body)).items("versions", required=True)
                return [item.text("version", "") for item in versions]

            nothing: list[str] = []
            served = self.http.call("GET", f"/apis/{GROUP}", take, missing=nothing)
            known = [version for version in (VERSION, OLD_VERSION) if version in served]
            if not known:
                raise SubmitError(
                    f"{self.site.server} does not know what a RayCluster is: KubeRay is not "
                    "installed there, or this is another cluster. Check `kubectl config "
                    "current-context`.",
                    backend=BACKEND,
                    operation="submit",
                )
            self._version = known[0]
        return self._version

    def find(self, plural: str, name: str) -> RayObject | None:
        """Return an object; None where there is none.

        Raises:
            BackendUnavailableError: the cluster cannot be asked, or knows no such kind now.
        """
        try:
            return self.http.ask("GET", self._objects(plural, name), _named(name))
        except JobNotFoundError:
            return None
        except SubmitError as err:
            # KubeRay is being upgraded, or a gateway answers: no word about the object.
            raise BackendUnavailableError(
                str(err), backend=BACKEND, operation="status", detail=err.detail
            ) from err

    def create(self, plural: str, body: Mapping[str, Any]) -> RayObject:
        """Create an object.

        Raises:
            Conflict: there is one of that name.
        """
        sent = {**body, "apiVersion": f"{GROUP}/{self.version()}"}
        read = _named(body["metadata"]["name"])
        return self.http.ask("POST", self._objects(plural), read, body=sent)

    def remove(self, plural: str, name: str) -> bool:
        """Ask for an object's end; tell whether there was one. It is there until its pods went."""
        query = {"propagationPolicy": "Foreground"}
        try:
            self.http.do("DELETE", self._objects(plural, name), query=query)
        except JobNotFoundError:
            return False
        return True

    def change(self, plural: str, name: str, changes: Mapping[str, Any]) -> None:
        """Merge changes into an object."""
        self.http.ask("PATCH", self._objects(plural, name), _named(name), body=changes)

    def _objects(self, plural: str, name: str = "") -> str:
        return self.path(plural, name, group=f"{GROUP}/{self.version()}")

    def ray_pods(self, cluster: str) -> list[Pod]:
        return self.pods(f"{CLUSTER_LABEL}={cluster}")

    def head(self, cluster: str) -> Pod | None:
        """Return the newest pod that is the head of a Ray cluster; None where there is none."""
        heads = [
            pod
            for pod in self.ray_pods(cluster)
            if pod.labels.get(NODE_LABEL) == "head" or f"{cluster}-head" in pod.name
        ]
        return heads[-1] if heads else None

    def service_exists(self, name: str) -> bool:
        try:
            self.http.do("GET", self.path("services", name))
        except JobNotFoundError:
            return False
        return True

    def token(self, cluster: str) -> str:
        """Return what proves to a Ray cluster that a client may use it; empty where it asks not."""

        def read(answer: Answer) -> str:
            return answer.inner("data").text(_TOKEN_KEY, "")

        try:
            found = self.http.ask("GET", self.path("secrets", cluster), read)
        except (JobNotFoundError, AuthenticationError):
            return ""
        return base64.b64decode(found).decode().strip()

    def knows_job(self, cluster: str, submission_id: str) -> bool | None:
        """Ask a Ray cluster whether it knows a job; None where it does not answer."""
        service = f"{cluster}-head-svc:{DASHBOARD}"
        job = quote(submission_id, safe="")
        path = f"{self.path('services', service, below='proxy')}/api/jobs/{job}"
        try:
            reply = self._with_token(self.token(cluster)).reply("GET", path)
        except BackendUnavailableError:
            return None
        # Ray says it in plain words; the API server says by an object that there is no service.
        if reply.status == 404:
            return None if b'"kind"' in reply.body else False
        return True if reply.status == 200 else None

    def _with_token(self, token: str) -> Http:
        """Return the way to the API server on which Ray is shown a token behind it."""

        def way(refused: Way | None) -> Way:
            found = self.http.way(refused)
            # The API server takes the usual header for itself.
            shown = {"X-Ray-Authorization": f"Bearer {token}"} if token else {}
            return replace(found, headers={**found.headers, **shown})

        return Http(way, backend=BACKEND, server=self.http.server)


def _named(name: str) -> Callable[[Answer], RayObject]:
    def read(answer: Answer) -> RayObject:
        found = RayObject.read(answer)
        expect("an object called", name, found.name)
        return found

    return read
