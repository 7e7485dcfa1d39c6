"""Experiments: tasks, their order and their outcome, kept in a directory of their own."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from torchx.specs import AppState

from nemo_run._files import make_private_directory
from nemo_run.config import Config, ConfigurableMixin, Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.frontend.console.api import CONSOLE, configure_logging
from nemo_run.core.serialization._references import main_is
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import (
    ConfigError,
    ExperimentNotFoundError,
    NemoRunError,
    SubmitError,
    UnsupportedError,
)
from nemo_run.package_info import __version__
from nemo_run.run import _conductor, _directory, _display, _order, _outcome
from nemo_run.run._adding import (
    check_kinds,
    check_run_if,
    check_travels,
    checked_dependencies,
    default_name,
)
from nemo_run.run._direct import is_direct, is_first_rank, only_single_jobs, run_directly
from nemo_run.run._directory import ExperimentDirectory, JobState
from nemo_run.run._main_module import (
    check_not_loading,
    load_saved_main,
    main_source,
    merge_saved_main,
    names_main,
)
from nemo_run.run._names import checked, checked_job_name, directory_for_title
from nemo_run.run._stored import read_experiment
from nemo_run.run._tailing import LogTail
from nemo_run.run.job import Job, JobGroup, decoded
from nemo_run.run.plugin import ExperimentPlugin
from nemo_run.run.torchx_backend.runner import Runner, get_runner
from nemo_run.run.torchx_backend.schedulers.api import get_executor_str

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run.run._order import RunIf

_current_experiment: ContextVar[Experiment | None] = ContextVar("experiment", default=None)


class DummyConsole(Console):
    """A console that shows nothing."""

    def __init__(self) -> None:
        super().__init__(quiet=True)


class Tasks(list[Any], ConfigurableMixin):
    """The tasks of an experiment; editing one changes its job."""


class Jobs(list["Job | JobGroup"], ConfigurableMixin):
    """The jobs of an experiment."""


def maybe_load_external_main(exp_dir: str) -> None:
    """Make the functions of the saved launching script available in the running main module."""
    merge_saved_main(Path(exp_dir))


class Experiment(ConfigurableMixin):
    """A group of tasks that are launched, watched and remembered together.

    Everything is kept in ``<base_dir>/experiments/<title>/<id>`` and written after every step, so
    any process can ask for, follow, cancel or `resume` an experiment, whoever was killed.

    Args:
        title: groups runs.
        executor: for jobs that are added without one; this machine by default.
        id: unique; title and time by default.
        base_dir: parent of ``experiments``, by default the home directory.
        clean_mode: print nothing.
        threadpool_workers: how many jobs are launched at a time.
        check: raise `JobFailedError` on leaving the context if a job did not succeed.
    """

    def __init__(
        self,
        title: str,
        executor: Executor | None = None,
        id: str | None = None,
        log_level: str = "INFO",
        _reconstruct: bool = False,
        jobs: list[Job | JobGroup] | None = None,
        base_dir: str | None = None,
        clean_mode: bool = False,
        enable_goodbye_message: bool = True,
        threadpool_workers: int = 16,
        skip_status_at_exit: bool = False,
        serialize_metadata_for_scripts: bool = True,
        check: bool = False,
    ) -> None:
        check_not_loading()
        if _reconstruct and not (id and executor):
            raise ConfigError("An experiment can only be looked at with its id and executor.")
        directory_for_title(title)
        if id and not _reconstruct:
            checked(id, "id of an experiment")
        configure_logging(log_level)
        self._title = title
        self._id = id or f"{title}_{time.time_ns()}"
        self._base_dir = base_dir
        self._exp_dir = str(_directory.directory_of(title, self._id, base_dir))
        self._reconstruct = _reconstruct
        self.executor = executor or LocalExecutor()
        self.log_level = log_level
        self.clean_mode = clean_mode
        self.enable_goodbye_message = enable_goodbye_message
        self.threadpool_workers = threadpool_workers
        self.skip_status_at_exit = skip_status_at_exit
        self.serialize_metadata_for_scripts = serialize_metadata_for_scripts
        self.check = check
        self.console: Console = DummyConsole() if clean_mode else CONSOLE
        self.tunnels: dict[str, Any] = {}
        self._jobs: list[Job | JobGroup] = list(jobs or [])
        self._launched = self._detached = self._direct = False
        self._runner_: Runner | None = None
        self._conductor_: _conductor.Conductor | None = None
        self._token: Token[Experiment | None] | None = None
        self._context = contextlib.ExitStack()
        # Whether this process conducts; None as long as nobody asked.
        self._alone: bool | None = None
        self._planned = self._rerun = False
        # Where a rerun finds the script that defined its tasks.
        self._main_from: Path | None = None

    # Reading back.

    @classmethod
    def catalog(cls, title: str = "", base_dir: str | None = None) -> list[str]:
        """Return the ids of a title, or without one all titles, the oldest first."""
        return _directory.catalog(title, base_dir)

    @classmethod
    def from_id(cls, id: str, base_dir: str | None = None) -> Experiment:
        """Return a stored experiment to look at, also one of NeMo Run 0.12. Executes nothing.

        Raises:
            ExperimentNotFoundError: there is none with that id.
        """
        return cls._load(_directory.find_directory(id, base_dir))

    @classmethod
    def from_title(cls, title: str, base_dir: str | None = None) -> Experiment:
        """Return the latest experiment of a title; see `from_id`.

        Raises:
            ExperimentNotFoundError: there is none.
        """
        ids = _directory.catalog(title, base_dir)
        if not ids:
            known = ", ".join(map(repr, _directory.catalog("", base_dir))) or "none"
            raise ExperimentNotFoundError(
                f"There is no experiment titled {title!r}. Titles: {known}."
            )
        root = _directory.experiments_root(base_dir)
        nested = root / title / ids[-1]
        return cls._load(nested if nested.is_dir() else root / directory_for_title(title) / ids[-1])

    @classmethod
    def _load(cls, path: Path) -> Experiment:
        stored = read_experiment(ExperimentDirectory(path), _STORED_OPTIONS)
        experiment = cls(**stored.options, _reconstruct=True)
        experiment._exp_dir = str(path)
        experiment._jobs = stored.jobs
        experiment._main_from = path
        experiment._base_dir = _directory.base_of(path)
        return experiment

    # What it consists of.

    @property
    def tasks(self) -> Tasks:
        """The tasks, lists for groups; editing one changes its job.

        Reading stored tasks imports what they name, and executes the saved launching script if
        they name something in it.
        """
        for job in self._jobs:
            stored = job.tasks if isinstance(job, JobGroup) else job.task
            main = None
            if isinstance(stored, str) and self._main_from is not None and names_main(stored):
                main = load_saved_main(self._main_from)
            with main_is(main):
                if isinstance(job, JobGroup):
                    job.tasks = [decoded(task) for task in job.task_list()]
                else:
                    job.task = decoded(job.task)
        return Tasks(job.tasks if isinstance(job, JobGroup) else job.task for job in self._jobs)

    @property
    def jobs(self) -> Jobs:
        """The jobs, as a list of its own."""
        return Jobs(self._jobs)

    def to_config(self) -> Config[Any]:
        """Return the config that is stored as ``_CONFIG``."""
        return Config(
            Experiment,
            bind_args=False,
            title=self._title,
            executor=self.executor.to_config(),
            id=self._id,
            **{name: getattr(self, name) for name in _STORED_OPTIONS},
        )

    def add(
        self,
        task: Partial[Any] | Script | Sequence[Partial[Any] | Script],
        executor: Executor | Sequence[Executor] | None = None,
        name: str = "",
        plugins: Sequence[ExperimentPlugin] | None = None,
        tail_logs: bool = False,
        dependencies: Sequence[str] | None = None,
        run_if: RunIf = "succeeded",
    ) -> str:
        """Add a task, or a list of tasks that share their fate, and return the job's id.

        Task and executor are copied; later edits do not reach the job. ``run_if`` says when a
        job with dependencies runs: all ``succeeded``, all ``ended``, or at least one ``failed``;
        otherwise it ends as CANCELLED without having started.

        Raises:
            ConfigError: a name or dependency is wrong, or something in the task cannot travel.
        """
        self._check_entered("Tasks are added")
        if self._launched or self._reconstruct:
            raise ConfigError("This experiment was run already. Use reset() to add and run again.")
        check_run_if(run_if)
        check_kinds(task, executor, plugins)
        needed = checked_dependencies(dependencies, [job.id for job in self._jobs], name)
        is_group = isinstance(task, Sequence)
        tasks: Sequence[Partial[Any] | Script] = task if isinstance(task, Sequence) else [task]
        given = executor if isinstance(executor, Sequence) else [executor or self.executor]
        if is_group and not (tasks and name):
            raise ConfigError("A group of tasks needs tasks and a name.")
        if len(given) not in (1, len(tasks)):
            raise ConfigError(f"{len(given)} executors do not fit {len(tasks)} tasks.")

        job_id = self._new_id(name or default_name(tasks[0]))
        copies = [copy.deepcopy(item) for item in tasks]
        own = [self._own_executor(item, job_id, name) for item in given]
        self._apply_plugins(plugins, copies, own if len(own) > 1 else own * len(copies))
        for item in copies:
            check_travels(item)
        shared: dict[str, Any] = {
            "id": job_id,
            "plugins": None if plugins is None else list(plugins),
            "tail_logs": tail_logs,
            "dependencies": needed,
            "name": name,
            "run_if": run_if,
        }
        if is_group:
            executors = own if len(own) > 1 else own[0]
            self._jobs.append(JobGroup(tasks=copies, executors=executors, **shared))
        else:
            self._jobs.append(Job(task=copies[0], executor=own[0], **shared))
        return job_id

    def _check_entered(self, what: str) -> None:
        if _current_experiment.get() is not self:
            raise ConfigError(f"{what} inside of `with Experiment(...) as exp:`.")

    def _new_id(self, name: str) -> str:
        taken = {job.id for job in self._jobs}
        new, number = checked_job_name(name), len(self._jobs)
        while new in taken:
            new, number = f"{name}_{number}", number + 1
        return new

    def _own_executor(self, executor: Executor, job_id: str, name: str) -> Executor:
        own = executor.clone()
        own.assign(self._id, self._exp_dir, task_id=job_id, task_dir=name or job_id)
        return own

    def _apply_plugins(
        self,
        plugins: Sequence[ExperimentPlugin] | None,
        tasks: Sequence[Any],
        executors: Sequence[Executor],
    ) -> None:
        for plugin in plugins or ():
            plugin.assign(self._id)
            for task, executor in zip(tasks, executors, strict=True):
                plugin.setup(task, executor)

    # Running.

    def dryrun(self, log: bool = True, exist_ok: bool = False, delete_exp_dir: bool = True) -> None:
        """Plan everything and print what would be submitted; nothing leaves this machine."""
        self._planned = True
        self._prepare(exist_ok=exist_ok)
        try:
            for job, requests in self._plan():
                if log:
                    kind = "Task Group" if isinstance(job, JobGroup) else "Task"
                    _display.rule(self.console, f"[DRYRUN] {kind} {job.id}")
                    for request in requests:
                        self.console.print(str(request), markup=False, highlight=False)
        finally:
            if delete_exp_dir:
                self._directory.remove()

    def run(
        self,
        sequential: bool = False,
        detach: bool = False,
        tail_logs: bool = False,
        direct: bool = False,
    ) -> None:
        """Launch the jobs, each when those it depends on have ended.

        Returns when all are launched, and with ``detach`` when the first are: the rest is then
        launched by a process of its own. Leaving the context waits for the end, except detached.

        Args:
            sequential: each job depends on the one before.
            tail_logs: print the logs of all jobs while waiting.
            direct: run the tasks in this process, one after the other.

        Raises:
            ConfigError: something is wrong with the plan; nothing was submitted.
            SubmitError: a backend did not accept a job.
        """
        self._check_entered("Experiments are run")
        if self._launched or self._reconstruct:
            self.console.print(
                "This experiment was run already. Use reset() to run it again.", style="bold"
            )
            return
        if not self._jobs:
            self.console.print("This experiment has no jobs; nothing to run.")
            return
        if sequential:
            self._make_sequential()
        waves = _order.waves({job.id: job.dependencies for job in self._jobs})
        for job in self._jobs:
            job.tail_logs = job.tail_logs or tail_logs
        if direct:
            self._run_directly()
            return
        if not is_first_rank():
            self.console.print("The first process of this Slurm step launches; this one does not.")
            return
        if detach:
            self._check_can_detach()
        self._prepare()
        self._check_plan()
        self._launched, self._detached = True, detach
        self._directory.write(_directory.TUNNELS, "{}")
        needs_conductor = len(waves) > 1 or any(isinstance(job, JobGroup) for job in self._jobs)
        if detach and needs_conductor:
            _conductor.spawn(self._directory)
            self._raise_if_not_launched()
            return
        self._conduct(until_ended=False)

    def _run_directly(self) -> None:
        single = only_single_jobs(self._jobs)
        self._direct = True
        if not is_first_rank():
            run_directly(single, self._conductor)  # writes nothing, see Conductor.writes
            return
        self._prepare()
        self._launched = True
        with self._conducting():
            run_directly(single, self._conductor)

    def resume(self) -> None:
        """Go on with an experiment whose launcher was killed: start what was not, wait for all.

        Nothing is started twice. Where another process is at it already, only waits.
        """
        while not all(state.ended for state in self._look_again()):
            with self._conducting() as alone:
                if alone:
                    self._conductor.run()
                    self._save_tasks()
            time.sleep(0.05)

    @contextlib.contextmanager
    def _conducting(self) -> Iterator[bool]:
        """Be the one process that changes things; gives False where another is."""
        with self._directory.conducting(_conductor.PATIENCE_S) as alone:
            self._conductor.writes = alone
            if alone:
                self._conductor.refresh()
            try:
                yield alone
            finally:
                self._conductor.writes = False

    def wait(self) -> None:
        """Wait until every job has ended; where nobody is left to start some, say so and return."""
        while waiting := [state for state in self._look_again() if not state.ended]:
            if not any(state.launched for state in waiting) and self._is_abandoned():
                self.console.print(
                    f"{len(waiting)} jobs were never started, and nobody is left to start them. "
                    "Call resume()."
                )
                return
            time.sleep(0.1)

    def _is_abandoned(self) -> bool:
        """Tell whether jobs wait to be started and nobody is there to do it."""
        with self._directory.conducting() as nobody_conducts:
            # Looked at again: the last conductor may have ended well since.
            return nobody_conducts and any(not state.ended for state in self._look_again())

    def reset(self) -> Self:
        """Make this experiment ready to be run again, under a new id, and return it.

        Jobs keep their tasks, executors, names, dependencies and plugins. Nothing saved is
        executed until it runs.
        """
        if not (self._reconstruct or self._directory.done):
            self.console.print("This experiment has not been run yet; nothing to reset.")
            return self
        self._id = f"{self._title}_{time.time_ns()}"
        self._exp_dir = str(_directory.directory_of(self._title, self._id, self._base_dir))
        self._jobs = [self._fresh(job) for job in self._jobs]
        self._reconstruct = self._launched = self._detached = self._direct = False
        self._rerun = True
        self._conductor_ = None
        return self

    def _fresh(self, job: Job | JobGroup) -> Job | JobGroup:
        new = copy.copy(job)
        new.launched = False
        if isinstance(new, JobGroup):
            own = [self._own_executor(e, new.id, new.name) for e in new._executor_list()]
            new.executors = own if len(own) > 1 else own[0]
            new.handles, new.states = [], []
        else:
            new.executor = self._own_executor(new.executor, new.id, new.name)
            new.handle, new.state = "", AppState.UNSUBMITTED
        return new

    # Asking.

    def status(self, return_dict: bool = False) -> dict[str, dict[str, Any]] | None:
        """Print the status of every job, or return it by job id, in the order of the jobs."""
        statuses = self._statuses()
        if return_dict:
            return statuses
        _display.print_status(self.console, self._id, statuses)
        return None

    def status_json(self) -> str:
        """Return the status of every job as JSON."""
        return _display.as_json(self._statuses())

    def logs(self, job_id: str, regex: str | None = None) -> None:
        """Print the log of a job to stderr, following it until the job ends."""
        index = self._index(job_id)
        if index is None:
            return
        self._look_again()
        job, state = self._jobs[index], self._conductor.states[index]
        if is_direct(job.handle):
            self.console.print(
                f"The log of a direct run is in {job.executor.job_dir}", markup=False
            )
        elif not any(member.handle for member in state.members):
            self.console.print(
                f"Job {job_id} has not been started, so it has no log.", markup=False
            )
        else:
            try:
                job.logs(self._runner, regex=regex)
            except NemoRunError as err:
                self.console.print(f"No log of {job_id}: {err}", markup=False)

    def cancel(self, job_id: str) -> None:
        """End a job, also one that waits for others; returns when it has ended."""
        index = self._index(job_id)
        if index is None:
            return
        try:
            self._cancel(index)
        except NemoRunError as err:
            self.console.print(f"Could not cancel {job_id}: {err}", markup=False)

    def _cancel(self, index: int) -> None:
        self._directory.request_cancel(index)
        while not self._look_again()[index].ended:
            if any(member.handle for member in self._conductor.states[index].members):
                self._conductor.cancel([index])
                continue
            with self._conducting() as alone:
                if alone:
                    self._conductor.cancel([index])
            time.sleep(0.05)

    def _index(self, job_id: str) -> int | None:
        for index, job in enumerate(self._jobs):
            if job.id == job_id:
                return index
        known = ", ".join(job.id for job in self._jobs) or "none"
        self.console.print(f"There is no job {job_id} in {self._id}. Jobs: {known}", markup=False)
        return None

    # The context.

    def __enter__(self) -> Experiment:
        self._token = _current_experiment.set(self)
        _display.rule(self.console, f"Entering Experiment {self._title} with id: {self._id}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._launched:
                self._leave(error)
            elif error is None and self._jobs and not (self._direct or self._planned):
                self.console.print("No job was launched: call run() before leaving the experiment.")
        finally:
            self._context.close()
            self._alone = None
            self.__dict__.pop("_tail_log", None)
            if self._token is not None:
                _current_experiment.reset(self._token)
                self._token = None
        if error is None and self._launched and not self._detached and self.check:
            self.raise_if_failed()

    def _leave(self, error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt) and not self._detached:
            self._end_all()
        elif self._detached:
            _display.rule(self.console, f"Detaching from Experiment {self._id}; jobs go on")
        elif error is not None:
            _display.rule(self.console, f"Leaving Experiment {self._id} with jobs running")
        elif not self._direct:
            _display.rule(self.console, f"Waiting for Experiment {self._id} to finish")
            self._conduct(until_ended=True)
        self._save_tasks()
        if not self.skip_status_at_exit:
            _display.print_status(self.console, self._id, self._statuses())
        self._directory.mark_done()
        if self.enable_goodbye_message:
            theme = os.environ.get("NEMO_RUN_CODE_THEME", "monokai")
            _display.goodbye(self.console, self._id, [job.id for job in self._jobs], theme)

    def raise_if_failed(self) -> None:
        """Raise for the first job that did not succeed.

        Raises:
            JobFailedError: with its state, exit code and the last lines of its log.
        """
        error = _outcome.failure(self._jobs, self._look_again(), self._runner)
        if error is not None:
            raise error

    # Inside.

    @property
    def _directory(self) -> ExperimentDirectory:
        return ExperimentDirectory(Path(self._exp_dir))

    @property
    def _runner(self) -> Runner:
        if self._runner_ is None:
            self._runner_ = get_runner(experiment=self)
        return self._runner_

    @functools.cached_property
    def _tail_log(self) -> LogTail:
        return LogTail(self._runner, self._tailed_handles)

    @property
    def _conductor(self) -> _conductor.Conductor:
        if self._conductor_ is None:
            self._conductor_ = _conductor.Conductor(
                self._jobs, self._directory, self._runner, workers=self.threadpool_workers
            )
        return self._conductor_

    def _prepare(self, exist_ok: bool = False) -> None:
        directory = self._directory
        directory.create(exist_ok=exist_ok)
        home_root = _directory.experiments_root()
        if not Path(self._exp_dir).is_relative_to(home_root):
            _link(
                home_root / directory_for_title(self._title) / Path(self._exp_dir).name,
                self._exp_dir,
            )
        directory.write(
            _directory.CONFIG, ZlibJSONSerializer().serialize(self.to_config()), sync=True
        )
        directory.write(_directory.VERSION, f"{__version__}\n")
        directory.write(_directory.MAIN, self._main_source())
        try:
            for index, job in enumerate(self._jobs):
                directory.write_plan(index, job.prepare(self.serialize_metadata_for_scripts))
            self._save_tasks()
        except NemoRunError:
            directory.remove()
            raise

    def _plan(self) -> Iterator[tuple[Job | JobGroup, list[Any]]]:
        """Yield each job with the requests that would be submitted for it."""
        for index, job in enumerate(self._jobs):
            _, apps = self._directory.read_plan(index) or ("", [])
            yield (
                job,
                [
                    self._runner.dryrun(app, get_executor_str(executor), executor)
                    for app, executor in zip(apps, job.executors_in_order, strict=True)
                ],
            )

    def _check_plan(self) -> None:
        """Find what is wrong with any job before the first is submitted."""
        try:
            for _ in self._plan():
                pass
        except ConfigError:
            self._directory.remove()
            raise

    def _main_source(self) -> str:
        if self._main_from is not None:
            saved = ExperimentDirectory(self._main_from).read(_directory.MAIN)
            if saved:
                return saved
        return main_source()

    def _save_tasks(self) -> None:
        texts = [job.serialize() for job in self._jobs]
        self._directory.write(_directory.TASKS, json.dumps(texts), sync=True)

    def _raise_if_not_launched(self) -> None:
        for state in self._look_again():
            if state.message.startswith(_conductor.NOT_LAUNCHED):
                raise SubmitError(f"A job {state.message}", operation="submit")

    def _make_sequential(self) -> None:
        row = [[], *([job.id] for job in self._jobs[:-1])]
        if self._rerun and [job.dependencies for job in self._jobs] == row:
            return  # as the sequential run before the reset() has left them
        if any(job.dependencies for job in self._jobs):
            raise ConfigError(
                "sequential=True puts the jobs in a row, but some have dependencies of their own. "
                "Use one or the other."
            )
        for before, job in zip(self._jobs, self._jobs[1:], strict=False):
            job.dependencies = [before.id]

    def _check_can_detach(self) -> None:
        for job in self._jobs:
            if type(job.executor).__module__ == "__main__":
                raise UnsupportedError(
                    f"The class of {job.id!r}'s executor is defined in this script, so no other "
                    "process can look after the job. Put it into a module, or do not detach."
                )
            if not job.executor.CAPABILITIES.detach:
                raise UnsupportedError(
                    f"Job {job.id!r} runs on {type(job.executor).__name__}, whose jobs end with "
                    "this process. Run it without detach=True."
                )

    def _conduct(self, *, until_ended: bool) -> None:
        """Launch and wait in this process, showing how it goes."""
        if self._alone is None:
            self._alone = self._context.enter_context(self._conducting())
        if not self._alone:
            self.wait()
            return
        conductor = self._conductor
        tailed = any(job.tail_logs for job in self._jobs)
        progress = _display.Progress(
            self.console,
            self._id,
            self._jobs,
            lambda: conductor.states,
            self._last_line,
            live=self.console.is_terminal and not tailed,
        )
        if tailed:
            self._tail_log.start()
        else:
            conductor.on_change = progress.changed
        try:
            with progress:
                conductor.run(until_ended=until_ended)
        except KeyboardInterrupt:
            self._end_all()
            raise
        if conductor.ended:
            self._tail_log.finish()
        if conductor.launch_errors and not until_ended:
            self._save_tasks()
            raise conductor.launch_errors[0]

    def _tailed_handles(self) -> list[str]:
        tailed = [job for job in self._jobs if job.tail_logs]
        return [
            h
            for job in tailed
            for h in (job.handles if isinstance(job, JobGroup) else [job.handle])
        ]

    def _end_all(self) -> None:
        """Ask all jobs to end; being interrupted again, kill them."""
        if self._conductor.ended:
            return
        try:
            self.console.print("Ending all jobs; press Ctrl-C again to kill them at once.")
            self._conductor.cancel()
        except KeyboardInterrupt:
            self.console.print("Killing all jobs.")
            self._conductor.cancel(at_once=True)

    def _look_again(self) -> list[JobState]:
        """Return the present states: as written by whoever conducts, then asked for."""
        conductor = self._conductor
        conductor.refresh()
        conductor.poll()
        return conductor.states

    def _statuses(self) -> dict[str, dict[str, Any]]:
        exp_dir = Path(self._exp_dir)
        return {
            job.id: _display.describe(job, state, exp_dir)
            for job, state in zip(self._jobs, self._look_again(), strict=True)
        }

    def _last_line(self, index: int) -> str:
        if not self._jobs[index].executor.CAPABILITIES.local_paths:
            return ""  # several times a second is too often to ask a cluster
        tail = _outcome.last_lines(self._conductor.states[index], self._runner, 1)
        return tail[-1].rstrip() if tail else ""

    def __repr__(self) -> str:
        jobs = ", ".join(job.id for job in self._jobs)
        return f"Experiment({self._title!r}, id={self._id!r}, jobs=[{jobs}])"


_STORED_OPTIONS = (
    "log_level",
    "clean_mode",
    "enable_goodbye_message",
    "threadpool_workers",
    "skip_status_at_exit",
    "serialize_metadata_for_scripts",
)


def _link(link: Path, target: str) -> None:
    """Make an experiment kept elsewhere findable from the home directory."""
    make_private_directory(link.parent)
    if not link.exists():
        link.symlink_to(Path(target).resolve())
