"""A stored experiment made ready to run again: some of its jobs, with changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nemo_run._fiddle import fdl
from nemo_run.cli._grammar import Override, parse_override
from nemo_run.cli._lazy_changes import from_word
from nemo_run.cli._overrides import apply_overrides
from nemo_run.cli._placement import place
from nemo_run.cli._run_context import PREFIX, RunContext, parse_run_word
from nemo_run.cli.lazy import LazyEntrypoint
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
    if for_tasks:
        for task in experiment.tasks:
            for item in task if isinstance(task, list) else [task]:
                _change(item, for_tasks)
    if for_executors:
        for job in experiment.jobs:
            _change_executors(job, for_executors)
    return experiment.reset(code=code)


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
