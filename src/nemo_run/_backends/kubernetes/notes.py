"""Files beside a job that tell any process where it is submitted to, and that it shall end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_run._files import make_private_directory
from nemo_run._jobs.notes import read_note, write_note
from nemo_run._jobs.records import JobRef
from nemo_run._names import slug
from nemo_run._secrets.masking import mask_environment
from nemo_run.exceptions import SubmitError


@dataclass(frozen=True, kw_only=True)
class Notes:
    """The notes of one backend's jobs.

    Attributes:
        folder: below the job directory.
        what: the cluster's word for a job.
    """

    folder: str
    what: str
    backend: str

    def of(self, job_dir: str, name: str) -> Path:
        """Return the file that tells where a job is being submitted to, written before it is."""
        return Path(job_dir) / self.folder / f"{name}.json"

    def write(self, ref: JobRef) -> None:
        write_note(self.of(ref.where["job_dir"], ref.where["name"]), ref.where)

    def read(self, job_dir: str, name: str) -> JobRef | None:
        """Return how to find a job that was submitted, or may have been; None where none was."""
        where = read_note(self.of(job_dir, name), f"{self.what} {name}")
        return None if where is None else JobRef(native_id="", where=where)

    def mark(self, ref: JobRef, suffix: str) -> Path:
        """Return a file beside the note whose being there says something of the job."""
        return self.of(ref.where["job_dir"], ref.where["name"]).with_suffix(suffix)

    def is_cancelled(self, ref: JobRef) -> bool:
        """Tell whether the job was to end, and its launcher is not to create it."""
        return self.mark(ref, ".cancelled").exists()

    def cancel(self, ref: JobRef) -> None:
        mark = self.mark(ref, ".cancelled")
        make_private_directory(mark.parent)
        mark.touch(mode=0o600)

    def check_wanted(self, ref: JobRef) -> None:
        """Raise SubmitError if the job was cancelled before it was created."""
        if self.is_cancelled(ref):
            raise SubmitError(
                f"The job was cancelled before its {self.what} was created.",
                backend=self.backend,
                operation="submit",
            )


def planned_id(experiment_id: str | None, role: str, name: str) -> str:
    """Return the app id of a job that is called ``name`` at its cluster; see `name_in`."""
    return "___".join([slug(experiment_id or "", 40), slug(role, 40), name])


def name_in(app_id: str) -> str:
    """Return what a job is called at its cluster."""
    return app_id.rpartition("___")[2]


def masked_variable(variable: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment variable of a request, its value masked where that is secret."""
    name, value = str(variable.get("name", "")), variable.get("value")
    if value is None:
        return dict(variable)
    return {**variable, "value": mask_environment({name: value})[name]}
