"""The calls we make to a Lepton workspace about its Ray clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemo_run._backends.lepton.client import BACKEND, Lepton
from nemo_run._backends.lepton.types import vendor_types
from nemo_run._extras import require
from nemo_run.exceptions import BackendUnavailableError, ConnectionLostError, JobNotFoundError


@dataclass(frozen=True, kw_only=True)
class RayClusterSeen:
    """What the workspace says of a Ray cluster; ``state`` is the vendor's word, or ``Unknown``."""

    name: str
    state: str
    tag: str

    @property
    def is_ready(self) -> bool:
        return self.state.lower() == "ready"


class LeptonRay(Lepton):
    """A workspace with Ray clusters."""

    def find_cluster(self, name: str) -> RayClusterSeen | None:
        """Return a Ray cluster, or None where the workspace does not have it."""

        def read() -> RayClusterSeen:
            found = self._api.raycluster.get(name)
            state = getattr(getattr(found.status, "state", None), "value", None)
            labels = getattr(found.metadata, "labels", None) or {}
            return RayClusterSeen(
                name=str(found.metadata.id_ or found.metadata.name or name),
                state=str(state or "Unknown"),
                tag=str(labels.get("nemo-run-tag", "")),
            )

        try:
            return self._call("status", read)
        except JobNotFoundError:
            return None

    def create_cluster(self, name: str, body: Mapping[str, Any]) -> None:
        """Create a Ray cluster once; where an answer is lost, it is looked for by its name.

        Raises:
            ConnectionLostError: neither could be asked; the cluster may be there.
        """
        model = vendor_types("raycluster").LeptonRayCluster(**body)
        try:
            self._call("submit", lambda: self._api.raycluster.create(model))
        except BackendUnavailableError as err:
            try:
                found = self.patiently(lambda: self.find_cluster(name))
            except BackendUnavailableError:
                raise ConnectionLostError(
                    f"Whether Lepton created Ray cluster {name} is not clear: {err}",
                    backend=BACKEND,
                    operation="submit",
                    detail=err.detail,
                ) from err
            if found is None:
                raise

    def delete_cluster(self, name: str) -> bool:
        """Ask for a Ray cluster's end; False where there was none."""
        try:
            self._call("cancel", lambda: self._api.raycluster.delete(name))
        except JobNotFoundError:
            return False
        return True

    def jobs_client(self, name: str) -> Any:
        """Return Ray's own client for the jobs of a Ray cluster. TLS is verified.

        Raises:
            BackendUnavailableError: the cluster's dashboard does not answer.
        """
        from requests.exceptions import RequestException

        made = require("ray.job_submission", extra="ray", needed_by="Ray jobs on Lepton")
        headers = {
            "Authorization": f"Bearer {self._api.auth_token}",
            "origin": str(self._api.get_dashboard_base_url()),
        }
        address = f"{self._api.url}/rayclusters/{name}/dashboard"
        try:
            return made.JobSubmissionClient(address=address, headers=headers)
        except (RuntimeError, ConnectionError, RequestException) as err:
            raise BackendUnavailableError(
                f"The dashboard of Ray cluster {name} does not answer: {err}",
                backend=BACKEND,
                operation="connect",
                detail=str(err),
            ) from err
