"""Run an experiment again with the code that it recorded, instead of the code of today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._experiments.provenance.record import Provenance, read_provenance
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError, PackagingError
from nemo_run.run.job import Job, JobGroup

if TYPE_CHECKING:
    from nemo_run.core.packaging._store import StagedCode


@dataclass(kw_only=True)
class RecordedArchive(Packager):
    """Takes an archive along that was made before."""

    sha256: str

    def package(self, path: Path, job_dir: str, name: str) -> str:
        from nemo_run.core.packaging import _store

        kept = _kept(self.sha256, name)
        return str(_store.place(kept, Path(job_dir) / f"{name}.tar.gz").archive)


@dataclass(frozen=True)
class RecordedCode:
    """The code of an experiment that is run again.

    Attributes:
        directory: of that experiment.
        origin: the id of the experiment that collected the code.
    """

    directory: Path
    origin: str
    provenance: Provenance

    def packager(self, job_id: str) -> Packager | None:
        """Return what brings the code of a job; None for one that was added since."""
        archive = self.provenance.archives.get(job_id)
        return RecordedArchive(sha256=archive.sha256) if archive else None


def recorded_code(directory: Path, id: str, jobs: Sequence[Job | JobGroup]) -> RecordedCode:
    """Return the code that an experiment recorded, all of which is still there.

    Raises:
        ConfigError: not all jobs have recorded any.
        PackagingError: an archive is not kept any more.
    """
    provenance = read_provenance(directory)
    if provenance is None:
        raise ConfigError(
            f"{id} cannot be run again with its recorded code: an earlier release ran it, which "
            "recorded none. Use reset() to run it with the code of today."
        )
    without = [job.id for job in jobs if job.id not in provenance.archives]
    if without:
        raise ConfigError(
            f"{id} cannot be run again with its recorded code: {', '.join(map(repr, without))} "
            "took none along, but used what was in place. Use reset() to run it with the code of "
            "today."
        )
    for job in jobs:
        _kept(provenance.archives[job.id].sha256, job.id)
    return RecordedCode(directory, provenance.code_from or id, provenance)


def _kept(sha256: str, job_id: str) -> StagedCode:
    # Only a rerun has to wait for what packaging needs.
    from nemo_run.core.packaging import _store

    kept = _store.find(sha256)
    if kept is None:
        raise PackagingError(
            f"The recorded code of job {job_id!r} is not kept any more: {_store.archives()} has no "
            f"archive {sha256}, so gc has removed it. Use reset() to run it with the code of today."
        )
    return kept
