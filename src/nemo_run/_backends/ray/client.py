"""The calls that we make to Ray's Jobs API, which the dashboard of a cluster serves.

It is plain HTTP, so that a launcher needs no Ray: the package weighs a hundred megabytes, and wants
the same Python as the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nemo_run._transport.answers import Answer, expect
from nemo_run._transport.http import Http, Reply, Stream, Ways, printable
from nemo_run.exceptions import AuthenticationError, BackendUnavailableError, SubmitError

BACKEND = "ray"

UPLOAD_S = 1800.0
"""How long the files of a job may take to the cluster."""
FOLLOW_SILENCE_S = 600.0
"""How long a stream of a log may be silent before it is opened again."""

_JOBS = "/api/jobs/"
_ENDED = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})


@dataclass(frozen=True, kw_only=True)
class Version:
    """Which Ray answers; ``session`` is another one each time the cluster is started anew."""

    ray: str
    session: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """What Ray says of a job. Times are seconds since the epoch.

    Attributes:
        error: Ray's word for why it failed; empty where it does not say.
        node: the id of the node that its process runs on; empty as long as it has none.
    """

    id: str
    status: str
    message: str = ""
    error: str = ""
    node: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in _ENDED

    @classmethod
    def from_answer(cls, answer: Answer, wanted: str) -> Job:
        expect("job", wanted, answer.text("submission_id"))
        return cls(
            id=wanted,
            status=answer.text("status"),
            message=answer.text("message", ""),
            error=answer.text("error_type", ""),
            node=answer.text("driver_node_id", ""),
            exit_code=answer.number("driver_exit_code", None),
            started_at=_seconds(answer.number("start_time", None)),
            ended_at=_seconds(answer.number("end_time", None)),
        )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


class RayJobs:
    """The jobs of one cluster."""

    def __init__(self, way: Ways, *, server: str, patience_s: float) -> None:
        self.server = server
        self._http = Http(way, backend=BACKEND, patience_s=patience_s, server=server)
        self._upload = Http(way, backend=BACKEND, server=server, answer_s=UPLOAD_S)

    def version(self) -> Version:
        """Ask which Ray answers; also tells whether it lets us in."""

        def read(answer: Answer) -> Version:
            return Version(ray=answer.text("ray_version"), session=answer.text("session_name", ""))

        return self._http.ask("GET", "/api/version", read)

    def find(self, job_id: str) -> Job | None:
        """Return a job, or None where the cluster says that it has none of that id."""

        def take(answer: Answer) -> Job | None:
            return Job.from_answer(answer, job_id)

        nothing = Job(id="", status="")
        found = self._http.ask("GET", _JOBS + quote(job_id, safe=""), take, missing=nothing)
        if found is not nothing:
            return found
        self.version()  # a gateway without a cluster behind it says 404, too, but not this
        return None

    def submit(self, job_id: str, body: Mapping[str, Any]) -> None:
        """Ask once for a job to be started; one of that id that is there already is the same job.

        Raises:
            BackendUnavailableError: no answer, or one that says to come back later.
            SubmitError, AuthenticationError: Ray said no.
        """
        reply = self._http.reply("POST", _JOBS, body={**body, "submission_id": job_id})
        if reply.status // 100 == 2:
            return
        text = reply.body.decode("utf-8", "replace")
        if f"submission_id {job_id} already exists" in text:
            return
        raise self._refusal(reply, text, f"job {job_id}")

    def has_package(self, name: str) -> bool:
        """Tell whether the cluster has a package; if so, it keeps it for the next ten minutes."""
        reply = self._http.reply("GET", f"/api/packages/gcs/{name}")
        if reply.status in (200, 404):
            return reply.status == 200
        raise self._refusal(reply, reply.body.decode("utf-8", "replace"), "the files of a job")

    def upload(self, name: str, data: bytes) -> None:
        """Bring a package to the cluster.

        Raises:
            BackendUnavailableError: no answer, or one that says to come back later.
            SubmitError, AuthenticationError: Ray said no.
        """
        reply = self._upload.reply("PUT", f"/api/packages/gcs/{name}", body=data)
        if reply.status // 100 != 2:
            text = reply.body.decode("utf-8", "replace")
            raise self._refusal(reply, text, f"{len(data) >> 20} MiB of files")

    def stop(self, job_id: str) -> None:
        """Ask a job to end; what has ended, or is not there, stays as it is."""
        path = f"{_JOBS}{quote(job_id, safe='')}/stop"
        self._http.ask("POST", path, lambda answer: answer.flag("stopped"), missing=False)

    def delete(self, job_id: str) -> None:
        """Have the cluster forget a job that has ended."""
        path = _JOBS + quote(job_id, safe="")
        self._http.ask("DELETE", path, lambda answer: answer.flag("deleted"), missing=False)

    def log(self, job: Job, *, follow: bool = False, lines: int = -1) -> Stream:
        """Return the log of a job that has a node: its last ``lines``, or all.

        With ``follow`` it does not end, also not with the job.
        """
        query = {
            "node_id": job.node,
            "filename": f"job-driver-{job.id}.log",
            "lines": str(lines),
            "format": "text",  # earlier releases put a byte before each block otherwise
        }
        if not follow:
            return self._http.stream("/api/v0/logs/file", query=query)
        query["interval"] = "0.25"
        return self._http.stream("/api/v0/logs/stream", query=query, silence_s=FOLLOW_SILENCE_S)

    def _refusal(self, reply: Reply, text: str, what: str) -> Exception:
        # Ray answers with tracebacks, whose last line says what is wrong.
        lines = [line for line in text.splitlines() if line.strip(" .")]
        said = f"{reply.status} {printable(lines[-1] if lines else '')}".rstrip()
        message = f"{self.server} did not take {what}: {said}"
        # What its own agent refused comes back as an error of the server's.
        refused = reply.status < 500 or "status code 400" in text
        if reply.status in (401, 403):
            return AuthenticationError(message, backend=BACKEND, operation="submit", detail=said)
        kind = SubmitError if refused and reply.status != 429 else BackendUnavailableError
        return kind(message, backend=BACKEND, operation="submit", detail=said)
