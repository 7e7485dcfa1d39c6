"""What is wrong with the jobs of an experiment, found before the first is submitted."""

from __future__ import annotations

import inspect
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nemo_run._config import buildables
from nemo_run._config.fiddle import fdl
from nemo_run._home import working_directory
from nemo_run.config import Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import ConfigError, UnsupportedError
from nemo_run.run.job import Job, JobGroup

# Programs whose first argument is the file that they run.
_READS_A_FILE = re.compile(r"(bash|sh|zsh|dash|python[\d.]*)")


def check_tasks(jobs: Sequence[Job | JobGroup]) -> None:
    """Refuse tasks that cannot even start.

    Tasks stored as text have run before and are not read.

    Raises:
        ConfigError: a required argument is not set, or a script is not there.
    """
    for job in jobs:
        tasks = job.task_list() if isinstance(job, JobGroup) else [job.task]
        for task in tasks:
            if isinstance(task, Partial):
                _check_arguments(task, job.id)
            # A job that this one waits for may write the script.
            elif isinstance(task, Script) and not job.dependencies:
                _check_script(task, job.executor, job.id)


def _check_arguments(task: Partial[Any], job_id: str) -> None:
    for buildable in buildables.buildables(task):
        # A partial inside of the task is called by the task, with what is missing.
        if buildable is task or isinstance(buildable, fdl.Config):
            missing = list(_unset(buildable))
            if missing:
                called = getattr(buildable.__fn_or_cls__, "__qualname__", buildable.__fn_or_cls__)
                raise ConfigError(
                    f"Job {job_id!r} cannot run: {called} needs {', '.join(map(repr, missing))}, "
                    "which has no default and is not set. Set it on the task."
                )


def _unset(buildable: fdl.Buildable[Any]) -> Iterator[str]:
    given = buildable.__arguments__
    for position, (name, parameter) in enumerate(buildable.__signature_info__.parameters.items()):
        optional = parameter.default is not inspect.Parameter.empty or parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        )
        if not (optional or name in given or position in given):
            yield name


def _check_script(script: Script, executor: Executor, job_id: str) -> None:
    script = script.resolved()
    if script.inline or script.m or not executor.CAPABILITIES.local_paths:
        return
    if not _READS_A_FILE.fullmatch(Path(script.entrypoint).name) or script.path.startswith("-"):
        return
    # Shells look for a script on the PATH, too.
    search = executor.env_vars.get("PATH", os.environ.get("PATH"))
    if not Path(script.path).exists() and not shutil.which(script.path, os.R_OK, search):
        here = str(working_directory())
        raise ConfigError(
            f"Job {job_id!r} cannot run: there is no file {script.path!r} in {here!r}. "
            "Give the path of a script, or its text as inline=."
        )


def check_can_detach(jobs: Sequence[Job | JobGroup], supported: Sequence[type]) -> None:
    """Refuse to leave jobs behind that no process could look after.

    ``supported`` are classes of executors that can be detached from, whatever they say themselves.

    Raises:
        UnsupportedError: they end with this process, or no other can import their executor.
    """
    for job in jobs:
        if type(job.executor).__module__ == "__main__":
            raise UnsupportedError(
                f"The class of {job.id!r}'s executor is defined in this script, so no other "
                "process can look after the job. Put it into a module, or do not detach."
            )
        if not job.executor.CAPABILITIES.detach and type(job.executor) not in supported:
            raise UnsupportedError(
                f"Job {job.id!r} runs on {type(job.executor).__name__}, whose jobs end with "
                "this process. Run it without detach=True."
            )
