"""The Ray clusters and jobs that were started from this home directory, for any later process."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nemo_run._files import make_private_directory, read_whole, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run._names import slug
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import RecordError, UnserializableError

if TYPE_CHECKING:
    from nemo_run.run.ray.cluster import RayCluster
    from nemo_run.run.ray.job import RayJob

log = logging.getLogger(__name__)

Kind = Literal["cluster", "job"]


@dataclass(frozen=True, kw_only=True)
class Known:
    """A cluster or a job, with the executor that finds it again.

    Attributes:
        executor: the name of its class.
        stored: the executor, as jobs of experiments store theirs; its owner alone can read it.
        started_at: seconds since the epoch, when it was last to be started.
        cluster_name: of a job, the cluster that it was submitted to, where that is not its own.
    """

    kind: Kind
    name: str
    executor: str
    stored: str
    started_at: float
    cluster_name: str | None = None

    def cluster(self) -> RayCluster:
        """Return the cluster, or of a job on Slurm the one that the job is."""
        from nemo_run.run.ray.cluster import RayCluster

        return RayCluster(name=self.name, executor=self._built(), log_level="WARNING")

    def job(self) -> RayJob:
        from nemo_run.run.ray.job import RayJob

        return RayJob(
            name=self.name,
            executor=self._built(),
            log_level="WARNING",
            cluster_name=self.cluster_name,
        )

    def _built(self) -> Executor:
        from nemo_run._experiments.store.loading import load_job

        job_text, task_text = json.loads(self.stored)
        job = load_job(job_text, task_text)
        executor: Executor = job.executor
        return executor


def remember(kind: Kind, name: str, executor: Executor, *, cluster_name: str | None = None) -> None:
    """Write down what is about to be started: a later process finds it also if this one dies."""
    from nemo_run.config import Script
    from nemo_run.run.job import Job

    try:
        stored = Job(id=name, task=Script(inline="true"), executor=executor).serialize()
    except UnserializableError as err:
        log.warning("%s: nemorun ray will not find it: %s", name, err)
        return
    known = Known(
        kind=kind,
        name=name,
        executor=type(executor).__name__,
        stored=json.dumps(stored),
        started_at=time.time(),
        cluster_name=cluster_name,
    )
    path = _directory() / _file_name(kind, name, executor)
    make_private_directory(path.parent)
    write_whole(path, json.dumps(asdict(known)).encode())


def all_known() -> list[Known]:
    """Return them all, the latest first.

    Raises:
        RecordError: a file is damaged; says which.
    """
    directory = _directory()
    found = sorted(directory.glob("*.json")) if directory.is_dir() else []
    return sorted(_read(found), key=lambda known: known.started_at, reverse=True)


def _read(paths: Iterable[Path]) -> Iterable[Known]:
    for path in paths:
        data = read_whole(path)
        if data is None:
            continue  # removed meanwhile
        try:
            yield Known(**json.loads(data))
        except (ValueError, TypeError) as err:
            raise RecordError(f"{path} is damaged: {err}. Remove it.", path=path) from err


def _directory() -> Path:
    return Path(get_nemorun_home()) / "ray" / "known"


def _file_name(kind: str, name: str, executor: Executor) -> str:
    way = executor.way
    where = (
        f"{way.key}:{way.job_dir}" if way is not None else str(getattr(executor, "namespace", ""))
    )
    said = json.dumps([kind, name, type(executor).__name__, where])
    return f"{kind}-{slug(name, 40)}-{hashlib.sha256(said.encode()).hexdigest()[:10]}.json"
