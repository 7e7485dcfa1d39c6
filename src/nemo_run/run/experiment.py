"""Experiments: tasks, their order and their outcome, kept in a directory of their own."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from nemo_run.config import Config, ConfigurableMixin, Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.frontend.console.api import CONSOLE, configure_logging
from nemo_run.exceptions import ConfigError, NemoRunError
from nemo_run.run import _detached, _directory, _display, _order, _preparing
from nemo_run.run._adding import check_kinds, check_run_if, checked_dependencies
from nemo_run.run._checks import check_can_detach, check_tasks
from nemo_run.run._direct import is_first_rank, only_single_jobs, run_directly
from nemo_run.run._directory import ExperimentDirectory
from nemo_run.run._main_module import check_not_loading, merge_saved_main
from nemo_run.run._making import Workplace, made_anew, make_job
from nemo_run.run._names import checked_line, directory_for_title
from nemo_run.run._planning import only_planning
from nemo_run.run._provenance import Provenance, known_provenance, read_provenance
from nemo_run.run._recording import Recorder
from nemo_run.run._stored import decode_tasks, latest_of, read_experiment
from nemo_run.run._watch import Watch
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.plugin import ExperimentPlugin
from nemo_run.run.torchx_backend.runner import Runner, get_runner

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run.run._order import RunIf
    from nemo_run.run._rerun import RecordedCode

log = logging.getLogger(__name__)

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
        if not _reconstruct:
            checked_line(directory_for_title(title), "title of an experiment")
            if id:
                checked_line(id, "id of an experiment")
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
        self._watch_: Watch | None = None
        self._recorder: Recorder | None = None
        self._token: Token[Experiment | None] | None = None
        self._planned = self._rerun = False
        # Where a rerun finds the script that defined its tasks.
        self._main_from: Path | None = None
        # What a rerun uses instead of the code of today.
        self._code: RecordedCode | None = None

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
        return cls._load(latest_of(title, base_dir))

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
        decode_tasks(self._jobs, self._main_from)
        return Tasks(job.tasks if isinstance(job, JobGroup) else job.task for job in self._jobs)

    @property
    def provenance(self) -> Provenance | None:
        """Which code, machine, person and call it came from; None if it was not run, or by 0.12.

        Raises:
            RecordError: what is recorded is damaged.
        """
        if self._recorder is not None:
            self._recorder.finish()
        return read_provenance(self._directory.path)

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
        taken = [job.id for job in self._jobs]
        job = make_job(
            self._workplace,
            task,
            executor or self.executor,
            name=name,
            taken=taken,
            plugins=plugins,
            tail_logs=tail_logs,
            dependencies=checked_dependencies(dependencies, taken, name),
            run_if=run_if,
        )
        self._jobs.append(job)
        self._watch_ = None  # it knows the jobs that were there when it began
        return job.id

    def _check_entered(self, what: str) -> None:
        if _current_experiment.get() is not self:
            raise ConfigError(f"{what} inside of `with Experiment(...) as exp:`.")

    # Running.

    def dryrun(self, log: bool = True, exist_ok: bool = False, delete_exp_dir: bool = True) -> None:
        """Plan everything and print what would be submitted; nothing leaves this machine."""
        self._planned = True
        self._create(exist_ok=exist_ok)
        self._prepare_jobs(with_code=False)
        try:
            for job, requests in _preparing.requests(self._directory, self._jobs, self._runner):
                if log:
                    _display.print_requests(self.console, job, requests)
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
            _order.put_in_a_row(self._jobs, as_before=self._rerun)
        waves = _order.waves({job.id: job.dependencies for job in self._jobs})
        for job in self._jobs:
            job.tail_logs = job.tail_logs or tail_logs
        if only_planning():
            self.dryrun()
            return
        if direct:
            self._run_directly()
            return
        if not is_first_rank():
            self.console.print("The first process of this Slurm step launches; this one does not.")
            return
        if detach:
            check_can_detach(self._jobs)
        check_tasks(self._jobs)
        _preparing.let_backends_get_ready(self._jobs)
        self._create()
        self._recorder = Recorder(self._directory.path, self._code)
        self._prepare_jobs()
        _preparing.check_requests(self._directory, self._jobs, self._runner)
        self._recorder.record(self._jobs)
        self._launched, self._detached = True, detach
        self._directory.write(_directory.TUNNELS, "{}")
        needs_conductor = len(waves) > 1 or any(isinstance(job, JobGroup) for job in self._jobs)
        if detach and needs_conductor:
            _detached.spawn(self._directory)
            self._watch.raise_if_not_launched()
            return
        self._watch.conduct(until_ended=False)

    def _run_directly(self) -> None:
        single = only_single_jobs(self._jobs)
        self._direct = True
        if not is_first_rank():
            run_directly(single, self._watch.conductor)  # writes nothing, see Conductor.writes
            return
        self._create()
        self._recorder = Recorder(self._directory.path, self._code)
        self._prepare_jobs(with_code=False)
        self._recorder.record(self._jobs)
        self._launched = True
        with self._watch.conducting():
            run_directly(single, self._watch.conductor)

    def resume(self) -> None:
        """Go on with an experiment whose launcher was killed: start what was not, wait for all.

        Nothing is started twice. Where another process is at it already, only waits.
        """
        if only_planning():
            self.console.print(f"{self._id} would be resumed.", markup=False)
            return
        self._watch.resume()

    def wait(self) -> None:
        """Wait until every job has ended; where nobody is left to start some, say so and return."""
        if not self._only_planned:
            self._watch.wait()

    def reset(self, *, code: Literal["today", "recorded"] = "today") -> Self:
        """Make this experiment ready to be run again, under a new id, and return it.

        Jobs keep their tasks, executors, names, dependencies and plugins. Nothing saved is
        executed until it runs. Packagers collect the code of ``today``; with ``"recorded"`` the
        archives travel again that this experiment has recorded.

        Raises:
            ConfigError: recorded code is wanted, and a job has none.
            PackagingError: it was recorded, and is not kept any more.
        """
        if not (self._reconstruct or self._directory.done):
            self.console.print("This experiment has not been run yet; nothing to reset.")
            return self
        if code not in ("today", "recorded"):
            raise ConfigError(f"code is 'today' or 'recorded', not {code!r}.")
        self._code = None
        if code == "recorded":
            from nemo_run.run._rerun import recorded_code

            self._code = recorded_code(self._directory.path, self._id, self._jobs)
        self._id = f"{self._title}_{time.time_ns()}"
        self._exp_dir = str(_directory.directory_of(self._title, self._id, self._base_dir))
        self._jobs = [made_anew(self._workplace, job) for job in self._jobs]
        self._reconstruct = self._launched = self._detached = self._direct = False
        self._rerun = True
        self._watch_ = self._recorder = None
        return self

    # Asking.

    def status(self, return_dict: bool = False) -> dict[str, dict[str, Any]] | None:
        """Print the status of every job, or return it by job id, in the order of the jobs."""
        statuses = self._watch.statuses()
        if return_dict:
            return statuses
        _display.print_status(self.console, self._id, statuses)
        return None

    def status_json(self) -> str:
        """Return the status of every job as JSON."""
        return _display.as_json(self._watch.statuses())

    def logs(self, job_id: str, regex: str | None = None, *, check: bool = False) -> None:
        """Print the log of a job to stderr, following it until the job ends.

        What is in the way is only said, unless ``check``.

        Raises:
            NemoRunError: with ``check``, there is no such job or no log of it.
        """
        with _complaints(f"No log of {job_id}", check):
            self._watch.print_log(job_id, regex)

    def cancel(self, job_id: str, *, check: bool = False) -> None:
        """End a job, also one that waits for others; returns when it has ended.

        What is in the way is only said, unless ``check``.

        Raises:
            NemoRunError: with ``check``, there is no such job or it could not be ended.
        """
        with _complaints(f"Could not cancel {job_id}", check):
            self._watch.cancel(job_id)

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
            if self._watch_ is not None:
                self._watch_.close()
            if self._token is not None:
                _current_experiment.reset(self._token)
                self._token = None
        if error is None and self._launched and not self._detached and self.check:
            self.raise_if_failed()

    def _leave(self, error: BaseException | None) -> None:
        interrupted: KeyboardInterrupt | None = None
        if isinstance(error, KeyboardInterrupt) and not self._detached:
            self._watch.end_all()
        elif self._detached:
            _display.rule(self.console, f"Detaching from Experiment {self._id}; jobs go on")
        elif error is not None:
            _display.rule(self.console, f"Leaving Experiment {self._id} with jobs running")
        elif not self._direct:
            _display.rule(self.console, f"Waiting for Experiment {self._id} to finish")
            try:
                self._watch.conduct(until_ended=True)
            except KeyboardInterrupt as err:
                interrupted = err  # the jobs have been ended; how they ended is still told
        _preparing.save_jobs(self._directory, self._jobs)
        if self._recorder is not None:
            self._recorder.finish()
        if not self.skip_status_at_exit:
            _display.print_status(self.console, self._id, self._watch.statuses())
        self._directory.mark_done()
        if self.enable_goodbye_message:
            theme = os.environ.get("NEMO_RUN_CODE_THEME", "monokai")
            _display.goodbye(self.console, self._id, [job.id for job in self._jobs], theme)
        if interrupted is not None:
            raise interrupted

    def raise_if_failed(self) -> None:
        """Raise for the first job that did not succeed.

        Raises:
            JobFailedError: with its state, exit code and the last lines of its log.
        """
        if not self._only_planned:
            self._watch.raise_if_failed()

    # Inside.

    @property
    def _only_planned(self) -> bool:
        """Whether there is nothing to wait for, though it was to be run."""
        return self._planned and only_planning()

    @property
    def _directory(self) -> ExperimentDirectory:
        return ExperimentDirectory(Path(self._exp_dir))

    @property
    def _runner(self) -> Runner:
        if self._runner_ is None:
            self._runner_ = get_runner(experiment=self)
        return self._runner_

    @property
    def _workplace(self) -> Workplace:
        return Workplace(self._id, self._exp_dir)

    @property
    def _watch(self) -> Watch:
        if self._watch_ is None:
            self._watch_ = Watch(
                self._id,
                self._jobs,
                self._directory,
                self._runner,
                self.console,
                workers=self.threadpool_workers,
            )
        return self._watch_

    def _create(self, *, exist_ok: bool = False) -> None:
        _preparing.create(
            self._directory,
            title=self._title,
            config=self.to_config(),
            main_from=self._main_from,
            exist_ok=exist_ok,
        )

    def _prepare_jobs(self, *, with_code: bool = True) -> None:
        _preparing.prepare_jobs(
            self._directory,
            self._jobs,
            with_code=with_code,
            with_metadata=self.serialize_metadata_for_scripts,
            code=self._code,
        )

    def __repr__(self) -> str:
        jobs = ", ".join(job.id for job in self._jobs)
        provenance = known_provenance(self._directory.path)
        code = f", code={provenance.code!r}" if provenance and provenance.code else ""
        return f"Experiment({self._title!r}, id={self._id!r}, jobs=[{jobs}]{code})"


@contextlib.contextmanager
def _complaints(what: str, check: bool) -> Iterator[None]:
    """Say what goes wrong: to programs by an exception, to people in words."""
    try:
        yield
    except NemoRunError as err:
        if check:
            raise
        # Also where nothing else is printed: it was asked for and did not happen.
        log.warning("%s: %s", what, err)


_STORED_OPTIONS = (
    "log_level",
    "clean_mode",
    "enable_goodbye_message",
    "threadpool_workers",
    "skip_status_at_exit",
    "serialize_metadata_for_scripts",
)
