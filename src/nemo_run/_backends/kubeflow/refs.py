"""What is stored of a Kubernetes job to find it again."""

from __future__ import annotations

from pathlib import Path

from nemo_run._backends.kubeflow.jobs import STOP_PATIENCE_S
from nemo_run._backends.kubeflow.site import BACKEND, Site
from nemo_run._backends.kubeflow.volume import FOLDER
from nemo_run._backends.kubernetes.notes import Notes
from nemo_run._jobs.records import JobRef

NOTES = Notes(folder=FOLDER, what="TrainJob", backend=BACKEND)


def site_of(ref: JobRef) -> Site:
    return Site.from_where(ref.where)


def patient_site_of(ref: JobRef) -> Site:
    """Return the site for what should not fail for a short outage."""
    return Site.from_where(ref.where, patience_s=STOP_PATIENCE_S)


def was_created(ref: JobRef) -> bool:
    """Tell whether there is, or was, a TrainJob of this job."""
    return bool(ref.native_id) or _seen_mark(ref).exists()


def mark_created(ref: JobRef) -> None:
    """Remember that the TrainJob is there, for a launcher that died before it could."""
    _seen_mark(ref).touch(mode=0o600)


def _seen_mark(ref: JobRef) -> Path:
    return NOTES.mark(ref, ".created")
