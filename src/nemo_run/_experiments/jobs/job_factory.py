"""Jobs: made from what users add to an experiment, or made anew to be run again."""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.specs import AppState

from nemo_run._config import defaults, later
from nemo_run._experiments.jobs.adding import check_runs, check_travels, default_name
from nemo_run._names import check_text, checked_job_name
from nemo_run._order import RunIf
from nemo_run.config import Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import ConfigError
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.plugin import ExperimentPlugin

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workplace:
    """The experiment that jobs are made for: its id and its directory."""

    id: str
    directory: str

    def own_executor(self, executor: Executor, job_id: str) -> Executor:
        """Return a copy that knows where its job lives.

        Raises:
            ConfigError: its environment cannot be written down.
        """
        for name, value in (executor.env_vars or {}).items():
            check_text(name, value, "env_vars of the executor")
        own = executor.clone()
        later.carry_over(executor, own)
        # Not by the name that the user gave: several jobs may have it.
        own.assign(self.id, self.directory, task_id=job_id, task_dir=job_id)
        return own


def make_job(
    place: Workplace,
    task: Partial[Any] | Script | Sequence[Partial[Any] | Script],
    executor: Executor | Sequence[Executor],
    *,
    name: str,
    taken: Collection[str],
    plugins: Sequence[ExperimentPlugin] | None,
    run_if: RunIf = "succeeded",
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

    job_id = new_id(name or default_name(tasks[0]), taken)
    copies = [copy.deepcopy(item) for item in tasks]
    own = [place.own_executor(item, job_id) for item in given]
    _apply(plugins, copies, own if len(own) > 1 else own * len(copies), place.id)
    _fill_in_defaults(copies, own)
    for item in copies:
        check_runs(item)
        check_travels(item)
    shared: dict[str, Any] = {
        "id": job_id,
        "name": name or "",
        "plugins": None if plugins is None else list(plugins),
        "run_if": _run_if(own[0], run_if, job_id),
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
        own = [place.own_executor(e, new.id) for e in new.executor_list()]
        new.executors = own if len(own) > 1 else own[0]
        new.handles, new.states = [], []
    else:
        new.executor = place.own_executor(new.executor, new.id)
        new.handle, new.state = "", AppState.UNSUBMITTED
    return new


def _run_if(executor: Executor, given: RunIf, job_id: str) -> RunIf:
    """Return when a job runs that depends on others: the executor may have a word of its own."""
    implied = executor.implied_run_if()
    if implied is not None and given not in ("succeeded", implied):
        log.warning(
            "%s: its executor asks that the jobs before have %s, so run_if=%r has no effect",
            job_id,
            implied,
            given,
        )
    return implied or given


def new_id(name: str, taken: Collection[str]) -> str:
    """Return the name of a job, or if another has it, that and a number."""
    new, number = checked_job_name(name), len(taken)
    while new in taken:
        new, number = f"{name}_{number}", number + 1
    return new


def _fill_in_defaults(tasks: Sequence[Any], executors: Sequence[Executor]) -> None:
    """Take None for the default also where a plugin has set it."""
    for executor in executors:
        executor.fill_in_defaults()
    for task in tasks:
        if isinstance(task, Script):
            defaults.fill_in(task)


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
