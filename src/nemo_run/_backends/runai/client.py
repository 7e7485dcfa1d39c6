"""The calls we make to Run:ai's control plane."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from nemo_run._transport.answers import Answer, expect
from nemo_run._transport.http import Conflict, Http, Reply, by_token
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    JobNotFoundError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

BACKEND = "dgx_cloud"

Kind = Literal["trainings", "distributed", "workspaces"]

TOKEN_MARGIN_S = 30.0
"""A token that has less left than this is not used any more."""
TOKEN_PATIENCE_S = 2.0
SUBMIT_PATIENCE_S = 120.0
_PAGE, _MOST_PAGES = 50, 200


@dataclass(frozen=True, kw_only=True)
class Project:
    id: str
    name: str
    cluster_id: str
    namespace: str

    @classmethod
    def read(cls, answer: Answer) -> Project:
        name = answer.id("name")
        namespace = answer.inner("status").text("namespace", "")
        return cls(
            id=answer.id("id"),
            name=name,
            cluster_id=answer.id("clusterId"),
            # The last is what Run:ai calls it unless told otherwise.
            namespace=namespace or answer.text("requestedNamespace", "") or f"runai-{name}",
        )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A workload, by whichever of the calls that describe one.

    Attributes:
        phase: Run:ai's word, such as ``Running``; empty where it has none yet.
    """

    id: str
    name: str
    project_id: str
    phase: str
    message: str = ""
    deleted: bool = False

    @classmethod
    def read(cls, answer: Answer) -> Workload:
        return cls(
            id=answer.id("workloadId" if answer.has("workloadId") else "id"),
            name=answer.text("name", ""),
            project_id=answer.id("projectId") if answer.has("projectId") else "",
            phase=answer.text("actualPhase", "") or answer.text("phase", ""),
            message=answer.text("phaseMessage", ""),
            deleted=answer.has("deletedAt"),
        )


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of a workload; times are seconds since the epoch.

    Attributes:
        container: the one that runs the command; others may have been put beside it.
    """

    name: str
    container: str
    created_at: float
    started_at: float | None
    completed_at: float | None

    @classmethod
    def read(cls, answer: Answer) -> Pod:
        containers = answer.items("containers")
        starts = [item.moment("startedAt") for item in containers]
        return cls(
            name=answer.id("name"),
            container=containers[0].text("name", "") if containers else "",
            created_at=answer.moment("createdAt") or 0.0,
            started_at=min((start for start in starts if start is not None), default=None),
            completed_at=answer.moment("completedAt"),
        )


class RunAI:
    """A control plane, seen by one application of it. One method for each call.

    The token is kept in memory and renewed before it expires, or when it is refused.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str,
        secret: Callable[[], str],
        *,
        patience_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``base_url`` ends in ``/api/v1``; ``secret`` is asked whenever a token is needed."""
        self._client_id = client_id
        self._secret = secret
        self._clock = clock
        self._token: str | None = None
        self._expires_at = 0.0
        self._lock = threading.Lock()
        # The call that needs the token has a patience of its own.
        token_patience_s = min(patience_s, TOKEN_PATIENCE_S)
        self._open = Http(base_url, backend=BACKEND, patience_s=token_patience_s)
        self._http = Http(
            by_token(base_url, self.token), backend=BACKEND, patience_s=patience_s, server=base_url
        )

    def token(self, refused: str | None = None) -> str:
        """Return a token that can be used now, another one than ``refused``.

        Raises:
            AuthenticationError: the client id or its secret is wrong.
        """
        with self._lock:
            # While we waited another thread may have replaced the token that was refused.
            usable = self._token is not None and self._token != refused
            if not usable or self._clock() > self._expires_at - TOKEN_MARGIN_S:
                self._token, self._expires_at = self._new_token()
            assert self._token is not None
            return self._token

    def _new_token(self) -> tuple[str, float]:
        body = {
            "grantType": "client_credentials",
            "clientId": self._client_id,
            "clientSecret": self._secret(),
        }

        def read(answer: Answer) -> tuple[str, float]:
            token = answer.id("accessToken")
            return token, _expiry(token, answer.amount("expiresIn"), self._clock())

        try:
            return self._open.ask("POST", "/token", read, body=body)
        except BackendUnavailableError:
            raise
        except BackendError as err:
            raise AuthenticationError(
                f"Run:ai gave no token to client {self._client_id!r}: {err.detail}. "
                f"Check client_id and client_secret, and that base_url, {self._open.server}, is "
                "that of the API: it ends in /api/v1.",
                backend=BACKEND,
                operation="token",
                detail=err.detail,
            ) from err

    def projects(self, name: str = "") -> list[Project]:
        """Return the projects that we may see, those of that name where one is given."""
        query = {"filterBy": f"name=={name}"} if name else None

        def read(answer: Answer) -> list[Project]:
            return [Project.read(item) for item in answer.items("projects", required=True)]

        found = self._http.ask("GET", "/org-unit/projects", read, query=query)
        return [project for project in found if name in ("", project.name)]

    def create(self, kind: Kind, body: Mapping[str, Any]) -> Workload:
        """Ask for a workload, once.

        Raises:
            Conflict: there is one of that name in the project.
            BackendUnavailableError: it may have been created all the same.
        """

        def read(answer: Answer) -> Workload:
            made = Workload.read(answer)
            expect("workload", body["name"], made.name)
            expect("a workload of project", body["projectId"], made.project_id)
            return made

        return self._http.ask("POST", f"/workloads/{kind}", read, body=body, once=True)

    def create_named(
        self, kind: Kind, body: Mapping[str, Any], *, patience_s: float = SUBMIT_PATIENCE_S
    ) -> Workload:
        """Ask for a workload whose name nothing else has, through outages, and have one of it.

        A create whose answer was lost is not repeated blindly: names are unique in a project, so
        it is looked up, and repeating it can only be refused.

        Raises:
            ConnectionLostError: it may have been created; Run:ai does not answer.
            BackendUnavailableError: it was not.
        """
        waiting = Waiting(1.0, 1.0, timeout_s=patience_s)
        while True:
            try:
                return self.create(kind, body)
            except (BackendUnavailableError, Conflict) as err:
                left_s = waiting.left_s
                found = self._settled(body, err, patience_s=max(left_s, 1))
                if found is not None:
                    return found
                if left_s < 0:
                    raise
                log.info("%s: %s; trying again", body["name"], err)
                waiting.pause()

    def _settled(
        self, body: Mapping[str, Any], lost: BackendError, *, patience_s: float
    ) -> Workload | None:
        """Return what came of a create that went wrong; None where nothing did."""
        try:
            return self.find(body["name"], body["projectId"], patience_s=patience_s)
        except BackendUnavailableError as err:
            raise ConnectionLostError(
                f"It is not known whether workload {body['name']} was created: {lost}",
                backend=BACKEND,
                operation="create",
                detail=lost.detail,
            ) from err

    def get(self, kind: Kind, workload_id: str) -> Workload:
        """Return a workload.

        Raises:
            JobNotFoundError: there is none, or it was deleted.
        """

        def read(answer: Answer) -> Workload:
            found = Workload.read(answer)
            expect("workload", workload_id, found.id)
            return found

        return self._http.ask("GET", f"/workloads/{kind}/{quote(workload_id, safe='')}", read)

    def find(
        self, name: str, project_id: str, *, deleted: bool = False, patience_s: float | None = None
    ) -> Workload | None:
        """Return the workload of exactly that name in a project, or None."""
        matches = (w for w in self.named(name, deleted=deleted, patience_s=patience_s))
        return next((w for w in matches if (w.name, w.project_id) == (name, project_id)), None)

    def named(
        self, prefix: str, *, deleted: bool = False, patience_s: float | None = None
    ) -> list[Workload]:
        """Return the workloads whose names start with ``prefix``, of all projects."""
        query = {"filterBy": f"name=^{prefix}", "deleted": "true" if deleted else "false"}
        found = self._pages("/workloads", "workloads", Workload.read, query, patience_s)
        return [workload for workload in found if workload.name.startswith(prefix)]

    def pods(self, workload_id: str) -> list[Pod]:
        """Return the pods of a workload, the oldest first."""
        found = self._pages(f"/workloads/{workload_id}/pods", "pods", Pod.read, {}, None)
        return sorted(found, key=lambda pod: pod.created_at)

    def _pages(
        self,
        path: str,
        key: str,
        read: Callable[[Answer], T],
        query: Mapping[str, str],
        patience_s: float | None,
    ) -> list[T]:
        def read_page(answer: Answer) -> list[T]:
            return [read(item) for item in answer.items(key, required=True)]

        found: list[T] = []
        for _ in range(_MOST_PAGES):
            window = {**query, "offset": str(len(found)), "limit": str(_PAGE)}
            page = self._http.ask("GET", path, read_page, query=window, patience_s=patience_s)
            found += page
            if len(page) < _PAGE:
                return found
        raise BackendUnavailableError(
            f"{self._http.server} has no end of {key}: expected at most {len(found)}.",
            backend=BACKEND,
            operation=f"GET {path}",
        )

    def events(self, workload_id: str) -> list[str]:
        """Return what happened to a workload, in words, the latest last."""

        def read(answer: Answer) -> list[str]:
            return [event.text("message", "") for event in answer.items("events")]

        return self._http.ask("GET", f"/workloads/{workload_id}/events", read)

    def suspend(self, kind: Kind, workload_id: str) -> None:
        """Ask a workload to stop; its pods go, and it stays to be seen.

        Raises:
            JobNotFoundError: there is none.
        """
        path = f"/workloads/{kind}/{workload_id}/suspend"
        try:
            self._http.do("POST", path)
        except BackendUnavailableError:
            raise
        except BackendError as err:
            if not err.detail.startswith(("404", "405")):
                raise
            self._suspend_as_before(path, err)

    def _suspend_as_before(self, path: str, refusal: BackendError) -> None:
        """Control planes of the time of NeMo Run 0.12 knew it as a GET, and nothing else."""
        try:
            self._http.do("GET", path)
        except BackendUnavailableError:
            raise
        except BackendError:
            raise refusal from None

    def resume(self, kind: Kind, workload_id: str) -> None:
        """Start a suspended workload again."""
        self._http.do("POST", f"/workloads/{kind}/{workload_id}/resume")

    def reply(self, method: str, path: str, *, body: Any = None) -> Reply:
        """Make a call and return the answer as it is, whatever it says."""
        return self._http.reply(method, path, body=body)

    def delete(self, kind: Kind, workload_id: str) -> None:
        """Remove a workload; removing what is gone is fine."""
        try:
            self._http.do("DELETE", f"/workloads/{kind}/{workload_id}")
        except JobNotFoundError:
            log.debug("%s is gone already", workload_id)


def _expiry(token: str, expires_in_s: float | None, now: float) -> float:
    """Return when a token expires: by what came with it, by what is in it, or soon."""
    if expires_in_s is not None and expires_in_s > 0:
        return now + expires_in_s
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return now + 5 * 60
