"""Bring a job's files to a volume that only jobs can see.

The platform offers no upload to the volumes of its node groups: the storage API of older clients
reaches another file system, and newer clients have none. So the files travel as one archive in the
environment of small jobs, which write it to the volume; others of the workspace cannot see these
jobs, and no file or secret is in their arguments. An archive too large for one job is cut up.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import logging
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_run._backends.lepton.client import Job, Lepton
from nemo_run._backends.lepton.logs import first_ns
from nemo_run._backends.lepton.script import job_name
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    JobNotFoundError,
    SubmitError,
)

log = logging.getLogger(__name__)

IMAGE = "busybox:1.37.0"
SHAPE = "cpu.small"
TAG_LABEL = "nemo-run-tag"

VARIABLE_BYTES = 96 * 1024
"""Of one variable: Linux takes 128 KiB for one string."""
VARIABLES = 5
"""In one job: its description is stored as a whole, and about 1 MiB is what clusters take."""
PART_BYTES = VARIABLES * VARIABLE_BYTES // 4 * 3
AT_ONCE = 4
ATTEMPTS = 5
"""How many movers of one part may have been ended by earlier launchers."""

# $1: the directory to fill; $2: number of this part; $3: hash of the archive; $4: set for the last.
_UNPACK = """\
set -eu
incoming="$1.incoming-$3"
(
    umask 077
    mkdir -p "$incoming"
    printf %s "$NEMO_RUN_0${NEMO_RUN_1:-}${NEMO_RUN_2:-}${NEMO_RUN_3:-}${NEMO_RUN_4:-}" |
        base64 -d > "$incoming/$2"
)
[ -n "$4" ] || exit 0
unset NEMO_RUN_0 NEMO_RUN_1 NEMO_RUN_2 NEMO_RUN_3 NEMO_RUN_4
(umask 077; cat "$incoming"/* > "$incoming.tar.gz")
echo "$3  $incoming.tar.gz" | sha256sum -c - > /dev/null
mkdir -p "$1"
chmod 700 "$1"
rm -rf "$1/code" "$1/configs" "$1/scripts"
tar -xzf "$incoming.tar.gz" -C "$1"
rm -rf "$incoming" "$incoming.tar.gz"
"""


@dataclass(frozen=True)
class Patience:
    """How often to look at a mover, and when to give up; all in seconds."""

    timeout_s: float = 600
    poll_s: float = 5
    unknown_s: float = 60


def sha256(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()


def command(destination: str, digest: str, *, part: int = 0, last: bool = True) -> list[str]:
    """Return what the mover of a part runs; that of the last one puts the archive together."""
    position = [f"{part:06d}", digest, "last" if last else ""]
    return ["sh", "-c", _UNPACK, "nemo_run-mover", destination, *position]


def pack(directory: Path, *, without: Sequence[str] = ()) -> bytes:
    """Return a directory as a gzipped archive; ``without`` are names at its top.

    Of the same files it is the same: a process that goes on must know the parts again.
    """
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=False) as archive,
    ):
        for path in sorted(directory.iterdir()):
            if path.name not in without:
                archive.add(path, arcname=path.name, filter=_nobody)
    return buffer.getvalue()


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    # Who owns a file here means nothing there.
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def parts(archive: bytes) -> Iterator[dict[str, str]]:
    """Cut an archive up; yield the environment of each mover."""
    for start in range(0, max(len(archive), 1), PART_BYTES):
        text = base64.b64encode(archive[start : start + PART_BYTES]).decode("ascii")
        yield {
            f"NEMO_RUN_{number}": text[offset : offset + VARIABLE_BYTES]
            for number, offset in enumerate(range(0, len(text), VARIABLE_BYTES))
        }


def move(
    client: Lepton,
    archive: bytes,
    destination: str,
    *,
    job_id: str,
    tag: str,
    spec: Mapping[str, Any],
    patience: Patience,
) -> None:
    """Unpack an archive into a directory of a volume.

    What an earlier job wrote there stays; the code, configs and scripts of an earlier one do not.
    ``job_id`` is whose files they are. ``spec`` is what a mover's job needs besides its command:
    mounts, where to run. Called again with the same tag, it goes on where it was.

    Raises:
        SubmitError: a mover failed; says what it said.
    """
    environments = list(parts(archive))
    digest = sha256(archive)
    jobs = [
        _Mover(client, f"{tag}/{digest}/{number}", tag, spec, patience)
        for number in range(len(environments))
    ]
    size = f"{len(archive) / 1024:.0f} KiB"
    log.info("%s: moving %s of files to Lepton, with %d job(s)", job_id, size, len(jobs))
    *others, last = range(len(jobs))
    batches = [others[start : start + AT_ONCE] for start in range(0, len(others), AT_ONCE)]
    for batch in [*batches, [last]]:
        try:
            for part in batch:
                argv = command(destination, digest, part=part, last=part == last)
                jobs[part].start(argv, environments[part])
            for part in batch:
                jobs[part].finish()
        finally:
            for part in batch:
                jobs[part].remove()
        log.info("%s: moved %d of %d parts", job_id, batch[-1] + 1, len(jobs))


class _Mover:
    """One job that writes one part."""

    def __init__(
        self, client: Lepton, name: str, tag: str, spec: Mapping[str, Any], patience: Patience
    ) -> None:
        self._client = client
        self._name = name
        self._tag = tag
        self._spec = spec
        self._patience = patience
        self._id = ""

    def start(self, argv: list[str], environment: Mapping[str, str]) -> None:
        """Create the job; one that an earlier launcher created, and did not end, will do."""
        for attempt in range(ATTEMPTS):
            self._id = job_name("data-mover", f"{self._name}/{attempt}")
            if not _was_ended(self._create(argv, environment)):
                return

    def _create(self, argv: list[str], environment: Mapping[str, str]) -> Job:
        body = {
            "metadata": {
                "id": self._id,
                "name": self._id,
                "visibility": "private",
                "labels": {TAG_LABEL: self._tag},
            },
            "spec": {
                **self._spec,
                "container": {"image": IMAGE, "command": argv},
                "envs": [{"name": name, "value": value} for name, value in environment.items()],
                "completions": 1,
                "parallelism": 1,
            },
        }
        try:
            return self._client.create_job(self._id, body)
        except ConnectionLostError as err:
            # The mover may be there. The job whose files it moves is not.
            raise BackendUnavailableError(
                str(err), backend=err.backend, operation=err.operation, detail=err.detail
            ) from err

    def finish(self) -> None:
        state = wait_for_end(lambda: self._client.job(self._id), self._patience, self._client)
        if state != "Completed":
            raise SubmitError(
                f"The files of the job could not be moved to Lepton: its mover {self._id} ended "
                f"as {state}. {self._said()}",
                backend="lepton",
                operation="submit",
            )

    def remove(self) -> None:
        if self._id:
            try:
                self._client.patiently(lambda: self._client.delete_job(self._id))
            except BackendError as err:
                log.warning(
                    "job %s of the Lepton workspace could not be deleted: %s", self._id, err
                )

    def _said(self) -> str:
        try:
            since_ns = first_ns(self._client.job(self._id))
            lines = [
                line.text
                for line in self._client.log_page(
                    self._id, start_ns=since_ns, end_ns=time.time_ns()
                )
            ]
            lines += self._client.events(self._id)
        except BackendError as err:
            return f"Its log cannot be read: {err}"
        return "It said: " + "\n".join(lines[-20:]) if lines else "It said nothing."


def _is_archived_success(job: Job) -> bool:
    return job.state == "Archived" and job.succeeded >= job.size


def _was_ended(job: Job) -> bool:
    """Tell whether a mover was ended before it was done."""
    ends = ("Failed", "Stopping", "Stopped", "Deleting", "Terminating", "Deleted", "Archived")
    return job.state in ends and not _is_archived_success(job)


def wait_for_end(ask: Callable[[], Job], patience: Patience, client: Lepton) -> str:
    """Wait for the end of a mover and return its state.

    Raises:
        TimeoutError: it took too long, or its state could not be told for too long.
    """
    unknown_since: float | None = None
    waiting = Waiting(0.05, patience.poll_s, timeout_s=patience.timeout_s)
    while True:
        try:
            job = client.patiently(ask)
            state = "Completed" if _is_archived_success(job) else job.state
        except JobNotFoundError:
            state = "Unknown"
        if state in ("Completed", "Failed", "Stopped", "Deleted", "Archived"):
            return state
        now = time.monotonic()
        unknown_since = (unknown_since or now) if state == "Unknown" else None
        if unknown_since is not None and now - unknown_since > patience.unknown_s:
            raise TimeoutError(
                f"Lepton reported no state of the job that moves the files for "
                f"{patience.unknown_s:.0f} s."
            )
        if waiting.is_over:
            raise TimeoutError(
                f"The job that moves the files is {state} after {patience.timeout_s:.0f} s. "
                "Is its node group full? Raise the time-out of move_data, or free a place."
            )
        waiting.pause()
