"""What is stored of a Kubernetes job to find it again."""

from __future__ import annotations

import json
from pathlib import Path

from nemo_run._clients._k8s_site import Site
from nemo_run._clients.k8s import BACKEND
from nemo_run._files import make_private_directory, read_whole, write_whole
from nemo_run._records import JobRef
from nemo_run.core.execution._kubeflow_jobs import STOP_PATIENCE_S
from nemo_run.core.execution._kubeflow_volume import NOTES
from nemo_run.exceptions import SubmitError


def site_of(ref: JobRef) -> Site:
    return Site.from_where(ref.where)


def patient_site_of(ref: JobRef) -> Site:
    """Return the site for what should not fail for a short outage."""
    return Site.from_where(ref.where, patience_s=STOP_PATIENCE_S)


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
