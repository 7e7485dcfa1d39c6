"""Experiments and jobs read back from disk, also those of NeMo Run 0.12.

To look at them executes nothing saved: tasks stay text until they are asked for, and what cannot
be imported here, or is no executor or part of one, is left out. What runs has to be complete: see
`complete_job`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torchx.specs import AppState

from nemo_run._config import buildables, later
from nemo_run._config.fiddle import fdl
from nemo_run._experiments.jobs.task_text import decoded
from nemo_run._experiments.main_module import (
    beside_its_script,
    is_running,
    load_saved_main,
    names_main,
)
from nemo_run._experiments.store.directory import CONFIG, TASKS, ExperimentDirectory
from nemo_run._experiments.store.places import catalog, runs_of
from nemo_run._experiments.workspace_file import as_saved
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.serialization._decode import Stored
from nemo_run.core.serialization._parts import only_parts
from nemo_run.core.serialization._references import main_is
from nemo_run.exceptions import (
    ConfigError,
    ExperimentNotFoundError,
    NemoRunError,
    RecordError,
)
from nemo_run.run.job import Job, JobGroup

Build = Callable[[Any, list[str]], Any]


@dataclass(frozen=True)
class StoredExperiment:
    """What an experiment's constructor needs, and its jobs."""

    options: dict[str, Any]
    jobs: list[Job | JobGroup]
    left_out: tuple[str, ...]


def read_experiment(
    directory: ExperimentDirectory, option_names: Sequence[str]
) -> StoredExperiment:
    """Return what is stored in a directory; options that are not stored are left out.

    Raises:
        ConfigError: it is not the directory of an experiment.
        RecordError: a file is missing or damaged.
    """
    text = directory.read(CONFIG)
    if text is None:
        raise ConfigError(f"{str(directory.path)!r} is not an experiment: it has no {CONFIG}.")
    try:
        stored = Stored(text)
    except (ConfigError, LookupError, TypeError, ValueError) as err:
        path = directory.path / CONFIG
        raise RecordError(f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path) from err
    left_out: list[str] = []
    with damage_said(directory.path / CONFIG):
        options = _options(stored, directory, option_names, left_out)
    with damage_said(directory.path / TASKS):
        jobs = [load_job(*texts) for texts in directory.read_tasks()]
    return StoredExperiment(options, jobs, (*stored.left_out, *left_out))


def _options(
    stored: Stored, directory: ExperimentDirectory, names: Sequence[str], left_out: list[str]
) -> dict[str, Any]:
    found = {name: stored.argument(name) for name in names}
    return {
        "title": stored.argument("title"),
        "id": stored.argument("id") or directory.path.name,
        "executor": build_to_look(stored.argument("executor"), left_out) or LocalExecutor(),
        **{name: value for name, value in found.items() if value is not None},
    }


@contextlib.contextmanager
def damage_said(path: Path) -> Iterator[None]:
    """Say in our words that what is in a file is not what we write."""
    try:
        yield
    except NemoRunError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as err:
        raise RecordError(f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path) from err


def latest_of(title: str, base_dir: str | None = None) -> Path:
    """Return the directory of the latest experiment of a title.

    Raises:
        ExperimentNotFoundError: there is none.
    """
    runs = runs_of(title, base_dir)
    if not runs:
        known = ", ".join(map(repr, catalog("", base_dir))) or "none"
        raise ExperimentNotFoundError(f"There is no experiment titled {title!r}. Titles: {known}.")
    return runs[-1]


def decode_tasks(jobs: Iterable[Job | JobGroup], main_from: Path | None) -> None:
    """Turn the texts of stored tasks into tasks, importing what they name.

    The script saved in ``main_from`` is executed if they name something in it.
    """
    with beside_its_script(main_from):
        for job in jobs:
            _decode(job, main_from)


def _decode(job: Job | JobGroup, main_from: Path | None) -> None:
    stored = job.tasks if isinstance(job, JobGroup) else job.task
    main = None
    if isinstance(stored, str) and main_from is not None and names_main(stored):
        main = load_saved_main(main_from)
    text = stored if isinstance(stored, str) else ""
    with as_saved(main_from, text), main_is(main):
        if isinstance(job, JobGroup):
            job.tasks = [decoded(task) for task in job.task_list()]
        else:
            job.task = decoded(job.task)


def complete_executor(directory: Path) -> Executor:
    """Return the executor of a stored experiment, to be used for new jobs, with all that it had.

    Raises:
        ConfigError: a class of it cannot be had here.
    """
    text = ExperimentDirectory(directory).read(CONFIG) or ""
    with _saved_classes(directory, text):
        stored = Stored(text, looking=False)
        executor = build_known(stored.argument("executor"))
    if stored.left_out or executor is None:
        raise _incomplete("The executor of the experiment", stored.left_out)
    return cast("Executor", executor)


def complete_job(job: Job | JobGroup, directory: Path, texts: tuple[str, str]) -> None:
    """Give a job that is to run all that its stored executor has.

    The script saved in ``directory`` is executed if the executor has something of it.

    Raises:
        ConfigError: a class of it cannot be had here.
    """
    if not (job._left_out or names_main(texts[0])):
        return
    with _saved_classes(directory, texts[0]):
        stored = Stored(texts[0], looking=False)
        stored.argument("executors" if isinstance(job, JobGroup) else "executor")
        if stored.left_out:
            raise _incomplete(f"Job {job.id!r}", stored.left_out)
        complete = load_job(*texts, looking=False)
    job.plugins, job._left_out = complete.plugins, complete._left_out
    if isinstance(job, JobGroup):
        job.executors = cast("JobGroup", complete).executors
    else:
        job.executor = complete.executor


@contextlib.contextmanager
def _saved_classes(directory: Path, text: str) -> Iterator[None]:
    """While entered, ``__main__`` in a stored text means the script saved with it."""
    with beside_its_script(directory), as_saved(directory, text):
        needed = names_main(text) and not is_running(directory)
        with main_is(load_saved_main(directory) if needed else None):
            yield


def _incomplete(what: str, left_out: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{what} cannot be run from here: {'; '.join(left_out) or 'its class is not here'} "
        "Install what defines it, or put it into a module that can be imported here."
    )


def load_job(job_text: str, task_text: str, *, looking: bool = True) -> Job | JobGroup:
    """Return a stored job; its tasks stay text. Where it is to run, all that it has is built."""
    stored = Stored(job_text, looking=looking)
    unknown: list[str] = []
    build = build_to_look if looking else build_known
    shared: dict[str, Any] = {
        "id": stored.argument("id"),
        "launched": stored.argument("launched", False),
        "plugins": _plugins(stored, build, unknown),
        "tail_logs": stored.argument("tail_logs", False),
        "dependencies": list(stored.argument("dependencies") or []),
        "name": stored.argument("name", ""),
    }
    executors = "executors" if stored.target.endswith(":JobGroup") else "executor"
    if stored.argument(executors) is None:
        raise ConfigError(
            f"Job {shared['id']!r} cannot be read: the class of its executor is not here. "
            "Install the package it comes from, or look from the script that defines it."
        )
    own = _own_executors(stored.argument(executors), shared["id"], build, unknown)
    first = own[0] if isinstance(own, list) else own
    # Not stored where the executor says it, and by 0.12.
    shared["run_if"] = stored.argument("run_if") or first.implied_run_if() or "succeeded"
    job: Job | JobGroup
    if stored.target.endswith(":JobGroup"):
        job = JobGroup(
            tasks=task_text,
            executors=own,
            handles=list(stored.argument("handles") or []),
            states=list(stored.argument("states") or []),
            **shared,
        )
    else:
        job = Job(
            task=task_text,
            executor=own,
            handle=stored.argument("handle", ""),
            state=stored.argument("state", AppState.UNSUBMITTED),
            **shared,
        )
    job._left_out = (*stored.left_out, *unknown)
    return job


def _own_executors(config: Any, job_id: str, build: Build, unknown: list[str]) -> Any:
    """Return the executor of a job, or its executors, that know which job they belong to."""
    if isinstance(config, (list, tuple)):
        return [_own_executors(item, job_id, build, unknown) for item in config]
    knows_its_job = later.ATTRIBUTE in getattr(config, "__dict__", {})
    executor = build(config, unknown)
    if not isinstance(executor, Executor):
        raise ConfigError(f"Job {job_id!r} cannot be read: what is stored is no executor.")
    if not knows_its_job and executor.experiment_id and executor.job_dir:
        # Written by a release that did not store what `assign` sets.
        place = Path(executor.job_dir)
        with contextlib.suppress(ConfigError):  # not being able to run is no reason not to be seen
            executor.assign(executor.experiment_id, str(place.parent), job_id, place.name)
    return executor


def build_to_look(config: Any, left_out: list[str]) -> Any:
    """Build a stored executor, tunnel or plugin without what would call anything else.

    What is missing is added to ``left_out``; None is returned where nothing is left.

    Raises:
        ConfigError: it cannot be built without that.
    """
    try:
        return build_known(only_parts(config, left_out), left_out)
    except (TypeError, ValueError) as err:
        if not left_out:
            raise
        raise ConfigError(f"It cannot be looked at: {'; '.join(left_out)} ({err})") from err


def build_known(config: Any, unknown: list[str] | None = None) -> Any:
    """Build a config, leaving out fields of dataclasses that this release does not have.

    Their names are added to ``unknown``.
    """
    for buildable in buildables.buildables(config):
        target = buildable.__fn_or_cls__
        if dataclasses.is_dataclass(target):
            fields = {f.name: f for f in dataclasses.fields(target)}
            for name in [str(name) for name in buildable.__arguments__]:
                if name not in fields or not fields[name].init:
                    value = buildable.__arguments__.pop(name)
                    if name in fields:  # the constructor took it in an earlier release
                        buildable.__dict__.setdefault(later.ATTRIBUTE, {}).setdefault(name, value)
                    elif unknown is not None:
                        unknown.append(f"{target.__name__}.{name}")
    if isinstance(config, Executor) or config is None:
        return config
    return fdl.build(config)


def _plugins(stored: Stored, build: Build, left_out: list[str]) -> list[Any] | None:
    plugins = stored.items("plugins")
    if plugins is None:
        return None
    made = (build(plugin, left_out) for plugin in plugins if isinstance(plugin, fdl.Config))
    return [plugin for plugin in made if plugin is not None]
