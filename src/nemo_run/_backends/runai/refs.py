"""What is stored of a DGX Cloud job to find it again, and how it is found."""

from __future__ import annotations

from dataclasses import replace

from nemo_run._backends.kubernetes.notes import Notes
from nemo_run._backends.runai.client import BACKEND, Kind, RunAI, Workload
from nemo_run._backends.runai.site import Site
from nemo_run._jobs.records import JobRef
from nemo_run.exceptions import JobNotFoundError

STOP_PATIENCE_S = 20.0

NOTES = Notes(folder="dgx_cloud", what="workload", backend=BACKEND)


def site_of(ref: JobRef) -> Site:
    return Site.from_where(ref.where)


def patient_site_of(ref: JobRef) -> Site:
    """Return the site for what should not fail for a short outage."""
    return replace(site_of(ref), patience_s=STOP_PATIENCE_S)


def kind_of(ref: JobRef) -> Kind:
    return "distributed" if ref.where["kind"] == "distributed" else "trainings"


def find_workload(client: RunAI, ref: JobRef) -> Workload | None:
    """Return the workload of a job; None where it was never created.

    Raises:
        JobNotFoundError: it was, and nothing is left of it.
    """
    name, project_id = ref.where["name"], ref.where["project_id"]
    gone: JobNotFoundError | None = None
    try:
        if not ref.native_id:
            found = client.find(name, project_id)
        else:
            found = client.get(kind_of(ref), ref.native_id)
    except JobNotFoundError as err:
        found, gone = None, err
    if found is not None:
        return _as_deleted(found) if found.deleted else found
    deleted = client.find(name, project_id, deleted=True) if name else None
    if deleted is not None:
        return _as_deleted(deleted)
    if gone is not None:
        raise gone
    return None


def _as_deleted(workload: Workload) -> Workload:
    """Return how a workload ended that a user deleted: as it was, or stopped by that."""
    if workload.phase in ("Completed", "Failed"):
        return workload
    return replace(workload, phase="Stopped", message="deleted in Run:ai")


def has_ended(client: RunAI, ref: JobRef) -> bool:
    try:
        workload = find_workload(client, ref)
    except JobNotFoundError:
        return True
    return workload is not None and workload.phase in ("Stopped", "Failed", "Completed")
