"""The directory of an experiment, filled before the first job is submitted."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._experiments.conductor.launching import plan_with_tag
from nemo_run._experiments.main_module import MAIN, SCRIPT, main_path, main_source
from nemo_run._experiments.store import directory as store_directory
from nemo_run._experiments.store import places
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.plans import Plan, staged_code
from nemo_run._experiments.workspace_file import COPY, PLACE, find_workspace
from nemo_run._files import make_private_directory
from nemo_run._home import working_directory
from nemo_run._jobs.records import new_tag
from nemo_run._names import directory_for_title
from nemo_run.config import Config
from nemo_run.core.execution.base import Executor
from nemo_run.core.packaging._sharing import one_look
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError
from nemo_run.package_info import __version__
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner
from nemo_run.run.torchx_backend.schedulers.api import PlannedRun

if TYPE_CHECKING:
    from nemo_run._experiments.rerun import RecordedCode

log = logging.getLogger(__name__)


def create(
    directory: ExperimentDirectory,
    *,
    title: str,
    config: Config[Any],
    main_from: Path | None,
    exist_ok: bool,
) -> None:
    """Make the directory, with what describes the experiment as a whole.

    The saved script is that of ``main_from``, the experiment that is run again, where it has one.

    Raises:
        ConfigError: the directory cannot be made, or the experiment's executor not be stored.
    """
    text = ZlibJSONSerializer().serialize(config)  # what cannot be stored leaves no directory
    directory.create(exist_ok=exist_ok)
    directory.write(store_directory.CONFIG, text, sync=True)
    home_root = places.experiments_root()
    if not directory.path.is_relative_to(home_root):
        _link(home_root / directory_for_title(title) / directory.path.name, directory.path)
    directory.write(store_directory.VERSION, f"{__version__}\n")
    before = ExperimentDirectory(main_from) if main_from else None
    saved = before.read(MAIN) if before else None
    path = before.read(SCRIPT) if before and saved else None
    directory.write(MAIN, saved or main_source())
    directory.write(SCRIPT, path or main_path())
    workspace = find_workspace(main_from or directory.path)
    if workspace is not None:
        directory.write(COPY, workspace.text)
        directory.write(PLACE, workspace.path)


def let_backends_get_ready(jobs: Sequence[Job | JobGroup]) -> None:
    """Have the executors connect, or whatever they do ahead, while the jobs are prepared.

    In the background, each place once, one after the other, up to the first trouble.
    """
    places = {
        executor.info(): executor
        for job in jobs
        for executor in job.executors_in_order
        if not executor.CAPABILITIES.local_paths
    }
    if places:
        threading.Thread(target=_get_ready, args=(list(places.values()),), daemon=True).start()


def _get_ready(executors: Sequence[Executor]) -> None:
    try:
        for executor in executors:
            executor.get_ready()
    except Exception as err:  # noqa: BLE001 - the launch meets it again, and says it
        log.debug("%s: %s", type(err).__name__, err)


def prepare_jobs(
    directory: ExperimentDirectory,
    jobs: Sequence[Job | JobGroup],
    *,
    with_code: bool,
    with_metadata: bool,
    code: RecordedCode | None = None,
) -> None:
    """Write what the jobs need and what is to be submitted; a failure leaves no directory.

    ``code`` is what travels in place of what the packagers would find.
    """
    with contextlib.ExitStack() as undo, one_look():
        undo.callback(directory.remove)
        for index, job in enumerate(jobs):
            packager = code.packager(job.id) if code else None
            apps = job.prepare(with_metadata, with_code=with_code, packager=packager)
            staged = staged_code(job.executor.job_dir, job.id) if with_code else []
            directory.write_plan(index, Plan(str(working_directory()), apps, staged))
        save_tasks(directory, jobs)
        undo.pop_all()


def save_tasks(directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup]) -> None:
    """Write down the jobs and their tasks, before the first is launched."""
    texts = [job.serialize() for job in jobs]
    directory.write(store_directory.TASKS, json.dumps(texts), sync=True)


def save_jobs(directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup]) -> None:
    """Write down what is known of the jobs now; their tasks stay as they were launched.

    A job that could not be read in full stays as it is stored, too: it would lose the rest.
    """
    texts = [
        (stored if job._left_out else job.serialize_job(), task)
        for job, (stored, task) in zip(jobs, directory.read_tasks(), strict=True)
    ]
    directory.write(store_directory.TASKS, json.dumps(texts), sync=True)


def requests(
    directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup], runner: Runner
) -> Iterator[list[PlannedRun[Any]]]:
    """Yield the requests of each job, one for each of its executors in order."""
    for index, job in enumerate(jobs):
        plan = directory.read_plan(index) or Plan("", [])
        yield [
            plan_with_tag(runner, app, executor, plan.cwd, new_tag())
            for app, executor in zip(plan.apps, job.executors_in_order, strict=True)
        ]


def checked_requests(
    directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup], runner: Runner
) -> dict[int, list[PlannedRun[Any]]]:
    """Plan every job before the first is submitted; return what is to be launched.

    Raises:
        ConfigError: something is wrong with one of them; the directory is removed.
    """
    try:
        return dict(enumerate(requests(directory, jobs, runner)))
    except ConfigError:
        directory.remove()
        raise


def _link(link: Path, target: Path) -> None:
    """Make an experiment kept elsewhere findable from the home directory."""
    make_private_directory(link.parent)
    if not link.exists():
        link.symlink_to(target.resolve())
