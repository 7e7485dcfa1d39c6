"""What is submitted to Slurm for a job, in plain values."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nemo_run import _shell
from nemo_run._credentials import mask_environment
from nemo_run.core.execution import _slurm_script
from nemo_run.core.execution._slurm_containers import Container
from nemo_run.core.execution._slurm_directives import further_options
from nemo_run.core.execution.launcher import Launcher

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmExecutor, SlurmJobDetails

STATE_DIR = ".nemo_run"
"""Below the job directory on the cluster: what we keep there about each submission."""

_NO_FILE_NAME = re.compile(r"[/\n%\\]")


@dataclass(kw_only=True)
class SlurmBatchRequest:
    """What is submitted: how, and the script.

    Attributes:
        jobs: name of each task.
        command_groups: argument vector of each task.
        extra_env: variables that all tasks have.
        task_env: variables of each task that the others do not have, or with other values.
        tag: what makes this submission unlike any other.
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

    def __post_init__(self) -> None:
        if not self.task_env:
            self.task_env = [{} for _ in self.command_groups]

    def materialize(self) -> str:
        """Return the batch script. Nothing in it is secret."""
        return _slurm_script.batch_script(self)

    def environment_files(self) -> dict[str, str]:
        """Return the files that hold the variables of the job, by name."""
        name = _slurm_script.ENVIRONMENT
        of_all = {name: self.extra_env}
        of_one = {f"{name}-{position}": own for position, own in enumerate(self.task_env)}
        return {
            name: _slurm_script.environment_file(variables, self.macro_names())
            for name, variables in (of_all | of_one).items()
            if variables
        }

    @property
    def slurm_name(self) -> str:
        return self._prefix + self.jobs[0]

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
        details = copy.copy(own.job_details)
        details.folder = details.folder or self.remote_dir
        if not details.job_name:
            details.job_name = _file_name(self._prefix + self.jobs[position])
        elif position and details.job_name == self.executor.job_details.job_name:
            details.job_name = f"{details.job_name}-{position}"
        return details

    def rank_path(self, path: str) -> str:
        """Return the path of a log; with a place for the rank, where each has its own."""
        if not self.executor.rank_logs or "%t" in path:
            return path
        stem, dot, suffix = path.rpartition(".")
        return f"{stem}_%t{dot}{suffix}" if dot else f"{path}_%t"

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
        return prefix if prefix is not None else f"{account}-{account.rpartition('_')[2]}."

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
        return f"{command}\n\n# SBATCH_SCRIPT\n{environment}{self.materialize()}"


def _file_name(text: str) -> str:
    return _NO_FILE_NAME.sub("_", text)


def first_number(value: Any) -> int:
    """Return a number, or the first of several: fields of a heterogeneous job may have many."""
    return int(value[0] if isinstance(value, Sequence) else value)


def _merged(items: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for item in items for name, value in item.items()}
