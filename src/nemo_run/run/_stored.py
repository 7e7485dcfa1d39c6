"""Experiments and jobs read back from disk, also those of NeMo Run 0.12.

Nothing saved is executed: tasks stay text until somebody asks for them, and plugins that cannot
be imported here are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx.specs import AppState

from nemo_run import _buildables
from nemo_run._fiddle import fdl
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.serialization._decode import Stored
from nemo_run.core.serialization._references import main_is
from nemo_run.exceptions import ConfigError, ExperimentNotFoundError, RecordError
from nemo_run.run._directory import CONFIG, ExperimentDirectory, catalog, experiments_root
from nemo_run.run._main_module import beside_its_script, load_saved_main, names_main
from nemo_run.run._names import directory_for_title
from nemo_run.run.job import Job, JobGroup, decoded


@dataclass(frozen=True)
class StoredExperiment:
    """What an experiment's constructor needs, and its jobs."""

    options: dict[str, Any]
    jobs: list[Job | JobGroup]


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
    found = {name: stored.argument(name) for name in option_names}
    options = {
        "title": stored.argument("title"),
        "id": stored.argument("id") or directory.path.name,
        "executor": build_known(stored.argument("executor")) or LocalExecutor(),
        **{name: value for name, value in found.items() if value is not None},
    }
    return StoredExperiment(options, [load_job(*texts) for texts in directory.read_tasks()])


def latest_of(title: str, base_dir: str | None = None) -> Path:
    """Return the directory of the latest experiment of a title.

    Raises:
        ExperimentNotFoundError: there is none.
    """
    ids = catalog(title, base_dir)
    if not ids:
        known = ", ".join(map(repr, catalog("", base_dir))) or "none"
        raise ExperimentNotFoundError(f"There is no experiment titled {title!r}. Titles: {known}.")
    root = experiments_root(base_dir)
    nested = root / title / ids[-1]
    return nested if nested.is_dir() else root / directory_for_title(title) / ids[-1]


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
    with main_is(main):
        if isinstance(job, JobGroup):
            job.tasks = [decoded(task) for task in job.task_list()]
        else:
            job.task = decoded(job.task)


def load_job(job_text: str, task_text: str) -> Job | JobGroup:
    """Return a stored job; its tasks stay text."""
    stored = Stored(job_text)
    shared: dict[str, Any] = {
        "id": stored.argument("id"),
        "launched": stored.argument("launched", False),
        "plugins": _plugins(stored),
        "tail_logs": stored.argument("tail_logs", False),
        "dependencies": list(stored.argument("dependencies") or []),
        "name": stored.argument("name", ""),
        "run_if": stored.argument("run_if", "succeeded"),
    }
    executors = "executors" if stored.target.endswith(":JobGroup") else "executor"
    if stored.argument(executors) is None:
        raise ConfigError(
            f"Job {shared['id']!r} cannot be read: the class of its executor is not here. "
            "Install the package it comes from, or look from the script that defines it."
        )
    if stored.target.endswith(":JobGroup"):
        return JobGroup(
            tasks=task_text,
            executors=build_known(stored.argument("executors")),
            handles=list(stored.argument("handles") or []),
            states=list(stored.argument("states") or []),
            **shared,
        )
    return Job(
        task=task_text,
        executor=build_known(stored.argument("executor")),
        handle=stored.argument("handle", ""),
        state=stored.argument("state", AppState.UNSUBMITTED),
        **shared,
    )


def build_known(config: Any) -> Any:
    """Build a config, leaving out fields of dataclasses that this release does not have."""
    for buildable in _buildables.buildables(config):
        target = buildable.__fn_or_cls__
        if dataclasses.is_dataclass(target):
            known = {f.name for f in dataclasses.fields(target) if f.init}
            for name in [name for name in buildable.__arguments__ if name not in known]:
                del buildable.__arguments__[name]
    if isinstance(config, Executor) or config is None:
        return config
    return fdl.build(config)


def _plugins(stored: Stored) -> list[Any] | None:
    plugins = stored.argument("plugins")
    if plugins is None:
        return None
    return [build_known(plugin) for plugin in plugins if isinstance(plugin, fdl.Config)]
