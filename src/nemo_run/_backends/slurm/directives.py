"""What a batch script asks of ``sbatch``: one block of directives, or one for each het group."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from nemo_run._order import RunIf
from nemo_run.exceptions import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmBatchRequest, SlurmExecutor

log = logging.getLogger(__name__)

ExecutorT = TypeVar("ExecutorT", bound="SlurmExecutor")

AFTER_SUCCESS = "afterok"

SBATCH_FLAGS = [
    "account",
    "acctg_freq",
    "array",
    "batch",
    "clusters",
    "constraint",
    "container",
    "container_id",
    "core_spec",
    "cpus_per_gpu",
    "cpus_per_task",
    "comment",
    "debug",
    "delay_boot",
    "dependency",
    "distribution",
    "error",
    "exclude",
    "exclusive",
    "export",
    "get_user_env",
    "gid",
    "gpu_bind",
    "gpu_freq",
    "gpus",
    "gpus_per_node",
    "gpus_per_socket",
    "gpus_per_task",
    "gres",
    "gres_flags",
    "help",
    "hold",
    "ignore_pbs",
    "input",
    "job_name",
    "kill_on_invalid_dep",
    "licenses",
    "mail_type",
    "mail_user",
    "mcs_label",
    "mem",
    "mem_bind",
    "mem_per_cpu",
    "mem_per_gpu",
    "mincpus",
    "network",
    "nice",
    "no_kill",
    "no_requeue",
    "nodefile",
    "nodelist",
    "nodes",
    "ntasks",
    "ntasks_per_core",
    "ntasks_per_gpu",
    "ntasks_per_node",
    "ntasks_per_socket",
    "open_mode",
    "output",
    "overcommit",
    "oversubscribe",
    "parsable",
    "partition",
    "power",
    "prefer",
    "priority",
    "profile",
    "propagate",
    "qos",
    "quiet",
    "reboot",
    "requeue",
    "reservation",
    "signal",
    "sockets_per_node",
    "spread_job",
    "switches",
    "test_only",
    "thread_spec",
    "threads_per_core",
    "time",
    "time_min",
    "tmp",
    "tres_bind",
    "tres_per_task",
    "uid",
    "usage",
    "verbose",
    "version",
    "wait",
    "wait_all_nodes",
    "wckey",
    "wrap",
    "segment",
]

PER_GROUP = ("nodes", "ntasks_per_node", "gpus_per_node", "gpus_per_task")
"""What each group of a heterogeneous job has of its own."""


RUN_IF: dict[str, RunIf] = {
    "afterok": "succeeded",
    "aftercorr": "succeeded",
    "afterany": "ended",
    "afterburstbuffer": "ended",
    # Slurm is content with their start; where it is not Slurm that waits, their end will do.
    "after": "ended",
    "afternotok": "failed",
}
"""Slurm's words for what is asked of the jobs that another depends on."""


def flag(key: str, value: Any) -> str:
    """Return ``--key=value`` as ``sbatch`` reads it from a ``#SBATCH`` line; a bare flag for True.

    Raises:
        ConfigError: the value does not fit into a line.
    """
    key = key.replace("_", "-")
    if value is True:
        return f"--{key}"
    text = str(value)
    if any(mark in text for mark in "\n\r\0"):
        raise ConfigError(f"--{key} cannot be {text!r}: a directive of Slurm's is one line.")
    return f"--{key}={_quoted(text)}"


def _quoted(text: str) -> str:
    if text and all(char.isalnum() or char in "_-+.,:/=@%[]" for char in text):
        return text
    # Unlike a shell, sbatch takes a backslash for an escape also between single quotes.
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def further_options(executor: SlurmExecutor) -> dict[str, Any]:
    """Return the user's own options of ``sbatch``, by names like those of our fields.

    Raises:
        UnsupportedError: one of them would have jobs that are not found again.
    """
    given = executor.additional_parameters or {}
    options = {key.replace("-", "_"): value for key, value in given.items()}
    if options.get("clusters"):
        raise UnsupportedError(
            f"Jobs cannot be sent on to another cluster with clusters={options['clusters']!r}: "
            "they are looked for on the one that the tunnel leads to. "
            "Give each cluster an executor whose tunnel leads to a login node of its own."
        )
    return options


def directives(request: SlurmBatchRequest) -> list[str]:
    """Return the ``#SBATCH`` lines."""
    blocks = _blocks(request)
    lines: list[str] = []
    for block in blocks:
        if lines:
            lines.append("#SBATCH hetjob")
        lines += [f"#SBATCH {flag(key, block[key])}" for key in sorted(block)]
        if not request.executor.heterogeneous or block is blocks[0]:
            lines += [f"#SBATCH {option}" for option in dependency(request.executor)]
    return lines


def check_dependency_type(word: str) -> None:
    """Refuse what is none of Slurm's words for what is asked of jobs that another depends on."""
    if word not in RUN_IF:
        raise ConfigError(f"Slurm has no dependency_type={word!r}. Use one of {', '.join(RUN_IF)}.")


def dependency(executor: SlurmExecutor) -> list[str]:
    """Return the options that hold a job back until others have ended."""
    ids = executor.parse_deps()
    if not ids:
        return []
    options = [flag("dependency", ":".join([executor.dependency_type, *ids]))]
    if "kill_on_invalid_dep" not in further_options(executor):
        # Otherwise a job whose dependency failed would wait for ever.
        options.append("--kill-on-invalid-dep=yes")
    return options


def _blocks(request: SlurmBatchRequest) -> list[dict[str, Any]]:
    executor = request.executor
    common = of_executor(executor)
    if executor.tasks_per_node() is not None:
        common["ntasks_per_node"] = executor.tasks_per_node()
    if executor.time_limit_s is not None:
        # Slurm counts in minutes, and is only to step in where our own limit cannot.
        common["time"] = math.ceil(executor.time_limit_s / 60) + 1
    common["job_name"] = request.slurm_name
    array = bool(executor.array)
    common["output"] = request.batch_log.directive(array=array)
    if not executor.stderr_to_stdout:
        common["error"] = request.batch_errors.directive(array=array)
    extra = {
        key: value
        for key, value in further_options(executor).items()
        if value is not None and value is not False
    }
    if executor.cpus_per_gpu is not None and executor.gpus_per_task is None:
        log.warning("cpus_per_gpu has no effect without gpus_per_task")
    if not (executor.run_as_group and executor.heterogeneous):
        return [{**common, **extra}]
    return [
        {**_of_group(request, common, position), **extra}
        for position in _het_leaders(request.executor, len(request.jobs))
    ]


def of_executor(executor: SlurmExecutor) -> dict[str, Any]:
    """Return the fields of an executor that are options of ``sbatch``, by name."""
    values: Mapping[str, Any] = vars(executor)
    return {
        key: values[key]
        for key in SBATCH_FLAGS
        if values.get(key) is not None and values[key] is not False
    }


def _het_leaders(executor: SlurmExecutor, count: int) -> Sequence[int]:
    """Return the positions of the requests that open a het group."""
    if len(executor.resource_group) != count:
        raise ConfigError(
            f"A heterogeneous job of {count} tasks needs one executor for each, "
            f"not {len(executor.resource_group)}."
        )
    leaders: list[int] = []
    for position, request in enumerate(executor.resource_group):
        index = request.het_group_index
        before = executor.resource_group[position - 1].het_group_index if position else None
        if not position or index is None or index != before:
            leaders.append(position)
    return leaders


def _of_group(
    request: SlurmBatchRequest, common: Mapping[str, Any], position: int
) -> dict[str, Any]:
    group = request.executor.resource_group[position]
    block = {key: value for key, value in common.items() if key not in PER_GROUP}
    for key in PER_GROUP:
        if getattr(group, key) is not None:
            block[key] = getattr(group, key)
    for key in ("output", "error"):
        if key in block:
            block[key] = block[key].replace(request.jobs[0], request.jobs[position])
    block["job_name"] = f"{common['job_name'].removesuffix('-0')}-{position}"
    return block


def held_back(
    executor: ExecutorT, before: Sequence[tuple[object, str]], run_if: str
) -> ExecutorT | None:
    """Return a copy that Slurm holds back until other jobs have ended; see `Executor.held_back`."""
    if run_if == executor.implied_run_if():
        kind: str | None = executor.dependency_type
    else:
        # Slurm's own word for failed jobs asks that all of them failed.
        kind = {"succeeded": AFTER_SUCCESS, "ended": "afterany"}.get(run_if)
    elsewhere = any(getattr(other, "_cluster", None) != executor._cluster for other, _ in before)
    # Slurm has one word for all the jobs that another waits for.
    differs = bool(executor.dependencies) and kind != executor.dependency_type
    if kind is None or elsewhere or differs:
        return None
    held = copy.deepcopy(executor)
    held.dependencies = [*executor.dependencies, *(handle for _, handle in before)]
    held.dependency_type = kind
    return held
