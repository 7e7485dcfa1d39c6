"""What is submitted to Slurm for a job, in plain values."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from nemo_run import _shell
from nemo_run._backends.slurm import script as slurm_script
from nemo_run._backends.slurm.containers import Container
from nemo_run._backends.slurm.directives import further_options
from nemo_run._backends.slurm.log_paths import LogPath, as_given, fill_in
from nemo_run._secrets.masking import mask_environment, masked_text
from nemo_run._values import is_filled_in
from nemo_run.core.execution.launcher import Launcher
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmExecutor, SlurmJobDetails

ExecutorT = TypeVar("ExecutorT", bound="SlurmExecutor")

STATE_DIR = ".nemo_run"
"""Below the job directory on the cluster: what we keep there about each submission."""

_NO_FILE_NAME = re.compile(r"[/\n%\\$]")


@dataclass(kw_only=True)
class SlurmBatchRequest:
    """What is submitted: how, and the script.

    Attributes:
        jobs: name of each task.
        command_groups: argument vector of each task.
        extra_env: variables that all tasks have.
        task_env: variables of each task that the others do not have, or with other values.
        tag: what makes this submission unlike any other.
        code_of: the job that the code was collected for.
        filled_in: further arguments that the job's shell fills in, in scripts that launchers made.
    """

    launch_cmd: list[str]
    jobs: list[str]
    command_groups: list[list[str]]
    executor: SlurmExecutor
    max_retries: int
    setup: list[str] | None = None
    extra_env: dict[str, str]
    launcher: Launcher | None = None
    task_env: list[dict[str, str]] = field(default_factory=list)
    tag: str = ""
    code_of: str = ""
    filled_in: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.task_env:
            self.task_env = [{} for _ in self.command_groups]

    def materialize(self) -> str:
        """Return the batch script. Nothing in it is secret."""
        fill_in(self.executor.job_details, self.job_details)
        return slurm_script.batch_script(self)

    def environment_files(self) -> dict[str, str]:
        """Return the files that hold the variables of the job, by name."""
        name = slurm_script.ENVIRONMENT
        of_all = {name: self.extra_env}
        of_one = {f"{name}-{position}": own for position, own in enumerate(self.task_env)}
        return {
            name: slurm_script.environment_file(variables, self.macro_names())
            for name, variables in (of_all | of_one).items()
            if variables
        }

    def folders(self) -> list[str]:
        """Return further directories that Slurm writes to, and does not make itself."""
        return []

    @property
    def slurm_name(self) -> str:
        """What the job is called in Slurm's queue."""
        return as_given(self.executor.job_details).job_name or self._prefix + self.jobs[0]

    @property
    def remote_dir(self) -> str:
        return self.executor.remote_dir

    @property
    def state_dir(self) -> str:
        return f"{self.remote_dir}/{STATE_DIR}/{self.tag}"

    @property
    def may_come_back(self) -> bool:
        """Whether Slurm may start the script more than once, which then needs its variables."""
        return bool(self.executor.array) or not further_options(self.executor).get("no_requeue")

    @property
    def job_details(self) -> SlurmJobDetails:
        return self.details_of(0)

    def details_of(self, position: int) -> SlurmJobDetails:
        """Return where the output of a task goes."""
        own = self._member(position) or self.executor
        details = as_given(own.job_details)
        details.folder = details.folder or self.remote_dir
        if not details.job_name:
            details.job_name = _file_name(self._prefix + self.jobs[position])
        elif position and details.job_name == as_given(self.executor.job_details).job_name:
            details.job_name = f"{details.job_name}-{position}"
        return details

    def log_of(self, position: int) -> LogPath:
        """Return where the output of a task goes; that of each rank, where each has its own."""
        return self._path(str(self.details_of(position).srun_stdout))

    def errors_of(self, position: int) -> LogPath:
        """Return where the errors of a task go, if not to its output; see `log_of`."""
        return self._path(str(self.details_of(position).srun_stderr))

    @property
    def batch_log(self) -> LogPath:
        return LogPath.below(self.remote_dir, str(self.job_details.stdout)).checked()

    @property
    def batch_errors(self) -> LogPath:
        return LogPath.below(self.remote_dir, str(self.job_details.stderr)).checked()

    def _path(self, path: str) -> LogPath:
        log = LogPath.below(self.remote_dir, path).checked()
        return log.for_ranks() if self.executor.rank_logs else log

    def container_of(self, position: int) -> Container:
        own = self._member(position) or self.executor
        return Container(
            image=own.container_image,
            runtime=self.executor.container_runtime,
            mounts=[*own.container_mounts, *self._code_mounts],
            env=own.container_env,
            job_dir=self.remote_dir,
            gpus=bool(own.gpus_per_node or own.gpus_per_task),
            variables=[*self.extra_env, *self.task_env[position], *sorted(self.macro_names())],
        )

    def srun_args_of(self, position: int) -> list[str]:
        return (self._member(position) or self.executor).srun_args or []

    def tasks_of(self, position: int) -> int:
        """Return how many processes the step of a task has."""
        own = self._member(position)
        if own is not None:
            return first_number(own.nodes) * first_number(own.ntasks_per_node)
        return self.executor.nnodes() * self.executor.tasks_per_node()

    def macro_names(self) -> set[str]:
        """Return the variables that a task's arguments may name."""
        hosts = {f"{self.executor.HET_GROUP_HOST_VAR}_{n}" for n in range(len(self.command_groups))}
        macros = dataclasses.asdict(self.executor.macro_values())
        macros.pop("het_group_host_var")
        return {*macros.values(), *hosts}

    @property
    def _prefix(self) -> str:
        account = self.executor.account
        prefix = self.executor.job_name_prefix
        if prefix is not None:
            return prefix
        return f"{account}-{account.rpartition('_')[2]}." if account else ""

    @property
    def _code_mounts(self) -> list[str]:
        # A link is only good for something where what it names can be seen.
        linked = self.executor.linked_code
        return [f"{linked}:{linked}"] if linked else []

    def _member(self, position: int) -> SlurmExecutor.ResourceRequest | None:
        group = self.executor.resource_group
        return group[position] if len(group) == len(self.command_groups) else None

    def __repr__(self) -> str:
        command = f"{_shell.render(self.launch_cmd)} $SBATCH_SCRIPT"
        shown = mask_environment({**self.extra_env, **_merged(self.task_env)})
        variables = "".join(f"#   {name}={value!r}\n" for name, value in shown.items())
        environment = f"# Variables of its tasks:\n{variables}" if variables else ""
        filled_in = "".join(f"#   {text}\n" for text in self._filled_in())
        values = f"# Filled in by the shell of the job:\n{filled_in}" if filled_in else ""
        return f"{command}\n\n# SBATCH_SCRIPT\n{environment}{values}{self.materialize()}"

    def _filled_in(self) -> Iterator[str]:
        """Yield, for people, what the user wrote that the shell of the job puts values into."""
        for name, value in {**self.extra_env, **_merged(self.task_env)}.items():
            if is_filled_in(value):
                yield f"variable {name}={masked_text(str(value))!r}"
        arguments = [arg for argv in self.command_groups for arg in argv if is_filled_in(arg)]
        for text in dict.fromkeys([*map(str, arguments), *self.filled_in]):
            yield f"argument {masked_text(text)!r}"


def merged(executors: Sequence[ExecutorT], num_tasks: int) -> ExecutorT:
    """Return one executor for a group of tasks; see `SlurmExecutor.merge`."""
    if len(executors) not in (1, num_tasks):
        raise ConfigError(
            f"{len(executors)} executors do not fit {num_tasks} tasks. "
            "Give one for all, or one for each."
        )
    main = copy.deepcopy(executors[0])
    main.run_as_group = True
    if len(executors) == 1 and not main.heterogeneous:
        main.resource_group = []
        return main
    members = list(executors) if len(executors) == num_tasks else [*executors] * num_tasks
    indices = _checked_indices(main, num_tasks)
    main.resource_group = [
        _resource_request(executor, None if indices is None else indices[position])
        for position, executor in enumerate(members)
    ]
    return main


def _resource_request(
    executor: SlurmExecutor, het_group_index: int | None
) -> SlurmExecutor.ResourceRequest:
    names = {item.name for item in dataclasses.fields(executor.ResourceRequest)}
    values = {
        name: copy.deepcopy(getattr(executor, name)) for name in names if hasattr(executor, name)
    }
    values["ntasks_per_node"] = executor.tasks_per_node()
    return executor.ResourceRequest(**values, het_group_index=het_group_index)


def _checked_indices(executor: SlurmExecutor, num_tasks: int) -> list[int] | None:
    indices = executor.het_group_indices
    if indices is None:
        return None
    if not executor.heterogeneous:
        raise ConfigError("het_group_indices needs heterogeneous=True.")
    if len(indices) != num_tasks:
        raise ConfigError(f"het_group_indices={indices} does not fit {num_tasks} tasks.")
    if indices != sorted(indices):
        raise ConfigError(f"het_group_indices={indices} must not go down.")
    return indices


def _file_name(text: str) -> str:
    return _NO_FILE_NAME.sub("_", text)


def first_number(value: Any) -> int:
    """Return a number, or the first of several: fields of a heterogeneous job may have many.

    Where it is not said, Slurm starts one.
    """
    if value is None:
        return 1
    return int(value[0] if isinstance(value, Sequence) else value)


def _merged(items: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for item in items for name, value in item.items()}
