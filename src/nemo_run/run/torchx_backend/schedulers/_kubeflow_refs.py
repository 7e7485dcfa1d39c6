"""What is stored of a Kubernetes job to find it again, and what is kept of it on this machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from nemo_run._clients.k8s import BACKEND, Site
from nemo_run._files import make_private_directory, read_whole, write_whole
from nemo_run._records import JobRef
from nemo_run.core.execution._kubeflow_jobs import STOP_PATIENCE_S
from nemo_run.core.execution._kubeflow_volume import NOTES
from nemo_run.exceptions import SubmitError

_BLOCK = 1 << 20


def site_of(ref: JobRef) -> Site:
    return Site.from_where(ref.where)


def patient_site_of(ref: JobRef) -> Site:
    """Return the site for what should not fail for a short outage."""
    return Site.from_where(ref.where, patience_s=STOP_PATIENCE_S)


def name_in(app_id: str) -> str:
    """Return the name of the TrainJob of a job."""
    return app_id.rpartition("___")[2]


def note_of(job_dir: str, name: str) -> Path:
    """Return the file that tells where a job is being submitted to, written before it is."""
    return Path(job_dir) / NOTES / f"{name}.json"


def write_note(ref: JobRef) -> None:
    note = note_of(ref.where["job_dir"], ref.where["name"])
    make_private_directory(note.parent)
    write_whole(note, json.dumps(dict(ref.where)).encode())


def read_note(job_dir: str, name: str) -> JobRef | None:
    """Return how to find a job that was submitted, or may have been; None where none was."""
    data = read_whole(note_of(job_dir, name))
    return None if data is None else JobRef(native_id="", where=json.loads(data))


def cancelled_mark(ref: JobRef) -> Path:
    """Return the file whose being there tells that the job was to end."""
    return note_of(ref.where["job_dir"], ref.where["name"]).with_suffix(".cancelled")


def mark_cancelled(ref: JobRef) -> None:
    mark = cancelled_mark(ref)
    make_private_directory(mark.parent)
    mark.touch(mode=0o600)


def was_created(ref: JobRef) -> bool:
    """Tell whether there is, or was, a TrainJob of this job."""
    return bool(ref.native_id) or _seen_mark(ref).exists()


def mark_created(ref: JobRef) -> None:
    """Remember that the TrainJob is there, for a launcher that died before it could."""
    _seen_mark(ref).touch(mode=0o600)


def _seen_mark(ref: JobRef) -> Path:
    return note_of(ref.where["job_dir"], ref.where["name"]).with_suffix(".created")


def check_wanted(ref: JobRef) -> None:
    """Raise SubmitError if the job was cancelled before its TrainJob was created."""
    if cancelled_mark(ref).exists():
        raise SubmitError(
            "The job was cancelled before its TrainJob was created.",
            backend=BACKEND,
            operation="submit",
        )


class KeptLog:
    """The log of one replica, kept on this machine for when the pods are gone."""

    def __init__(self, ref: JobRef, replica: int) -> None:
        note = note_of(ref.where["job_dir"], ref.where["name"])
        self._file = note.with_name(f"{note.stem}-{replica}.log")

    def __bool__(self) -> bool:
        return self._file.exists()

    def keep(self, lines: Iterable[bytes]) -> None:
        """Write down all lines; an earlier copy stays until the new one is complete.

        Several may do so at once, each for itself: of whole copies the last one stays.
        """
        make_private_directory(self._file.parent)
        with tempfile.TemporaryDirectory(prefix=".", dir=self._file.parent) as scratch:
            part = Path(scratch, self._file.name)
            part.touch(mode=0o600)
            with part.open("wb") as file:
                file.writelines(lines)
            part.replace(self._file)

    def read(self) -> Iterator[bytes]:
        if self._file.exists():
            with self._file.open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block
