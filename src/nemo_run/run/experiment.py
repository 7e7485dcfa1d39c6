"""Experiments: tasks, their order and their outcome, kept in a directory of their own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from nemo_run import _later
from nemo_run._experiments.conductor.in_process import is_first_rank
from nemo_run._experiments.display import panel
from nemo_run._experiments.ending import unseen
from nemo_run._experiments.ending.leaving import Leaving, _current_experiment, errors_as_warnings
from nemo_run._experiments.jobs.adding import check_kinds, check_run_if, checked_dependencies
from nemo_run._experiments.jobs.job_factory import make_job
from nemo_run._experiments.main_module import check_not_loading, merge_saved_main
from nemo_run._experiments.plan_only import only_planning
from nemo_run._experiments.provenance.record import Provenance, known_provenance, read_provenance
from nemo_run._experiments.store import places
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.loading import decode_tasks, latest_of, read_experiment
from nemo_run._names import checked_line, directory_for_title
from nemo_run.config import Config, ConfigurableMixin, Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.frontend.console.api import CONSOLE, configure_logging
from nemo_run.exceptions import ConfigError
from nemo_run.run.job import BAD_ENDS, Job, JobGroup
from nemo_run.run.plugin import ExperimentPlugin

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run._order import RunIf
    from nemo_run.core.tunnel.client import Tunnel

log = logging.getLogger(__name__)


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


class Experiment(Leaving):
    """A group of tasks that are launched, watched and remembered together.

    Everything is kept in ``<base_dir>/experiments/<title>/<id>`` and written after every step, so
    any process can ask for, follow, cancel or `resume` an experiment after a kill.

    Args:
        title: groups runs.
        executor: for jobs that are added without one; this machine by default.
        id: unique; title and time by default.
        log_level: from which on log messages are shown: ours, and those of the program's loggers
            unless the program has configured logging.
        base_dir: parent of ``experiments``, by default the home directory.
        clean_mode: print nothing.
        threadpool_workers: how many jobs are launched at a time.
        check: what happens on leaving the context if a job did not succeed. True: `JobFailedError`
            is raised. False: nothing. None: the failure is shown with its reason, and if the
            program ends without having looked at it, it ends with exit code 1. A look is `status`,
            `wait`, `raise_if_failed`, `jobs`, or the ``state`` of the job.
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
        check: bool | None = None,
    ) -> None:
        check_not_loading()
        if _reconstruct and not (id and executor):
            raise ConfigError("An experiment can only be looked at with its id and executor.")
        if not _reconstruct:
            checked_line(directory_for_title(title), "title of an experiment")
            if id:
                checked_line(id, "id of an experiment")
        configure_logging(log_level, others=not _reconstruct)
        super().__init__(title, id, base_dir, jobs)
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
        self.tunnels: dict[str, Tunnel] = {}

    # Reading back.

    @classmethod
    def catalog(cls, title: str = "", base_dir: str | None = None) -> list[str]:
        """Return the ids of a title, or without one all titles, the oldest first."""
        return places.catalog(title, base_dir)

    @classmethod
    def from_id(cls, id: str, base_dir: str | None = None) -> Experiment:
        """Return a stored experiment to look at, also one of NeMo Run 0.12. Executes nothing.

        Raises:
            ExperimentNotFoundError: there is none with that id.
        """
        return cls._load(places.find_directory(id, base_dir))

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
        experiment._take_stored(path, stored)
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
        unseen.saw(self._id, [job.id for job in self._jobs if job.known_state in BAD_ENDS])
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
        self._print_plan(log=log, exist_ok=exist_ok, delete=delete_exp_dir)

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
        in_waves = self._put_in_order(in_a_row=sequential and not direct, tail_logs=tail_logs)
        if only_planning():
            self.dryrun()
        elif direct:
            self._run_directly()
        elif not is_first_rank():
            self.console.print("The first process of this Slurm step launches; this one does not.")
        else:
            self._launch(detach=detach, in_waves=in_waves)

    def resume(self) -> None:
        """Go on with an experiment whose launcher was killed: start what was not, wait for all.

        Nothing is started twice. Where another process is at it already, only waits.
        """
        if only_planning():
            self.console.print(f"{self._id} would be resumed.", markup=False)
            return
        self._resume()
        self._tell_failures()

    def wait(self) -> None:
        """Wait until every job has ended; say so where no process can start some, and return."""
        if not self._only_planned:
            self._watch.wait()
            self._looked()

    def _wait_for_jobs(self, jobs: Sequence[Job | JobGroup]) -> None:
        """Wait until some jobs have ended. Programs call it, in spite of its name."""
        self._watch.wait([job.id for job in jobs])
        self._looked()

    def reset(self, *, code: Literal["today", "recorded"] = "today") -> Self:
        """Make this experiment ready to be run again, under a new id, and return it.

        Jobs keep their tasks, executors, names, dependencies and plugins. Nothing saved is
        executed until it runs, but for the launching script where an executor has classes of it.
        Packagers collect the code of ``today``; with ``"recorded"`` the archives travel again that
        this experiment has recorded.

        Raises:
            ConfigError: recorded code is wanted, and a job has none, or a class of an executor
                cannot be had here.
            PackagingError: it was recorded, and is not kept any more.
        """
        if not (self._reconstruct or self._directory.done):
            self.console.print("This experiment has not been run yet; nothing to reset.")
            return self
        self._make_anew(code)
        return self

    # Asking.

    def status(self, return_dict: bool = False) -> dict[str, dict[str, Any]] | None:
        """Print the status of every job, or return it by job id, in the order of the jobs."""
        statuses = self._statuses()
        if return_dict:
            return statuses
        panel.print_status(self.console, self._id, statuses)
        return None

    def status_json(self) -> str:
        """Return the status of every job as JSON."""
        return panel.as_json(self._statuses())

    def logs(self, job_id: str, regex: str | None = None, *, check: bool = False) -> None:
        """Print the log of a job to stderr, following it until the job ends.

        Errors are logged as warnings unless ``check``.

        Raises:
            NemoRunError: with ``check``, there is no such job or no log of it.
        """
        with errors_as_warnings(f"No log of {job_id}", check=check):
            self._watch.print_log(job_id, regex)

    def cancel(self, job_id: str, *, check: bool = False) -> None:
        """End a job, also one that waits for others; returns when it has ended.

        Errors are logged as warnings unless ``check``.

        Raises:
            NemoRunError: with ``check``, there is no such job or it could not be ended.
        """
        with errors_as_warnings(f"Could not cancel {job_id}", check=check):
            self._watch.cancel(job_id)
            unseen.saw(self._id, [job_id])

    # The context.

    def __enter__(self) -> Experiment:
        self._token = _current_experiment.set(self)
        panel.rule(self.console, f"Entering Experiment {self._title} with id: {self._id}")
        return self

    def raise_if_failed(self) -> None:
        """Raise for the first job that did not succeed.

        Raises:
            JobFailedError: with its state, exit code and the last lines of its log.
        """
        self._raise_if_failed()

    def __repr__(self) -> str:
        jobs = ", ".join(job.id for job in self._jobs)
        provenance = known_provenance(self._directory.path)
        code = f", code={provenance.code!r}" if provenance and provenance.code else ""
        return f"Experiment({self._title!r}, id={self._id!r}, jobs=[{jobs}]{code})"


_STORED_OPTIONS = (
    "log_level",
    "clean_mode",
    "enable_goodbye_message",
    "threadpool_workers",
    "skip_status_at_exit",
    "serialize_metadata_for_scripts",
)


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, {"rsync": "nemo_run.core.tunnel.rsync"})
