"""What Ray clusters and Ray jobs on Kubernetes have in common."""

from __future__ import annotations

import getpass
import logging
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nemo_run._backends.kubeflow.site import PATIENCE_S, Site
from nemo_run._backends.kubernetes.forward import forwarded
from nemo_run._backends.ray.kuberay import manifests, objects
from nemo_run._backends.ray.kuberay.client import KubeRay, RayObject
from nemo_run._jobs.records import new_tag
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.exceptions import BackendUnavailableError, ConfigError
from nemo_run.run.ray._forward import Forwarding
from nemo_run.run.ray._records import Records

logger = logging.getLogger(__name__)

SCHEDULER = "kuberay"
"""Where the records of Ray clusters and jobs on Kubernetes are, below ``<home>/jobs``."""


def get_user() -> str:
    """Return the login name as names in Kubernetes may have it."""
    return re.sub(r"[^a-z0-9]", "-", getpass.getuser().lower())


@dataclass(kw_only=True)
class KubeRayBackend:
    """What clusters and jobs have in common: an object of the operator's, known by its name."""

    EXECUTOR_CLS: ClassVar[type[KubeRayExecutor]] = KubeRayExecutor
    PLURAL: ClassVar[str]
    SUFFIX: ClassVar[str]
    MOST: ClassVar[int]

    name: str
    executor: KubeRayExecutor

    @property
    def object_name(self) -> str:
        """What the object is called: two users may both have one of this name."""
        return f"{get_user()}-{self.name}-{self.SUFFIX}"

    @property
    def _records(self) -> Records:
        app_id = f"{self.executor.namespace}:{self.PLURAL}:{self.object_name}"
        return Records(SCHEDULER, app_id, self.name)

    def _api(self, patience_s: float = PATIENCE_S) -> KubeRay:
        """Return the cluster that it was submitted to; where it was not from here, the present."""
        where = self._records.where()
        if where:
            return KubeRay(Site.from_where(where, patience_s=patience_s))
        return KubeRay(Site.current(self.executor.namespace, patience_s=patience_s))

    def _served_api(self) -> KubeRay:
        """Return the cluster to submit to, which has the operator.

        Raises:
            SubmitError: it has not.
        """
        api = self._api(objects.SUBMIT_PATIENCE_S)
        api.version()
        return api

    def _object(self, api: KubeRay) -> RayObject | None:
        return api.find(self.PLURAL, self.object_name)

    def _check(self) -> None:
        self.executor.check()
        name = self.object_name
        if not manifests.is_valid_name(name) or "." in name or len(name) > self.MOST:
            raise ConfigError(
                f"name={self.name!r} makes {name!r}, which the operator does not take. Use at most "
                f"{self.MOST - len(name) + len(self.name)} lower case letters, digits and '-'."
            )

    def _submit(self, body: Mapping[str, Any], site: Site, native_id: str) -> RayObject:
        tag = new_tag()
        # Before the submission: a later process finds there what a killed one has created.
        where = {**site.to_where(), "name": self.object_name, "ray_name": self.name}
        self._records.begin(tag, where, native_id)
        api = KubeRay(site)
        try:
            found = objects.submit(api, self.executor, self.PLURAL, body, tag)
        except objects.KubeRaySubmitError as err:
            self._records.ended("FAILED", str(err))
            raise
        self._records.submitted()
        logger.info("%s: created %s in namespace %s", self.name, found.name, site.namespace)
        return found

    def _delete(self, *, wait: bool, timeout_s: float, poll_s: float) -> bool | None:
        api = self._api(objects.STOP_PATIENCE_S)
        if not api.remove(self.PLURAL, self.object_name):
            self._records.ended("CANCELLED", "deleted in the cluster")
            return None
        gone = not wait or objects.wait_gone(
            api, self.PLURAL, self.object_name, timeout_s=timeout_s, poll_s=poll_s
        )
        if wait and gone:
            self._records.ended("CANCELLED")
        if not gone:
            logger.warning(
                "%s: %s or its pods are still there after %.0f s",
                self.name,
                self.object_name,
                timeout_s,
            )
        return gone

    def _forward(self, api: KubeRay, cluster: str, port: int, target_port: int) -> Forwarding:
        """Have a local port lead to the head of a Ray cluster, whichever pod that is by then."""

        def head() -> str:
            found = api.head(cluster)
            if found is None:
                raise BackendUnavailableError(
                    f"Ray cluster {cluster} has no head now.",
                    backend=SCHEDULER,
                    operation="forward",
                )
            return found.name

        way = forwarded(api, head, target_port, local_port=port)
        forwarding = Forwarding(way, port)
        forwarding.start()
        forwarding.wait_until_up()
        return forwarding


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def print_yaml(body: Mapping[str, Any]) -> None:
    """Show an object as kubectl takes it."""
    import yaml

    print(yaml.safe_dump(body, sort_keys=False))
