"""A stored experiment made ready to run again: some of its jobs, with changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nemo_run._config.fiddle import fdl
from nemo_run._experiments.jobs.renaming import rename_jobs
from nemo_run.cli.commands.run_context import PREFIX, RunContext, parse_run_word
from nemo_run.cli.commands.run_options import place
from nemo_run.cli.lazy import LazyEntrypoint
from nemo_run.cli.lazy.changes import from_word
from nemo_run.cli.values.grammar import Operation, Override, parse_override, split
from nemo_run.cli.values.overrides import apply_overrides
from nemo_run.config import Script
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import ConfigError
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.sweep import keep_only

if TYPE_CHECKING:
    from nemo_run.run.experiment import Experiment

_EXECUTOR = re.compile(r"\s*run\.executor\b")


def again(
    experiment: Experiment,
    jobs: Collection[str],
    words: Sequence[str] = (),
    code: Literal["today", "recorded"] = "today",
) -> Experiment:
    """Return the experiment, reset, with only these jobs and with overrides applied to all tasks.

    What a job depended on and is not run again counts as done. Overrides that begin with
    ``run.executor`` change the executors, or name another.

    Raises:
        CLIException: an override fits no task, or its value does not.
    """
    keep_only(experiment, jobs)
    for_tasks = [word for word in words if not _EXECUTOR.match(word)]
    for_executors = [parse_run_word(word) for word in words if _EXECUTOR.match(word)]
    names: dict[str, str] = {}
    if for_tasks:
        for job, task in zip(experiment.jobs, experiment.tasks, strict=True):
            for item in task if isinstance(task, list) else [task]:
                _change(item, for_tasks)
            new = _renamed(job.id, task, [parse_override(word) for word in for_tasks])
            if new != job.id:
                names[job.id] = new
    if for_executors:
        for job in experiment.jobs:
            _change_executors(job, for_executors)
    ready = experiment.reset(code=code)
    if names:
        rename_jobs(ready, names)
    return ready


def _change(task: Any, words: Sequence[str]) -> None:
    _check_changeable(task)
    overrides = [_for_task(word) for word in words]
    if isinstance(task, LazyEntrypoint):
        # Its code is not here; what the words mean is found out where it runs.
        task._args_.extend(change for word in words for change in from_word(word))
    else:
        apply_overrides(task, overrides)


def _for_task(word: str) -> Override:
    if word.lstrip().startswith(PREFIX):
        name = word.partition("=")[0].strip()
        raise ConfigError(
            f"{name} cannot be changed here. Name or change the executor by run.executor, and see "
            "--help for options."
        )
    return parse_override(word)


def _check_changeable(task: Any) -> None:
    if isinstance(task, Script) or not isinstance(task, fdl.Buildable):
        raise ConfigError(
            "A script has no arguments to change. Choose the jobs to run again with --job."
        )


def _change_executors(job: Job | JobGroup, overrides: Sequence[Override]) -> None:
    def changed(executor: Executor) -> Executor:
        return place(RunContext, executor, None, overrides)[0] or executor

    if isinstance(job, JobGroup):
        given = job.executors
        job.executors = (
            changed(given) if isinstance(given, Executor) else [changed(e) for e in given]
        )
    else:
        job.executor = changed(job.executor)


def _renamed(name: str, task: Any, overrides: Sequence[Override]) -> str:
    """Return ``name``, such as ``rate=0.1,width=8``, with the values that ``overrides`` gave.

    Names that do not list values stay as they are.
    """
    parts = [part.partition("=") for part in split(name)]
    if not all(key and sign for key, sign, _ in parts):
        return name
    new = [f"{key}={_value(key, value, task, overrides)}" for key, _, value in parts]
    return ",".join(new).replace("/", "_")


def _value(key: str, value: str, task: Any, overrides: Sequence[Override]) -> str:
    for override in reversed(overrides):
        if override.key == key and override.operation is Operation.ASSIGN:
            return str(override.value)
        if override.key == key or key.startswith((f"{override.key}.", f"{override.key}[")):
            return _present(task, key, value)
    return value


def _present(task: Any, key: str, otherwise: str) -> str:
    """Return what a task has at ``key`` now, if that is plain."""
    for name in key.split("."):
        task = getattr(task, name, None)
    return str(task) if isinstance(task, (str, int, float)) else otherwise
