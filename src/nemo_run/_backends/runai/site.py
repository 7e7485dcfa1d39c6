"""How to reach a project of Run:ai, from any process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._backends.runai.client import BACKEND, Project, RunAI
from nemo_run._backends.runai.volume import MountedVolume, Volume, WorkspaceVolume
from nemo_run._credentials import CredentialStore, is_reference, resolve
from nemo_run._transport.http import Http, by_token
from nemo_run.exceptions import ConfigError, SubmitError

PATIENCE_S = 2.0
"""How long to try while looking at a job; the conductor looks again."""

_clients: dict[tuple[str, str, str, float], RunAI] = {}
_lock = threading.Lock()


def connect(base_url: str, client_id: str, secret: str, *, patience_s: float = PATIENCE_S) -> RunAI:
    """Return the client for an application of Run:ai, the same one each time.

    ``secret`` is one, or a reference to one, or empty where it is kept in ``credentials.json``.
    """

    def ask() -> str:
        found = resolve(secret) if secret else CredentialStore().find(base_url, client_id)
        if not found:
            raise ConfigError(
                f"The secret of client {client_id!r} for {base_url} is not known here. Give "
                "client_secret, best as a reference such as 'env:NAME'."
            )
        return found

    with _lock:
        key = (base_url, client_id, secret, patience_s)
        if key not in _clients:
            _clients[key] = RunAI(base_url, client_id, ask, patience_s=patience_s)
        return _clients[key]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A project of a control plane, and how to get at it. Holds no secret.

    Attributes:
        secret: a reference, or empty where the secret is kept in ``credentials.json``.
        project: its name; the next three are known once it was looked up.
        patience_s: how long to try through an outage. Not stored.
    """

    base_url: str
    kube_url: str
    client_id: str
    secret: str
    project: str
    project_id: str = ""
    cluster_id: str = ""
    namespace: str = ""
    patience_s: float = PATIENCE_S

    @classmethod
    def from_where(cls, where: Mapping[str, str]) -> Site:
        return cls(
            base_url=where["base_url"],
            kube_url=where["kube_url"],
            client_id=where["client_id"],
            secret=where["secret"],
            project=where["project"],
            project_id=where["project_id"],
            cluster_id=where["cluster_id"],
            namespace=where["namespace"],
        )

    def to_where(self) -> dict[str, str]:
        where = asdict(self)
        del where["patience_s"]
        return where

    def client(self) -> RunAI:
        return connect(self.base_url, self.client_id, self.secret, patience_s=self.patience_s)

    def kube(self) -> Kube:
        http = Http(
            by_token(self.kube_url, self.client().token),
            backend=BACKEND,
            patience_s=self.patience_s,
            server=self.kube_url,
        )
        return Kube(http, self.namespace)

    def found(self) -> Site:
        """Return this with the ids of the project.

        Raises:
            SubmitError: there is no such project.
        """
        project = find_project(self.client(), self.project)
        return replace(
            self,
            project_id=project.id,
            cluster_id=project.cluster_id,
            namespace=project.namespace,
        )

    @property
    def as_project(self) -> Project:
        return Project(
            id=self.project_id,
            name=self.project,
            cluster_id=self.cluster_id,
            namespace=self.namespace,
        )

    def volume(
        self,
        *,
        mounted: bool,
        pvcs: Sequence[Mapping[str, Any]],
        security: Mapping[str, Any],
        home: str,
    ) -> Volume:
        """Return the way to the files of a job: directly where the volume is ``mounted`` here."""
        if mounted:
            return MountedVolume()
        return WorkspaceVolume(
            self.client(),
            self.kube(),
            self.as_project,
            pvcs=pvcs,
            security=security,
            home=home,
            patience_s=self.patience_s,
        )


def stored_secret(base_url: str, client_id: str, secret: str) -> str:
    """Return what of a secret may be stored elsewhere, after keeping a literal one."""
    if not secret or is_reference(secret):
        return secret
    CredentialStore().put(base_url, client_id, secret)
    return ""


def find_project(client: RunAI, name: str) -> Project:
    """Return the project of that name.

    Raises:
        SubmitError: there is none; says which there are.
    """
    found = client.projects(name)
    if found:
        return found[0]
    known = ", ".join(sorted(project.name for project in client.projects())) or "none"
    raise SubmitError(
        f"Run:ai shows this client no project {name!r}. It may see: {known}.",
        backend=BACKEND,
        operation="submit",
    )
