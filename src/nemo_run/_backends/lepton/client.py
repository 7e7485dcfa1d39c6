"""The calls we make to a DGX Cloud Lepton workspace, through the vendor's own client.

Workspace and token come from its login state or its environment variables. TLS is verified, always.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from nemo_run._backends.lepton.types import (
    Job,
    LeptonSettingError,
    LogLine,
    Replica,
    check_spec,
    job_states,
    parse_job,
    seconds,
    vendor_types,
)
from nemo_run._extras import require
from nemo_run._transport.answers import OddAnswerError, expect
from nemo_run._transport.bounded import bound
from nemo_run._transport.http import printable
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    ConnectionLostError,
    JobNotFoundError,
)

__all__ = ["Job", "Lepton", "LogLine", "Replica", "check_spec", "job_states"]

log = logging.getLogger(__name__)

T = TypeVar("T")

BACKEND = "lepton"
TIMEOUT_S = 30
SILENCE_S = 120
"""How long a log may say nothing before its stream is opened again."""
PATIENCE_S = 180.0
"""How long to go on trying what has to be done, while the workspace cannot be reached."""

PAGE = 5000
"""How many log lines to ask for at once; the server sets its limit about there."""

_STATUS = re.compile(r"status code (\d{3})")


class Lepton:
    """A workspace. One method a call; all raise the errors of `nemo_run.exceptions`.

    Raises:
        MissingDependencyError: ``leptonai`` is not installed.
        ConfigError: no workspace was logged in to.
    """

    def __init__(self) -> None:
        self._api = _logged_in()

    @property
    def workspace(self) -> str:
        return str(self._api.workspace_id)

    def job_url(self, job_id: str) -> str:
        """Return where people can look at a job."""
        base = str(self._api.get_dashboard_base_url())
        return f"{base}/compute/jobs/detail/{job_id}/replicas/list"

    def job(self, job_id: str) -> Job:
        """Return a job, also one that a user has deleted, as long as the workspace has it."""
        try:
            return self._call("status", lambda: parse_job(self._api.job.get(job_id)))
        except JobNotFoundError:
            # Up to 0.26 the client asks for one job only among those that were not deleted.
            archived = self._call(
                "status",
                lambda: [
                    parse_job(job)
                    for job in self._api.job.list_all(
                        job_query_mode="archive_only", q=job_id, page=1, page_size=10
                    )
                ],
            )
            found = next((job for job in archived if job.id == job_id), None)
            if found is None:
                raise
            return found

    def find_job(self, job_id: str) -> Job | None:
        """Return a job, or None where the workspace does not have it."""
        try:
            return self.job(job_id)
        except JobNotFoundError:
            return None

    def create_job(self, job_id: str, body: Mapping[str, Any]) -> Job:
        """Create a job once, however often the workspace has to be asked.

        Where an answer is lost, the job is looked for by its id, which is ours alone: it is never
        created a second time.

        Raises:
            ConnectionLostError: neither could be asked; the job may be there.
        """
        model = vendor_types("job").LeptonJob(**body)

        def attempt() -> Job:
            try:
                return self._call("submit", lambda: self._created(job_id, model))
            except BackendUnavailableError as err:
                try:
                    found = self.find_job(job_id)
                except BackendUnavailableError:
                    raise ConnectionLostError(
                        f"Whether Lepton created job {job_id} is not clear: {err}",
                        backend=BACKEND,
                        operation="submit",
                        detail=err.detail,
                    ) from err
                if found is None:
                    raise
                return found
            except _ConflictError:
                return self.job(job_id)

        return self.patiently(attempt)

    def _created(self, job_id: str, model: Any) -> Job:
        made = parse_job(self._api.job.create(model))
        expect("job", job_id, made.id)
        return made

    def stop_job(self, job_id: str) -> None:
        spec = {"spec": {"stopped": True}}
        self._call("cancel", lambda: self._api.job.update(job_id, spec=spec))

    def delete_job(self, job_id: str) -> bool:
        """Delete a job; False where there was none."""
        try:
            return bool(self._call("cancel", lambda: self._api.job.delete(job_id)))
        except JobNotFoundError:
            return False

    def events(self, job_id: str) -> list[str]:
        """Return what happened to a job, each as ``type: reason``, the latest last."""

        def read() -> list[str]:
            found = sorted(self._api.job.get_events(job_id), key=lambda e: e.last_observed_time)
            return [f"{event.type_}: {event.reason}" for event in found]

        return self._call("events", read)

    def replicas(self, job_id: str) -> list[Replica]:
        """Return the replicas of all attempts, the earliest first."""

        def read() -> list[Replica]:
            replicas = [
                Replica(id=item.metadata.id_, created_at=seconds(item.metadata.created_at) or 0.0)
                for item in self._api.job.get_replicas(job_id)
            ]
            return sorted(replicas, key=lambda replica: replica.created_at)

        return self._call("logs", read)

    def log_page(
        self, job_id: str, replica: str = "", *, start_ns: int, end_ns: int, text: str = ""
    ) -> list[LogLine]:
        """Return stored lines between two times, the latest if there are too many, in order.

        Those of all replicas by default, and only those with ``text`` in them.
        """

        def read() -> list[LogLine]:
            answer = self._api.log.get_log(
                name_or_job=job_id,
                replica=replica or None,
                start=start_ns,
                end=end_ns,
                limit=PAGE,
                q=text,
            )
            lines = [
                LogLine(int(when), str(line))
                for stream in answer["data"]["result"]
                for when, line in stream["values"]
            ]
            return sorted(lines, key=lambda line: line.time_ns)

        return self._call("logs", read)

    def log(self, job_id: str, replica: str, *, start_ns: int, end_ns: int) -> list[LogLine]:
        """Return all stored lines between two times."""
        pages: list[list[LogLine]] = []
        while page := self.log_page(job_id, replica, start_ns=start_ns, end_ns=end_ns):
            pages.append(page)
            end_ns = page[0].time_ns
            if len(page) < PAGE or end_ns <= start_ns:
                break
        return [line for page in reversed(pages) for line in page]

    def log_stream(self, job_id: str, replica: str) -> Iterator[str]:
        """Yield a replica's log from its beginning as it grows, in pieces of any size.

        Ends with the container, or without a word when the connection does.
        """
        # The vendor's own method decodes every piece by itself, and fails where a character
        # was cut in two.
        response = self._call(
            "logs",
            lambda: self._api._get(
                f"/jobs/{job_id}/replicas/{replica}/log", stream=True, timeout=SILENCE_S
            ),
        )
        with response:
            # There is no container, or no valid token: asking for the job tells.
            if response.status_code in (401, 404):
                return
            if not response.ok:
                _refuse("logs", response.status_code, response.text)
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            try:
                for piece in response.iter_content(chunk_size=None):
                    yield decoder.decode(piece)
            except _network_errors():
                return
            yield decoder.decode(b"", final=True)

    def node_group(self, name: str) -> str:
        """Return the id of the node group that people see as ``name``.

        Raises:
            ConfigError: there is none of that name; says which there are.
        """
        groups = self._call("submit", lambda: self._api.nodegroup.list_all())
        for group in groups:
            if name in (group.metadata.name, group.metadata.id_) and group.metadata.id_:
                return str(group.metadata.id_)
        known = ", ".join(sorted(str(group.metadata.name) for group in groups)) or "none"
        raise LeptonSettingError(
            f"There is no node group {name!r} in Lepton workspace {self.workspace!r}. "
            f"Known: {known}."
        )

    def secrets(self) -> list[str]:
        """Return the names of the workspace's secrets."""
        found = self._call("status", lambda: self._api.secret.list_all())
        return sorted(str(secret.name) for secret in found)

    def nodes(self, group_id: str) -> list[str]:
        """Return the ids of the nodes that are in a group now."""
        found = self._call("submit", lambda: self._api.nodegroup.list_nodes(group_id))
        return sorted(str(node.metadata.id_) for node in found)

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Try until the workspace can be reached, for some minutes at most."""
        waiting = Waiting(0.25, 10, timeout_s=PATIENCE_S, growth=2)
        while True:
            try:
                return attempt()
            except BackendUnavailableError as err:
                waiting.tolerate(err)

    def _call(self, operation: str, call: Callable[[], T]) -> T:
        """Call once, and say what went wrong in our own words."""
        try:
            return self._call_once(operation, call)
        except AuthenticationError:
            if not self._logged_in_again():
                raise
            return self._call_once(operation, call)

    def _logged_in_again(self) -> bool:
        """Take over the token of a login to this workspace since, if there was one."""
        sdk = require(
            "leptonai.api.v2.workspace_record", extra="lepton", needed_by="LeptonExecutor"
        )
        try:
            sdk.WorkspaceRecord.reload()
            api = _logged_in()
        except Exception as err:  # noqa: BLE001  # logged out, or the file is being written just now
            log.debug("the login of Lepton's client cannot be read: %s", err)
            return False
        if api.workspace_id != self._api.workspace_id or api.auth_token == self._api.auth_token:
            return False
        self._api = api
        return True

    def _call_once(self, operation: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except _network_errors() as err:
            raise BackendUnavailableError(
                f"Lepton does not answer: {err}",
                backend=BACKEND,
                operation=operation,
                detail=str(err),
            ) from err
        except _ODD as err:
            raise _unreadable(operation, err) from err
        except ValueError as err:
            if type(err).__module__.startswith("pydantic"):
                raise _unreadable(operation, err) from err
            raise BackendError(
                f"Lepton's client refused: {err}",
                backend=BACKEND,
                operation=operation,
                detail=str(err),
            ) from err
        except RuntimeError as err:
            response = getattr(err, "response", None)
            status = getattr(response, "status_code", None) or getattr(err, "status_code", None)
            if status is None and (match := _STATUS.search(str(err))):
                status = int(match[1])
            if status is None:
                # An answer cut short, or the page of a proxy: it says nothing about the job.
                raise _unreadable(operation, err) from err
            _refuse(operation, status, getattr(response, "text", "") or str(err), cause=err)


def _logged_in() -> Any:
    """Return the vendor's client for the workspace that one is logged in to."""
    sdk = require("leptonai.api.v2.client", extra="lepton", needed_by="LeptonExecutor")
    try:
        api = sdk.APIClient()
    except (RuntimeError, TypeError) as err:  # without a token it trips over its own logging
        raise ConfigError(
            f"No Lepton workspace to talk to: {err}. Log in with 'lep login', or set "
            "LEPTON_WORKSPACE_ID, LEPTON_WORKSPACE_TOKEN and LEPTON_WORKSPACE_URL."
        ) from err
    # Its own limit is two minutes for every call, and there is no parameter for it.
    api._timeout = TIMEOUT_S
    bound(api._session)
    return api


_ODD = (AttributeError, LookupError, TypeError, OddAnswerError, OverflowError, RecursionError)
"""What an answer of another form makes of the vendor's client, or of how we read it."""


def _unreadable(operation: str, err: Exception) -> BackendUnavailableError:
    said = printable(str(err))
    return BackendUnavailableError(
        f"Lepton answers what its client cannot read: {said}",
        backend=BACKEND,
        operation=operation,
        detail=said,
    )


class _ConflictError(BackendError):
    """A job of that id is there already."""


def _refuse(
    operation: str, status: int, detail: str, *, cause: BaseException | None = None
) -> NoReturn:
    """Raise what the status of an answer means."""
    said: dict[str, str] = {"backend": BACKEND, "operation": operation, "detail": detail}
    why = _message(detail)
    if status == 429 or status >= 500:
        raise BackendUnavailableError(f"Lepton answers {status}: {why}", **said) from cause
    if status in (401, 403):
        raise AuthenticationError(
            f"Lepton does not accept the token (it answers {status}): {why}. It may have "
            "expired: log in again with 'lep login', or set LEPTON_WORKSPACE_TOKEN.",
            **said,
        ) from cause
    if status == 404:
        raise JobNotFoundError(f"Lepton does not know it: {why}", **said) from cause
    if status == 409:
        raise _ConflictError(f"Lepton has one already: {why}", **said) from cause
    raise BackendError(f"Lepton refused (it answers {status}): {why}", **said) from cause


def _message(detail: str) -> str:
    """Return what an answer says to people, or all of it where that cannot be told."""
    try:
        answer = json.loads(detail)
    except ValueError:
        return detail
    message = answer.get("message") if isinstance(answer, dict) else None
    return message if isinstance(message, str) and message else detail


def _network_errors() -> tuple[type[Exception], ...]:
    from requests.exceptions import RequestException

    return (RequestException,)
