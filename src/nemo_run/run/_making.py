"""Jobs: made from what users add to an experiment, or made anew to be run again."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.specs import AppState

from nemo_run.config import Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import ConfigError
from nemo_run.run._adding import check_travels, default_name
from nemo_run.run._names import checked_job_name
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.plugin import ExperimentPlugin


@dataclass(frozen=True)
class Workplace:
    """The experiment that jobs are made for: its id and its directory."""

    id: str
    directory: str

    def own_executor(self, executor: Executor, job_id: str, name: str) -> Executor:
        """Return a copy that knows where its job lives."""
        own = executor.clone()
        own.assign(self.id, self.directory, task_id=job_id, task_dir=name or job_id)
        return own


def make_job(
    place: Workplace,
    task: Partial[Any] | Script | Sequence[Partial[Any] | Script],
    executor: Executor | Sequence[Executor],
    *,
    name: str,
    taken: Collection[str],
    plugins: Sequence[ExperimentPlugin] | None,
    **settings: Any,
) -> Job | JobGroup:
    """Return a job of copies of ``task`` and ``executor``, edited by ``plugins``.

    A list of tasks makes a group. Ids that are ``taken`` get a number appended.

    Raises:
        ConfigError: names or numbers do not fit, or something in a task cannot travel.
    """
    is_group = isinstance(task, Sequence)
    tasks: Sequence[Partial[Any] | Script] = task if isinstance(task, Sequence) else [task]
    given = executor if isinstance(executor, Sequence) else [executor]
    if is_group and not (tasks and name):
        raise ConfigError("A group of tasks needs tasks and a name.")
    if len(given) not in (1, len(tasks)):
        raise ConfigError(f"{len(given)} executors do not fit {len(tasks)} tasks.")

    job_id = _new_id(name or default_name(tasks[0]), taken)
    copies = [copy.deepcopy(item) for item in tasks]
    own = [place.own_executor(item, job_id, name) for item in given]
    _apply(plugins, copies, own if len(own) > 1 else own * len(copies), place.id)
    for item in copies:
        check_travels(item)
    shared: dict[str, Any] = {
        "id": job_id,
        "name": name,
        "plugins": None if plugins is None else list(plugins),
        **settings,
    }
    if is_group:
        return JobGroup(tasks=copies, executors=own if len(own) > 1 else own[0], **shared)
    return Job(task=copies[0], executor=own[0], **shared)


def made_anew(place: Workplace, job: Job | JobGroup) -> Job | JobGroup:
    """Return a job like ``job`` that has not been launched."""
    new = copy.copy(job)
    new.launched = False
    if isinstance(new, JobGroup):
        own = [place.own_executor(e, new.id, new.name) for e in new.executor_list()]
        new.executors = own if len(own) > 1 else own[0]
        new.handles, new.states = [], []
    else:
        new.executor = place.own_executor(new.executor, new.id, new.name)
        new.handle, new.state = "", AppState.UNSUBMITTED
    return new


def _new_id(name: str, taken: Collection[str]) -> str:
    new, number = checked_job_name(name), len(taken)
    while new in taken:
        new, number = f"{name}_{number}", number + 1
    return new


def _apply(
    plugins: Sequence[ExperimentPlugin] | None,
    tasks: Sequence[Any],
    executors: Sequence[Executor],
    experiment_id: str,
) -> None:
    for plugin in plugins or ():
        plugin.assign(experiment_id)
        for task, executor in zip(tasks, executors, strict=True):
            plugin.setup(task, executor)
