"""The batch script of a Slurm job: values in, text out.

Nothing in it is secret: environment variables are in files of their own beside it, which only
the owner can read. It runs for each job of many, so it starts few programs: bash tells the time
and reads files by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from nemo_run import _shell
from nemo_run._backends.slurm.containers import Container, in_place_of_rundir
from nemo_run._backends.slurm.directives import directives
from nemo_run._backends.slurm.log_paths import LogPath
from nemo_run._backends.slurm.remote import KEY
from nemo_run._backends.slurm.script import fault_tolerance, text
from nemo_run.core.execution.launcher import FaultTolerance

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmBatchRequest

ENVIRONMENT = "env"
"""Name of the file with the variables of all tasks; those of one task only have its number."""

# What Slurm sets for each task of a step; to the batch script they are those of the first.
_OF_A_TASK = frozenset({"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURMD_NODENAME"})
_LOG = "nemo_run_log"
_ERRORS = "nemo_run_errors"
_MEMORY_LOG = "nemo_run_memory_log"


def batch_script(request: SlurmBatchRequest) -> str:
    """Return the whole script."""
    executor = request.executor
    count = len(request.command_groups)
    tolerance = request.launcher if isinstance(request.launcher, FaultTolerance) else None
    parts = beginning(request)
    if tolerance is not None:
        parts += ["", fault_tolerance.at_start(tolerance)]
    if executor.memory_measure:
        parts += ["", _memory_step(request)]
    for position in range(count):
        pause = executor.wait_time_for_group_job if position else 0
        parts += ["", *([f"sleep {max(0, pause)}"] if pause > 0 else []), _step(request, position)]
    if executor.time_limit_s is not None:
        parts += ["", f"nemo_run_limit {executor.time_limit_s:g} &", "nemo_run_limiter=$!"]
    parts += ["", _waiting(request)]
    if executor.memory_measure:
        parts.append('kill "$nemo_run_memory" 2>/dev/null')
    if executor.time_limit_s is not None:
        parts += ['kill "$nemo_run_limiter" 2>/dev/null', text.LATE.strip("\n")]
    parts.append("nemo_run_stop_watching")
    if tolerance is not None:
        parts.append(fault_tolerance.AT_END)
    parts.append('nemo_run_end "$nemo_run_code"')
    return "\n".join(parts) + "\n"


def beginning(request: SlurmBatchRequest) -> list[str]:
    """Return the script up to the first step: directives, functions, variables, setup lines."""
    parts = [
        "#!/bin/bash",
        f"# Written by nemo_run, to be submitted with: {_shell.render(request.launch_cmd)}",
        *directives(request),
        "",
        _shell.assignment("nemo_run_dir", request.remote_dir),
        *_state(request),
        *_key(request),
        text.NUMBER,
        text.START.strip("\n"),
        "",
        _shell.export("PYTHONUNBUFFERED", "1"),
        _shell.export("SLURM_UNBUFFEREDIO", "1"),
        _shell.export("TORCHX_MAX_RETRIES", str(request.max_retries)),
        text.HEAD.rstrip("\n"),
        *_het_hosts(request),
        "",
        *_variables(request),
        'export HEAD_NODE_ADDR="${HEAD_NODE_ADDR:-$head_node_ip}"',
    ]
    if request.executor.setup_lines:
        parts += ["", text.SETUP_BEGINS, _setup_lines(request), text.SETUP_ENDS.strip("\n")]
    return parts


def _state(request: SlurmBatchRequest) -> list[str]:
    if request.tag:
        return [_shell.assignment("nemo_run_state", request.state_dir)]
    # Of a script that a program submits itself, whose state directory only the script can make.
    base = _shell.render([request.state_dir])
    return [
        f'nemo_run_state={base}job-"$SLURM_JOB_ID"',
        '(umask 077 && mkdir -p "$nemo_run_state")',
    ]


def _variables(request: SlurmBatchRequest) -> list[str]:
    if not request.extra_env:
        return []
    if not request.tag:
        return [environment_file(request.extra_env, request.macro_names()).rstrip("\n")]
    load = f"nemo_run_environment {ENVIRONMENT} || {{ nemo_run_keep 78; exit 78; }}"
    return [load, *([] if request.may_come_back else [f'rm -f "$nemo_run_state"/{ENVIRONMENT}'])]


def _setup_lines(request: SlurmBatchRequest) -> str:
    """Return the user's lines, in which ``/nemo_run`` is the job's directory if none is mounted."""
    lines = (request.executor.setup_lines or "").rstrip("\n")
    if any(request.container_of(n).image for n in range(len(request.command_groups))):
        return lines
    return in_place_of_rundir(lines, request.remote_dir)


def _key(request: SlurmBatchRequest) -> list[str]:
    """Return the lines that take the key out of what tasks inherit; it is empty if not needed."""
    variables = bool(request.extra_env) or any(request.task_env)
    key = f"${{{KEY}:-}}" if variables and request.may_come_back else ""
    return [f"nemo_run_key={key}", f"unset {KEY}"]


def environment_file(variables: Mapping[str, str], macros: Collection[str]) -> str:
    """Return the text that a shell reads to have ``variables`` exported."""
    lines = [_shell.export(name, value, expand=macros) for name, value in variables.items()]
    return "\n".join([*lines, ":", ""])


def _het_hosts(request: SlurmBatchRequest) -> list[str]:
    executor = request.executor
    if not (executor.heterogeneous and executor.run_as_group):
        return []
    groups = sorted({_het_index(request, n) for n in range(len(request.command_groups))})
    return [
        f"export {executor.HET_GROUP_HOST_VAR}_{index}="
        f'$(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_{index}" | head -n 1)'
        for index in groups
    ]


def _het_index(request: SlurmBatchRequest, position: int) -> int:
    group = request.executor.resource_group
    index = group[position].het_group_index if position < len(group) else None
    return position if index is None else index


def _step(request: SlurmBatchRequest, position: int) -> str:
    executor = request.executor
    array = bool(executor.array)
    log = request.log_of(position)
    ranks = request.tasks_of(position) if "%t" in log.name else 1
    lines = log.assignments(_LOG, array=array)
    written = {log.argument(_LOG)}
    options = ["srun"]
    if executor.heterogeneous and executor.run_as_group:
        options.append(f"--het-group={_het_index(request, position)}")
    options += ["--output", f"${log.argument(_LOG)}"]
    if not executor.stderr_to_stdout:
        errors = request.errors_of(position)
        lines += errors.assignments(_ERRORS, array=array)
        options += ["--error", f"${errors.argument(_ERRORS)}"]
        written.add(errors.argument(_ERRORS))
    container = request.container_of(position)
    options += container.srun_options()
    options += ["--wait=60", "--kill-on-bad-exit=1", *request.srun_args_of(position)]
    command = _shell.render(_program(request, position, container))
    srun = _shell.render(options, expand=written)
    if request.task_env[position]:
        own = f"{ENVIRONMENT}-{position}"
        load = [f"nemo_run_environment {own} || exit 78"]
        if not request.may_come_back:
            load.append(f'rm -f "$nemo_run_state"/{own}')
    else:
        load = []
    if _shares_nodes(request, position):
        # Not as an option, which releases before 20.11 do not know; there all steps share.
        load.append("export SLURM_OVERLAP=1")
    lines += [
        f"nemo_run_task_{position}() {{",
        *(f"    {line}" for line in load),
        f"    exec {srun} {command}",
        "}",
        f"nemo_run_task_{position} &",
        f"pids[{position}]=$!",
    ]
    for name in [_LOG] if executor.stderr_to_stdout else [_LOG, _ERRORS]:
        lines.append(f'nemo_run_watch "${name}" "$nemo_run_state/clock-{position}-" {ranks}')
    return "\n".join(lines)


def _shares_nodes(request: SlurmBatchRequest, position: int) -> bool:
    """Whether a task runs beside others of its group, on the same nodes, and is not to wait."""
    others = [n for n in range(len(request.command_groups)) if n != position]
    if request.executor.heterogeneous:
        own_group = _het_index(request, position)
        others = [n for n in others if _het_index(request, n) == own_group]
    if not others:
        return False
    own = ("--overlap", "--exact", "--exclusive")
    return not any(option.startswith(own) for option in request.srun_args_of(position))


def _program(request: SlurmBatchRequest, position: int, container: Container) -> list[str]:
    argv: Sequence[str] = request.command_groups[position]
    macros = request.macro_names()
    own = macros | _OF_A_TASK
    if any(_shell.variables_in(arg, macros) & own for arg in argv):
        # Each task has values of its own, so its own shell has to put them in.
        line, parameters = _shell.render_in_two(argv, own, expand=macros)
        argv = ["sh", "-c", f"exec {line}", *(["sh", *parameters] if parameters else [])]
    return container.wrapped(argv)


def _memory_step(request: SlurmBatchRequest) -> str:
    log = LogPath.below(request.remote_dir, str(request.details_of(0).srun_stdout))
    lines = log.assignments(_MEMORY_LOG, array=bool(request.executor.array))
    written = log.argument(_MEMORY_LOG)
    argv = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--open-mode=append"]
    argv += ["--output", f"${written}", "nvidia-smi", "--loop=10"]
    argv += ["--query-gpu=timestamp,index,memory.used,memory.total", "--format=csv"]
    # What becomes of it says nothing of the job.
    step = f"{_shell.render(argv, expand={written})} 2>/dev/null &"
    return "\n".join([*lines, step, "nemo_run_memory=$!"])


def _waiting(request: SlurmBatchRequest) -> str:
    executor = request.executor
    if len(request.command_groups) == 1:
        return text.SINGLE.strip("\n")
    if not executor.monitor_group_job:
        return text.SAY.lstrip("\n") + text.UNMONITORED.strip("\n")
    grace = max(0, executor.monitor_group_job_wait_time)
    return f"nemo_run_grace={grace}\n{text.SAY.strip(chr(10))}\n{text.MONITORED.strip(chr(10))}"
