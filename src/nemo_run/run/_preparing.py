"""The directory of an experiment, filled before the first job is submitted."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._files import make_private_directory
from nemo_run.config import Config
from nemo_run.core.execution.base import Executor
from nemo_run.core.packaging._sharing import one_look
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError
from nemo_run.package_info import __version__
from nemo_run.run import _directory
from nemo_run.run._directory import ExperimentDirectory
from nemo_run.run._main_module import main_path, main_source
from nemo_run.run._names import directory_for_title
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner
from nemo_run.run.torchx_backend.schedulers.api import get_executor_str

if TYPE_CHECKING:
    from nemo_run.run._rerun import RecordedCode

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
    """
    directory.create(exist_ok=exist_ok)
    home_root = _directory.experiments_root()
    if not directory.path.is_relative_to(home_root):
        _link(home_root / directory_for_title(title) / directory.path.name, directory.path)
    directory.write(_directory.CONFIG, ZlibJSONSerializer().serialize(config), sync=True)
    directory.write(_directory.VERSION, f"{__version__}\n")
    before = ExperimentDirectory(main_from) if main_from else None
    saved = before.read(_directory.MAIN) if before else None
    path = before.read(_directory.SCRIPT) if before and saved else None
    directory.write(_directory.MAIN, saved or main_source())
    directory.write(_directory.SCRIPT, path or main_path())


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
    except Exception as err:  # noqa: BLE001 - whoever launches meets it again, and tells it
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
            directory.write_plan(index, apps)
        save_tasks(directory, jobs)
        undo.pop_all()


def save_tasks(directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup]) -> None:
    """Write down the jobs and their tasks, before the first is launched."""
    texts = [job.serialize() for job in jobs]
    directory.write(_directory.TASKS, json.dumps(texts), sync=True)


def save_jobs(directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup]) -> None:
    """Write down what is known of the jobs now; their tasks stay as they were launched."""
    tasks = [task for _, task in directory.read_tasks()]
    texts = [(job.serialize_job(), task) for job, task in zip(jobs, tasks, strict=True)]
    directory.write(_directory.TASKS, json.dumps(texts), sync=True)


def requests(
    directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup], runner: Runner
) -> Iterator[tuple[Job | JobGroup, list[Any]]]:
    """Yield each job with the requests that would be submitted for it."""
    for index, job in enumerate(jobs):
        _, apps = directory.read_plan(index) or ("", [])
        yield (
            job,
            [
                runner.dryrun(app, get_executor_str(executor), executor)
                for app, executor in zip(apps, job.executors_in_order, strict=True)
            ],
        )


def check_requests(
    directory: ExperimentDirectory, jobs: Sequence[Job | JobGroup], runner: Runner
) -> None:
    """Find what is wrong with any job before the first is submitted."""
    try:
        for _ in requests(directory, jobs, runner):
            pass
    except ConfigError:
        directory.remove()
        raise


def _link(link: Path, target: Path) -> None:
    """Make an experiment kept elsewhere findable from the home directory."""
    make_private_directory(link.parent)
    if not link.exists():
        link.symlink_to(target.resolve())
