"""Give the jobs of an experiment other names, before they are launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nemo_run._experiments.jobs.job_factory import made_anew, new_id

if TYPE_CHECKING:
    from nemo_run.run.experiment import Experiment


def rename_jobs(experiment: Experiment, names: Mapping[str, str]) -> None:
    """Call jobs as ``names`` says, by their ids; a number tells those of one name apart."""
    taken = [job.id for job in experiment.jobs if job.id not in names]
    ids = {}
    for old, name in names.items():
        ids[old] = new_id(name, taken)
        taken.append(ids[old])
    for job in experiment.jobs:
        if job.id in ids:
            job.name = names[job.id] if job.name == job.id else job.name
            job.id = ids[job.id]
        job.dependencies = [ids.get(before, before) for before in job.dependencies]
    # Where a job lives follows from its id.
    experiment._jobs = [made_anew(experiment._workplace, job) for job in experiment.jobs]
    code = experiment._code
    if code is not None:
        kept = {ids.get(job, job): archive for job, archive in code.provenance.archives.items()}
        experiment._code = replace(code, provenance=replace(code.provenance, archives=kept))
