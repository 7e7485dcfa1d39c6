"""What may be added to an experiment, found out before it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nemo_run._callables import why_not
from nemo_run._config.fiddle import fdl
from nemo_run._names import check_text
from nemo_run._order import RUN_IF
from nemo_run.config import Script, get_type_namespace
from nemo_run.core.execution.base import Executor
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError
from nemo_run.run.plugin import ExperimentPlugin


def default_name(task: Any) -> str:
    """Return the id of a job that was added without a name.

    Raises:
        TypeError: this is not a task.
    """
    if isinstance(task, Script):
        return task.get_name()
    if getattr(type(task), "is_lazy", False):
        return str(task._own_name())
    if not isinstance(task, fdl.Buildable):
        raise TypeError(f"Need a run.Partial or run.Script to run, got {task!r}.")
    target = getattr(task, "__fn_or_cls__", None)
    return get_type_namespace(target) if target is not None else type(task).__name__


def check_kinds(task: Any, executor: Any, plugins: Any) -> None:
    """Find what is not what it should be before it fails somewhere inside."""
    for item in task if isinstance(task, Sequence) and not isinstance(task, str) else [task]:
        default_name(item)
    several = isinstance(executor, Sequence) and not isinstance(executor, str)
    for item in executor if several else [executor]:
        if item is not None and not isinstance(item, Executor):
            raise ConfigError(
                f"An executor is an object such as run.LocalExecutor(), not {item!r}."
            )
    if plugins is not None and (
        not isinstance(plugins, Sequence)
        or not all(isinstance(item, ExperimentPlugin) for item in plugins)
    ):
        raise ConfigError(f"plugins is a list of run.Plugin objects, not {plugins!r}.")


def check_runs(task: Any) -> None:
    """Refuse a task whose call would run nothing.

    Raises:
        ConfigError: it is a class, a generator or a context manager, or a script that no shell
            can be given.
    """
    if isinstance(task, Script):
        _check_texts(task)
    elif isinstance(task, fdl.Buildable) and (reason := why_not(task.__fn_or_cls__)):
        raise ConfigError(f"This cannot be a task: {reason}")


def _check_texts(script: Script) -> None:
    if isinstance(script.inline, str) and "\0" in script.inline:
        raise ConfigError("The inline script has a NUL in it, which no shell reads. Remove it.")
    for name, value in (script.env or {}).items():
        if not isinstance(value, (str, int, float)) or "\0" in str(value):
            raise ConfigError(
                f"env[{name!r}] of the script is {value!r}; a variable of the environment is text "
                "without NUL. Set it to one."
            )
        check_text(name, value, "env of the script")


def check_travels(task: Any) -> None:
    if not isinstance(task, Script):
        ZlibJSONSerializer().serialize(task)


def check_run_if(run_if: str) -> None:
    """Refuse what is not a policy for dependents."""
    if run_if not in RUN_IF:
        raise ConfigError(f"run_if is one of {', '.join(RUN_IF)}, not {run_if!r}.")


def checked_dependencies(
    dependencies: Sequence[str] | None, known: Sequence[str], name: str
) -> list[str]:
    """Return the ids that the job ``name`` depends on, all of them ``known``.

    Raises:
        ConfigError: one is not.
    """
    if isinstance(dependencies, str):
        raise ConfigError(f"dependencies is a list of job ids; write [{dependencies!r}].")
    for wanted in dependencies or ():
        if wanted not in known:
            raise ConfigError(
                f"{f'Job {name!r}' if name else 'The job'} depends on {wanted!r}, which is not "
                f"the id of a job added before. There are: {', '.join(map(repr, known)) or 'none'}."
            )
    return list(dependencies or ())
