"""The batch script of a Slurm job: values in, text out.

Nothing in it is secret: environment variables are in files of their own beside it, which only
the owner can read. It runs for each job of many, so it starts few programs: bash tells the time
and reads files by itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from nemo_run import _shell
from nemo_run._clients._slurm_remote import KEY, STARTED
from nemo_run.core.execution import _slurm_fault_tolerance
from nemo_run.core.execution._slurm_containers import Container
from nemo_run.core.execution._slurm_directives import directives
from nemo_run.core.execution.launcher import FaultTolerance

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmBatchRequest

ENVIRONMENT = "env"
"""Name of the file with the variables of all tasks; those of one task only have its number."""

_RESTARTS = "${SLURM_RESTART_COUNT:-0}"
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_LOG = "nemo_run_log"
_ERRORS = "nemo_run_errors"

# By its number the job is found also by who was not told it, and when Slurm has forgotten the job.
_NUMBER = f'echo "${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}" >"$nemo_run_state/{STARTED}"'

_START = r"""
nemo_run_restart=${SLURM_RESTART_COUNT:-0}
nemo_run_element=${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}
# The number of one element is that of the whole array, so elements are named by theirs.
nemo_run_id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
nemo_run_id=${nemo_run_id:-$SLURM_JOB_ID}
printf -v nemo_run_started '%(%s)T' -1
nemo_run_asked=0
if [ "$nemo_run_restart" -gt 0 ]; then
    # What was said before is in the same file, and is not what this attempt says.
    echo "nemo_run: restart $nemo_run_restart"
    rm -f "$nemo_run_state/exit$nemo_run_element" "$nemo_run_state/late$nemo_run_element"
fi
# Slurm asks the tasks to end, too; this script stays to write down how they did.
trap 'nemo_run_asked=1' TERM

# Leave how this job ended where it is found when Slurm has forgotten it.
nemo_run_end() {
    echo "nemo_run: exit code $1"
    nemo_run_await_cancel
    if [ "$1" -ne 0 ] && [ "$nemo_run_restart" -lt "$TORCHX_MAX_RETRIES" ] \
        && nemo_run_may_go_on && scontrol requeue "$nemo_run_id"; then
        exit "$1"
    fi
    nemo_run_keep "$1"
    exit "$1"
}

# Whoever cancels a job ends its tasks first and then asks Slurm, whose word this waits for.
nemo_run_await_cancel() {
    if [ -e "$nemo_run_state/cancelled" ] && [ "$nemo_run_asked" = 0 ]; then
        : >"$nemo_run_state/written"
        sleep 60 &
        wait $!
    fi
}

nemo_run_may_go_on() {
    [ "$nemo_run_asked" = 0 ] && [ ! -e "$nemo_run_state/cancelled" ] \
        && [ ! -e "$nemo_run_state/late$nemo_run_element" ]
}

nemo_run_keep() {
    local file
    # Elements of an array share their variables; and who was asked to end may be started again.
    for file in "$nemo_run_state"/env*; do
        [ ! -e "$file" ] || [ -n "$nemo_run_element" ] || [ "$nemo_run_asked" = 1 ] || rm -f "$file"
    done
    printf '%s %s %s %s %(%s)T\n' "$1" "$nemo_run_restart" "$nemo_run_asked" \
        "$nemo_run_started" -1 >"$nemo_run_state/exit$nemo_run_element"
}

# Return the exit code of a child, however often a signal interrupts the waiting.
nemo_run_wait() {
    while kill -0 "$1" 2>/dev/null; do wait "$1"; done
    wait "$1"
}

# Read variables, unseen by whoever has turned on tracing.
nemo_run_environment() {
    # Not under names that a variable may have.
    set -- "$1" "$-"
    { set +vx; } 2>/dev/null
    nemo_run_read "$1"
    set -- $? "$2"
    case "$2" in *v*) set -v ;; esac
    case "$2" in *x*) set -x ;; esac
    return "$1"
}

# The file is gone before a task starts: what stays for a job that is started again is sealed, with
# a key that Slurm keeps and gives to this script only.
nemo_run_read() {
    if [ -e "$nemo_run_state/$1" ] && nemo_run_text=$(<"$nemo_run_state/$1"); then
        nemo_run_seal "$1"
    elif ! nemo_run_text=$(nemo_run_cipher -d -in "$nemo_run_state/$1.sealed"); then
        echo "nemo_run: error: the variables of this job are gone from $nemo_run_state" >&2
        return 78
    fi
    eval "$nemo_run_text"
    unset nemo_run_text
}

nemo_run_seal() {
    [ -n "$nemo_run_key" ] || return
    if (umask 077 && nemo_run_cipher -in "$nemo_run_state/$1" >"$nemo_run_state/.$1.$$"); then
        mv -f "$nemo_run_state/.$1.$$" "$nemo_run_state/$1.sealed" && rm -f "$nemo_run_state/$1"
    else
        rm -f "$nemo_run_state/.$1.$$"
    fi
}

nemo_run_cipher() {
    NEMO_RUN_KEY=$nemo_run_key openssl enc -aes-256-cbc -md sha256 -pass env:NEMO_RUN_KEY "$@" \
        2>/dev/null
}

# Have it noted how long the logs of so many ranks were when, so that their lines can be found by
# time. The pipe tells when that is over, and a shell can wait for it without a program.
nemo_run_watch() {
    nemo_run_watched+=("$@")
    exec {nemo_run_pipe}> >(nemo_run_clock "$@")
    nemo_run_pipes+=("$nemo_run_pipe")
}

nemo_run_clock() {
    local size file rank sizes=()
    trap '' TERM
    # Of many not as often: they are on a file system that all share.
    until read -r -t $((1 + $3 / 64)) || [ $? -le 128 ]; do
        for ((rank = 0; rank < $3; rank++)); do
            file=${1//%t/$rank}
            [ -s "$file" ] && size=$(stat -c %s "$file" 2>/dev/null) || continue
            [ "$size" = "${sizes[rank]}" ] || nemo_run_note "$2${file##*/}" "$size"
            sizes[rank]=$size
        done
    done
}

nemo_run_note() {
    local now=${EPOCHREALTIME:-$(date +%s.%N)}
    echo "${now/,/.} $2" >>"$1"
}

# Note that all which the logs hold was written by now.
nemo_run_stop_watching() {
    local rank file
    for nemo_run_pipe in "${nemo_run_pipes[@]}"; do
        exec {nemo_run_pipe}>&-
    done
    set -- "${nemo_run_watched[@]}"
    while [ $# -gt 0 ]; do
        for ((rank = 0; rank < $3; rank++)); do
            file=${1//%t/$rank}
            [ ! -e "$file" ] || nemo_run_note "$2${file##*/}" end
        done
        shift 3
    done
}

# End tasks that take longer than they may.
nemo_run_limit() {
    local nap
    trap 'kill "$nap" 2>/dev/null; exit' TERM
    sleep "$1" &
    nap=$!
    wait "$nap"
    echo "nemo_run: error: the time limit of $1 s is reached"
    : >"$nemo_run_state/late$nemo_run_element"
    # By way of Slurm: srun itself would not ask its tasks, but kill them.
    scancel --signal=TERM "$nemo_run_id" 2>/dev/null || kill -TERM "${pids[@]}" 2>/dev/null
    sleep 10 &
    nap=$!
    wait "$nap"
    scancel --signal=KILL "$nemo_run_id" 2>/dev/null && sleep 5 &
    nap=$!
    wait "$nap"
    kill -KILL "${pids[@]}" 2>/dev/null
}
"""

# Lines of the user's may end the script, and that is an end like any other.
_SETUP_BEGINS = "trap 'nemo_run_code=$?; set +eu; nemo_run_end \"$nemo_run_code\"' EXIT"

# What follows looks at the codes of commands that may fail. A trap of the user's own stays.
_SETUP_ENDS = r"""
set +eu
case "$(trap -p EXIT)" in *nemo_run_end*) trap - EXIT ;; esac
"""

_HEAD = r"""
# This script runs on the first node.
head_node=${SLURMD_NODENAME:-$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" | head -n 1)}
head_node_ip=
# The tasks of one node find it by any of its addresses; those of others as its name says.
nemo_run_nodes=one
nemo_run_options='--all-ip-addresses --ip-address'
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] || [ -n "${SLURM_HET_SIZE:-}" ]; then
    nemo_run_nodes=many
    nemo_run_options='--ip-address --all-ip-addresses'
    # Where Slurm itself finds it; unless that is a name, which on the node may mean loopback.
    head_node_ip=$(scontrol show node "$head_node" 2>/dev/null \
        | sed -n 's/.*NodeAddr=\([0-9.]*\) .*/\1/p')
fi
if [ -z "$head_node_ip" ]; then
    for nemo_run_option in $nemo_run_options; do
        for nemo_run_address in $(hostname "$nemo_run_option" 2>/dev/null); do
            case "$nemo_run_address" in
                *:*) ;;
                *)
                    head_node_ip=$nemo_run_address
                    break
                    ;;
            esac
        done
        case "$head_node_ip" in
            '' | 127.*) ;;
            *) break ;;
        esac
    done
    # By a loopback address each node would find itself.
    [ "$nemo_run_nodes" = one ] || head_node_ip=${head_node_ip##127.*}
fi
export head_node head_node_ip="${head_node_ip:-$head_node}"
# What sbatch was told to pass on to this script is not to keep its variables from the tasks.
unset SLURM_EXPORT_ENV
# Since 22.05 srun does not take this over by itself.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
"""

_SAY = r"""
nemo_run_say() {
    local task
    for task in "${!pids[@]}"; do
        [ "${pids[$task]}" != "$1" ] || echo "nemo_run: task $task has ended with exit code $2"
    done
}
"""

_MONITORED = r"""
# When one task of the group has ended, the others have a while to end, too.
nemo_run_code=0
nemo_run_left=("${pids[@]}")
nemo_run_deadline=
while [ "${#nemo_run_left[@]}" -gt 0 ]; do
    nemo_run_now=()
    for pid in "${nemo_run_left[@]}"; do
        if kill -0 "$pid" 2>/dev/null; then
            nemo_run_now+=("$pid")
            continue
        fi
        wait "$pid"
        code=$?
        nemo_run_say "$pid" "$code"
        # What ends after we have asked it to says nothing.
        [ "$nemo_run_code" -ne 0 ] || [ "$nemo_run_deadline" = past ] || nemo_run_code=$code
        [ -n "$nemo_run_deadline" ] || nemo_run_deadline=$(($(date +%s) + nemo_run_grace))
    done
    nemo_run_left=("${nemo_run_now[@]}")
    if [ "${#nemo_run_left[@]}" -gt 0 ] && [ -n "$nemo_run_deadline" ] \
        && [ "$nemo_run_deadline" != past ] && [ "$(date +%s)" -ge "$nemo_run_deadline" ]; then
        echo "nemo_run: one task has ended, ending the others"
        nemo_run_deadline=past
        kill -TERM "${nemo_run_left[@]}" 2>/dev/null
        nemo_run_kill_at=$(($(date +%s) + 10))
    fi
    if [ "$nemo_run_deadline" = past ] && [ "$(date +%s)" -ge "$nemo_run_kill_at" ]; then
        kill -KILL "${nemo_run_left[@]}" 2>/dev/null
    fi
    [ "${#nemo_run_left[@]}" -eq 0 ] || sleep 0.5
done
"""

_UNMONITORED = r"""
nemo_run_code=0
for pid in "${pids[@]}"; do
    nemo_run_wait "$pid"
    code=$?
    nemo_run_say "$pid" "$code"
    [ "$nemo_run_code" -ne 0 ] || nemo_run_code=$code
done
"""

_LATE = r"""
# A task that was asked to end may do so with 0, and was not done all the same.
if [ -e "$nemo_run_state/late$nemo_run_element" ] && [ "$nemo_run_code" -eq 0 ]; then
    nemo_run_code=124
fi
"""

_SINGLE = r"""
nemo_run_wait "${pids[0]}"
nemo_run_code=$?
"""


def batch_script(request: SlurmBatchRequest) -> str:
    """Return the whole script."""
    executor = request.executor
    count = len(request.command_groups)
    tolerance = request.launcher if isinstance(request.launcher, FaultTolerance) else None
    parts = [
        "#!/bin/bash",
        f"# Written by nemo_run, to be submitted with: {_shell.render(request.launch_cmd)}",
        *directives(request),
        "",
        _shell.assignment("nemo_run_dir", request.remote_dir),
        _shell.assignment("nemo_run_state", request.state_dir),
        *_key(request),
        _NUMBER,
        _START.strip("\n"),
        "",
        _shell.export("PYTHONUNBUFFERED", "1"),
        _shell.export("SLURM_UNBUFFEREDIO", "1"),
        _shell.export("TORCHX_MAX_RETRIES", str(request.max_retries)),
        _HEAD.rstrip("\n"),
        *_het_hosts(request),
        "",
    ]
    if request.extra_env:
        parts.append(f"nemo_run_environment {ENVIRONMENT} || {{ nemo_run_keep 78; exit 78; }}")
        if not request.may_come_back:
            parts.append(f'rm -f "$nemo_run_state"/{ENVIRONMENT}')
    parts.append('export HEAD_NODE_ADDR="${HEAD_NODE_ADDR:-$head_node_ip}"')
    if executor.setup_lines:
        parts += ["", _SETUP_BEGINS, executor.setup_lines.rstrip("\n"), _SETUP_ENDS.strip("\n")]
    if tolerance is not None:
        parts += ["", _slurm_fault_tolerance.at_start(tolerance)]
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
        parts += ['kill "$nemo_run_limiter" 2>/dev/null', _LATE.strip("\n")]
    parts.append("nemo_run_stop_watching")
    if tolerance is not None:
        parts.append(_slurm_fault_tolerance.AT_END)
    parts.append('nemo_run_end "$nemo_run_code"')
    return "\n".join(parts) + "\n"


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


def log_path(path: str, *, array: bool) -> str:
    """Return where srun writes, with the job's number left to the script's shell.

    srun's own pattern for it would give the number of the component of a heterogeneous job.
    """
    number = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" if array else "${SLURM_JOB_ID}"
    return path.replace(_RESTARTS, "${nemo_run_restart}").replace("%j", number)


def _step(request: SlurmBatchRequest, position: int) -> str:
    executor = request.executor
    details = request.details_of(position)
    array = bool(executor.array)
    path = log_path(request.rank_path(str(details.srun_stdout)), array=array)
    logs = request.tasks_of(position) if "%t" in path else 1
    lines = [f"{_shell.assignment(_LOG, path, _VARIABLE.findall(path))}"]
    options = ["srun"]
    if executor.heterogeneous and executor.run_as_group:
        options.append(f"--het-group={_het_index(request, position)}")
    options += ["--output", f"${_LOG}"]
    if not executor.stderr_to_stdout:
        path = log_path(request.rank_path(str(details.srun_stderr)), array=array)
        lines.append(_shell.assignment(_ERRORS, path, _VARIABLE.findall(path)))
        options += ["--error", f"${_ERRORS}"]
    container = request.container_of(position)
    options += container.srun_options()
    options += ["--wait=60", "--kill-on-bad-exit=1", *request.srun_args_of(position)]
    command = _shell.render(_program(request, position, container))
    srun = _shell.render(options, expand={_LOG, _ERRORS})
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
    for log in [_LOG] if executor.stderr_to_stdout else [_LOG, _ERRORS]:
        lines.append(f'nemo_run_watch "${log}" "$nemo_run_state/clock-{position}-" {logs}')
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
    expand = request.macro_names()
    used = {name for arg in argv for name in _VARIABLE.findall(arg)} & expand
    if used:
        # Each task has values of its own, so its own shell has to put them in.
        argv = ["sh", "-c", f"exec {_shell.render(argv, expand=used)}"]
    return container.wrapped(argv)


def _memory_step(request: SlurmBatchRequest) -> str:
    path = log_path(str(request.details_of(0).srun_stdout), array=bool(request.executor.array))
    log = _shell.assignment("nemo_run_memory_log", path, _VARIABLE.findall(path))
    argv = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--open-mode=append"]
    argv += ["--output", "$nemo_run_memory_log", "nvidia-smi", "--loop=10"]
    argv += ["--query-gpu=timestamp,index,memory.used,memory.total", "--format=csv"]
    # What becomes of it says nothing of the job.
    step = f"{_shell.render(argv, expand={'nemo_run_memory_log'})} 2>/dev/null &"
    return f"{log}\n{step}\nnemo_run_memory=$!"


def _waiting(request: SlurmBatchRequest) -> str:
    executor = request.executor
    if len(request.command_groups) == 1:
        return _SINGLE.strip("\n")
    if not executor.monitor_group_job:
        return _SAY.lstrip("\n") + _UNMONITORED.strip("\n")
    grace = max(0, executor.monitor_group_job_wait_time)
    return f"nemo_run_grace={grace}\n{_SAY.strip(chr(10))}\n{_MONITORED.strip(chr(10))}"
