"""How an experiment gets its jobs ready and launches them; `Experiment` is what users see of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from nemo_run import _order
from nemo_run._experiments import setup
from nemo_run._experiments.conductor import detached as detached_conductor
from nemo_run._experiments.conductor.in_process import is_first_rank, only_single_jobs, run_directly
from nemo_run._experiments.conductor.session import Watch
from nemo_run._experiments.display import panel
from nemo_run._experiments.ending import unseen
from nemo_run._experiments.jobs.checks import check_can_detach, check_tasks
from nemo_run._experiments.jobs.job_factory import Workplace, made_anew
from nemo_run._experiments.plan_only import only_planning
from nemo_run._experiments.provenance.recording import Recorder
from nemo_run._experiments.store import directory as store_directory
from nemo_run._experiments.store import places
from nemo_run._experiments.store import tunnels as store_tunnels
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.loading import StoredExperiment, complete_executor, complete_job
from nemo_run.config import ConfigurableMixin
from nemo_run.core.execution.base import Capabilities, Executor
from nemo_run.exceptions import ConfigError
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner, get_runner

if TYPE_CHECKING:
    from nemo_run._experiments.rerun import RecordedCode
    from nemo_run.core.tunnel.client import Tunnel


class Supporting:
    """A list of the executors of this package that can do something, made when it is asked for.

    On a class it is a tuple, so that ``Experiment._DETACH_SUPPORTED_EXECUTORS += (Mine,)`` works.
    Executors say themselves what they can do; the list matters for those that were added to it.
    """

    def __init__(self, can: Callable[[Capabilities], bool]) -> None:
        self._can = can

    def __get__(self, instance: object, owner: type) -> tuple[type[Executor], ...]:
        from nemo_run.run.torchx_backend.schedulers._mapping import EXECUTOR_MAPPING

        return tuple(kind for kind in EXECUTOR_MAPPING if self._can(kind.CAPABILITIES))


class Running(ConfigurableMixin):
    """The jobs of an experiment, its directory, and the launch of the jobs."""

    _PARALLEL_SUPPORTED_EXECUTORS = Supporting(lambda can: True)
    _DETACH_SUPPORTED_EXECUTORS = Supporting(lambda can: can.detach)
    _DEPENDENCY_SUPPORTED_EXECUTORS = Supporting(lambda can: can.dependencies)

    # What `Experiment` takes from the user.
    executor: Executor
    check: bool | None
    console: Console
    threadpool_workers: int
    serialize_metadata_for_scripts: bool
    tunnels: dict[str, Tunnel]
    _reconstruct: bool

    def __init__(
        self,
        title: str,
        id: str | None,
        base_dir: str | None,
        jobs: Iterable[Job | JobGroup] | None,
    ) -> None:
        self._title = title
        self._id = id or f"{title}_{time.time_ns()}"
        self._base_dir = base_dir
        self._exp_dir = str(places.directory_of(title, self._id, base_dir))
        self._jobs: list[Job | JobGroup] = list(jobs or [])
        self._launched = self._detached = self._direct = False
        self._runner_: Runner | None = None
        self._watch_: Watch | None = None
        self._recorder: Recorder | None = None
        self._planned = self._rerun = self._executor_left_out = False
        # Where a rerun finds the script that defined its tasks.
        self._main_from: Path | None = None
        # What a rerun uses instead of the code of today.
        self._code: RecordedCode | None = None

    def _take_stored(self, path: Path, stored: StoredExperiment) -> None:
        """Become the experiment that was read from ``path``."""
        self._exp_dir = str(path)
        self._jobs = stored.jobs
        self._executor_left_out = bool(stored.left_out)
        self.tunnels = store_tunnels.from_text(self._directory.read(store_directory.TUNNELS))
        self._main_from = path
        self._base_dir = places.base_of(path)

    def _print_plan(self, *, log: bool, exist_ok: bool, delete: bool) -> None:
        self._create(exist_ok=exist_ok)
        self._prepare_jobs(with_code=False)
        try:
            planned = setup.requests(self._directory, self._jobs, self._runner)
            for job, requests in zip(self._jobs, planned, strict=True):
                if log:
                    panel.print_requests(self.console, job, requests)
        finally:
            if delete:
                self._directory.remove()

    def _put_in_order(self, *, in_a_row: bool, tail_logs: bool) -> bool:
        """Complete the jobs with what `Experiment.run` was told; tell whether some wait for others.

        Raises:
            ConfigError: they wait for each other.
        """
        if in_a_row:
            _order.put_in_a_row(self._jobs, as_before=self._rerun)
        for job in self._jobs:
            job.tail_logs = job.tail_logs or tail_logs
        return len(_order.waves({job.id: job.dependencies for job in self._jobs})) > 1

    def _launch(self, *, detach: bool, in_waves: bool) -> None:
        """Plan every job, then launch them; ``in_waves`` if some wait for others."""
        if detach:
            check_can_detach(self._jobs, self._DETACH_SUPPORTED_EXECUTORS)
        check_tasks(self._jobs)
        setup.let_backends_get_ready(self._jobs)
        if self.check is None:
            unseen.listen()
        self._create()
        self._recorder = Recorder(self._directory.path, self._code)
        self._prepare_jobs()
        checked = setup.checked_requests(self._directory, self._jobs, self._runner)
        self._recorder.record(self._jobs)
        self._launched, self._detached = True, detach
        self.tunnels = store_tunnels.of_jobs(self._jobs)
        self._directory.write(store_directory.TUNNELS, store_tunnels.to_text(self.tunnels))
        needs_conductor = in_waves or any(isinstance(job, JobGroup) for job in self._jobs)
        if detach and needs_conductor:
            detached_conductor.spawn(self._directory)
            self._watch.raise_if_not_launched()
            return
        self._watch.conductor.take_checked(checked)
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

    def _resume(self) -> None:
        if self._reconstruct:
            states = self._watch.states()
            self._complete_jobs([i for i, state in enumerate(states) if not state.launched])
        self._watch.resume()

    def _make_anew(self, code: str) -> None:
        """Put new jobs in place of those that were run, under a new id."""
        if code not in ("today", "recorded"):
            raise ConfigError(f"code is 'today' or 'recorded', not {code!r}.")
        self._code = None
        if code == "recorded":
            from nemo_run._experiments.rerun import recorded_code

            self._code = recorded_code(self._directory.path, self._id, self._jobs)
        if self._reconstruct:
            self._complete_jobs(range(len(self._jobs)))
            if self._executor_left_out:
                self.executor = complete_executor(self._directory.path)
        self._id = f"{self._title}_{time.time_ns()}"
        self._exp_dir = str(places.directory_of(self._title, self._id, self._base_dir))
        self._jobs = [made_anew(self._workplace, job) for job in self._jobs]
        self._reconstruct = self._launched = self._detached = self._direct = False
        self._rerun = True
        self._watch_ = self._recorder = None
        self.tunnels = {}

    def _complete_jobs(self, positions: Iterable[int]) -> None:
        """Make jobs that were read to be looked at ready to run; see `complete_job`."""
        stored = self._directory.read_tasks()
        for position in positions:
            complete_job(self._jobs[position], self._directory.path, stored[position])

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
        config = self.to_config()
        config.executor = self.executor  # with what its constructor does not take
        setup.create(
            self._directory,
            title=self._title,
            config=config,
            main_from=self._main_from,
            exist_ok=exist_ok,
        )

    def _prepare_jobs(self, *, with_code: bool = True) -> None:
        setup.prepare_jobs(
            self._directory,
            self._jobs,
            with_code=with_code,
            with_metadata=self.serialize_metadata_for_scripts,
            code=self._code,
        )
