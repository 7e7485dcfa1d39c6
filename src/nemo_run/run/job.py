"""Jobs: a task with its executor, and groups of them that share their fate."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from torchx.specs import AppDef, AppState, is_terminal

from nemo_run import _later
from nemo_run._config import buildables
from nemo_run._experiments.ending import unseen
from nemo_run._experiments.jobs.at_backend import ask, clean_up, print_logs, print_request
from nemo_run._experiments.jobs.task_text import Task, as_text, decoded, runnable
from nemo_run._order import RunIf, combined
from nemo_run.config import Config, ConfigurableMixin
from nemo_run.core.execution.base import Executor
from nemo_run.core.packaging.base import Packager
from nemo_run.core.serialization._decode import split_stored
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError, UnsupportedError
from nemo_run.run.plugin import ExperimentPlugin
from nemo_run.run.torchx_backend.packaging import merge_executables, package
from nemo_run.run.torchx_backend.schedulers.api import get_executor_str

if TYPE_CHECKING:
    from nemo_run.run.torchx_backend.runner import Runner

log = logging.getLogger(__name__)

BAD_ENDS = frozenset({AppState.FAILED, AppState.CANCELLED, AppState.UNKNOWN})


@dataclass
class Job(ConfigurableMixin):
    """One task on one executor.

    ``task`` may be the stored text of a task that was not asked for yet.
    """

    id: str
    task: Task | str
    executor: Executor
    handle: str = ""
    launched: bool = False
    state: AppState = AppState.UNSUBMITTED
    plugins: Sequence[ExperimentPlugin] | None = None
    tail_logs: bool = False
    dependencies: list[str] = field(default_factory=list)
    name: str = ""
    run_if: RunIf = "succeeded"

    # What is stored of it and could not be read here, each with the reason.
    _left_out = tuple[str, ...]()

    def serialize(self) -> tuple[str, str]:
        """Return the job, without its task, and the task as text."""
        return self.serialize_job(), as_text(self.task)

    def serialize_job(self) -> str:
        """Return the job, without its task, as text."""
        return _serialize_job(self, task=None)

    def prepare(
        self,
        serialize_metadata_for_scripts: bool = True,
        *,
        with_code: bool = True,
        packager: Packager | None = None,
    ) -> list[AppDef]:
        """Write the files that the task needs and return its application.

        With ``with_code``, the code that travels is collected too: by ``packager``, if one is
        given in place of the executor's.

        Raises:
            PackagingError: the code could not be collected.
        """
        self.executor.create_job_dir()
        if with_code:
            self.executor.package(packager or self.executor.packager, self.id)
        return [
            package(
                self.id,
                runnable(self.task),
                self.executor,
                serialize_to_file=True,
                serialize_metadata_for_scripts=serialize_metadata_for_scripts,
            )
        ]

    def launch(
        self,
        wait: bool,
        runner: Runner,
        dryrun: bool = False,
        log_dryrun: bool = False,
        direct: bool = False,
    ) -> None:
        """Submit this job alone, outside of an experiment's order; see `Experiment.run`."""
        if direct:
            from nemo_run.run.task import direct_run_fn

            direct_run_fn(decoded(self.task), dryrun=dryrun)
            self.state, self.launched = AppState.SUCCEEDED, True
            return
        (app,) = self.prepare(with_code=not dryrun)
        info = runner.dryrun(app, get_executor_str(self.executor), self.executor)
        if dryrun:
            if log_dryrun:
                print_request(info)
            return
        self.handle = runner.schedule(info)
        self.launched, self.state = True, AppState.SUBMITTED
        if wait:
            self.wait(runner)

    def status(self, runner: Runner) -> AppState:
        """Ask for the present state; the last known one where it cannot be had."""
        if self.launched and self.handle and not is_terminal(self.known_state):
            self.state = ask(self.handle, runner, self.known_state)
        return self.state

    def wait(self, runner: Runner | None = None) -> AppState:
        """Wait for the end and return the final state."""
        from nemo_run.run.torchx_backend.launcher import wait_and_exit

        self.state = wait_and_exit(app_handle=self.handle, log=self.tail_logs, runner=runner).state
        return self.state

    def logs(self, runner: Runner, regex: str | None = None) -> None:
        """Print the log to stderr, following it to the end of the job."""
        print_logs([self.handle], runner, regex)

    def cancel(self, runner: Runner) -> None:
        """End the job; returns when it has ended."""
        if self.handle:
            runner.cancel(self.handle)

    def cleanup(self) -> None:
        """Let the executor remove what an ended job left behind; trouble is only logged."""
        clean_up(self.executor, [self.handle], self.known_state)

    # What jobs and groups have in common, for the conductor.

    @property
    def known_state(self) -> AppState:
        """The state, read by the experiment itself: unlike ``state``, that is no look at it."""
        return cast("AppState", vars(self)["state"])

    @property
    def executors_in_order(self) -> list[Executor]:
        return [self.executor]

    def take(self, handles: Sequence[str], states: Sequence[AppState]) -> None:
        """Take over what the conductor knows."""
        self.handle = handles[0] if handles else ""
        self.state = combined(states)
        self.launched = bool(self.handle) or is_terminal(self.known_state)


def _looked_at(job: Job | JobGroup) -> AppState:
    """Return the state to the program, which then knows of a failure."""
    if job.known_state in BAD_ENDS:
        unseen.saw(job.executor.experiment_id or "", [job.id])
    return job.known_state


# Not in the class, where it would take the place of the field and its default.
setattr(Job, "state", property(_looked_at, lambda job, state: vars(job).update(state=state)))  # noqa: B010


@dataclass
class JobGroup(ConfigurableMixin):
    """Several tasks that start together; when one fails, the others are ended.

    Executors are one for all or one for each task, all of one kind.
    """

    id: str
    tasks: Sequence[Task] | Sequence[str] | str
    executors: Executor | Sequence[Executor]
    handles: list[str] = field(default_factory=list)
    launched: bool = False
    states: list[AppState] = field(default_factory=list)
    plugins: Sequence[ExperimentPlugin] | None = None
    tail_logs: bool = False
    dependencies: list[str] = field(default_factory=list)
    name: str = ""
    run_if: RunIf = "succeeded"

    # What is stored of it and could not be read here, each with the reason.
    _left_out = tuple[str, ...]()

    def __post_init__(self) -> None:
        executors = self.executor_list()
        if not isinstance(self.tasks, str) and len(executors) not in (1, len(self.tasks)):
            raise ConfigError(
                f"Group {self.id!r} has {len(self.tasks)} tasks and {len(executors)} executors. "
                "Give one executor for all, or one for each task."
            )
        kinds = {type(executor) for executor in executors}
        if len(kinds) > 1:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ConfigError(
                f"The executors of group {self.id!r} must be of one kind, not {names}."
            )
        if not executors[0].CAPABILITIES.groups:
            raise UnsupportedError(
                f"{type(executors[0]).__name__} cannot run a group of tasks. Add them one by one."
            )

    def task_list(self) -> Sequence[Task] | Sequence[str]:
        """Return the tasks, each as text where the group was stored."""
        return split_stored(self.tasks) if isinstance(self.tasks, str) else self.tasks

    def executor_list(self) -> list[Executor]:
        return list(self.executors) if isinstance(self.executors, Sequence) else [self.executors]

    @property
    def state(self) -> AppState:
        return _looked_at(self)

    @property
    def known_state(self) -> AppState:
        """See `Job.known_state`."""
        return combined(self.states) if self.launched else AppState.UNSUBMITTED

    @property
    def handle(self) -> str:
        return self.handles[0] if self.handles else ""

    @property
    def executor(self) -> Executor:
        return self.executor_list()[0]

    @property
    def merged(self) -> bool:
        """Whether the group is one submission with one role for each task."""
        return self.executor.CAPABILITIES.merged_groups

    def serialize(self) -> tuple[str, str]:
        """Return the group, without its tasks, and the tasks as text."""
        text = self.tasks if isinstance(self.tasks, str) else as_text(self.task_list())
        return self.serialize_job(), text

    def serialize_job(self) -> str:
        """Return the group, without its tasks, as text."""
        return _serialize_job(self, tasks=[None] * len(self.task_list()))

    def prepare(
        self,
        serialize_metadata_for_scripts: bool = True,
        *,
        with_code: bool = True,
        packager: Packager | None = None,
    ) -> list[AppDef]:
        """Write the files that the tasks need; return their applications, one for each handle.

        See `Job.prepare`; the code is collected once for all tasks.

        Raises:
            ConfigError: the executors do not agree on which code travels.
            PackagingError: it could not be collected.
        """
        tasks = [runnable(task) for task in self.task_list()]
        executors = self.executor_list()
        for executor in executors:
            executor.create_job_dir()
        if with_code:
            self.executor.package(packager or self._packager(), self.id)
        if len(executors) < len(tasks):
            executors = executors * len(tasks)
        apps = [
            package(
                f"{self.id}-{position}",
                task,
                executor,
                serialize_to_file=True,
                serialize_metadata_for_scripts=serialize_metadata_for_scripts,
            )
            for position, (task, executor) in enumerate(zip(tasks, executors, strict=True))
        ]
        return [merge_executables(iter(apps), self.id)] if self.merged else apps

    def _packager(self) -> Packager:
        """Return the one packager whose code all tasks use, since they share a directory."""
        packagers = [executor.packager for executor in self.executor_list()]
        travelling = [p for p in packagers if type(p).package is not Packager.package]
        if any(packager != travelling[0] for packager in travelling):
            raise ConfigError(
                f"The tasks of group {self.id!r} share their code, but their executors have "
                "different packagers. Give all of them the same, or add the tasks one by one."
            )
        return travelling[0] if travelling else packagers[0]

    def launch(
        self,
        wait: bool,
        runner: Runner,
        dryrun: bool = False,
        log_dryrun: bool = False,
        direct: bool = False,
    ) -> None:
        """Submit this group alone, outside of an experiment's order; see `Experiment.run`."""
        if direct:
            raise NotImplementedError("A group cannot run in this process; it has several tasks.")
        apps = self.prepare(with_code=not dryrun)
        scheduler = get_executor_str(self.executor)
        infos = [
            runner.dryrun(app, scheduler, executor)
            for app, executor in zip(apps, self.executors_in_order, strict=True)
        ]
        if dryrun:
            for info in infos if log_dryrun else ():
                print_request(info)
            return
        self.handles = [runner.schedule(info) for info in infos]
        self.launched, self.states = True, [AppState.SUBMITTED] * len(self.handles)
        if wait:
            self.wait(runner)

    def status(self, runner: Runner) -> AppState:
        """Ask for the present state; the last known one where it cannot be had."""
        self.states = [
            state if is_terminal(state) else ask(handle, runner, state)
            for handle, state in zip(self.handles, self.states, strict=False)
        ]
        return self.state

    def wait(self, runner: Runner | None = None) -> AppState:
        """Wait for the end of all tasks and return the final state."""
        from nemo_run.run.torchx_backend.launcher import wait_and_exit

        self.states = [
            wait_and_exit(app_handle=handle, log=self.tail_logs, runner=runner).state
            for handle in self.handles
        ]
        return self.state

    def logs(self, runner: Runner, regex: str | None = None) -> None:
        """Print the logs of all tasks to stderr, following them to the end."""
        print_logs(self.handles, runner, regex)

    def cancel(self, runner: Runner) -> None:
        """End all tasks; returns when they have ended."""
        for handle in self.handles:
            if handle:
                runner.cancel(handle)

    def cleanup(self) -> None:
        """Let the executor remove what ended tasks left behind; trouble is only logged."""
        clean_up(self.executor, self.handles, self.known_state)

    @property
    def executors_in_order(self) -> list[Executor]:
        """One executor for each application that `prepare` returns."""
        executors = self.executor_list()
        if self.merged:
            return [type(executors[0]).merge(executors, len(self.task_list()))]
        return executors if len(executors) > 1 else executors * len(self.task_list())

    def take(self, handles: Sequence[str], states: Sequence[AppState]) -> None:
        """Take over what the conductor knows."""
        self.handles, self.states = list(handles), list(states)
        self.launched = any(handles) or all(map(is_terminal, states))


def _serialize_job(job: Job | JobGroup, **instead: Any) -> str:
    fields: dict[str | int, Any] = {}
    for name in type(job).__dataclass_fields__:
        fields[name] = instead[name] if name in instead else vars(job)[name]
    if job.run_if == (job.executor.implied_run_if() or "succeeded"):
        del fields["run_if"]  # a field that 0.12 does not know
    return ZlibJSONSerializer().serialize(buildables.make(Config, type(job), fields))


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, {"Runner": "nemo_run.run.torchx_backend.runner"})
