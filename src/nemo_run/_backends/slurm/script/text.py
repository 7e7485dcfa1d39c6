"""The parts of a batch script that are the same for every job, as bash reads them."""

from __future__ import annotations

from nemo_run._backends.slurm.remote import STARTED

# By this number a process that lost sbatch's answer finds the job, also after Slurm forgot it.
NUMBER = f'echo "${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}" >"$nemo_run_state/{STARTED}"'

START = r"""
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

# The canceller ends a job's tasks first and then asks Slurm, whose word this waits for.
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
    # Elements of an array share their variables; and a job that was asked to end may start again.
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

# Read variables, unseen where the user's lines have turned on tracing.
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
    # A command in a value is not to see what this function was given.
    set --
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
    local size file rank sizes=() name=${1##*/}
    trap '' TERM
    # Of many not as often: they are on a file system that all share.
    until read -r -t $((1 + $3 / 64)) || [ $? -le 128 ]; do
        for ((rank = 0; rank < $3; rank++)); do
            file=${1%/*}/${name//%t/$rank}
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
    local rank file name
    for nemo_run_pipe in "${nemo_run_pipes[@]}"; do
        exec {nemo_run_pipe}>&-
    done
    set -- "${nemo_run_watched[@]}"
    while [ $# -gt 0 ]; do
        name=${1##*/}
        for ((rank = 0; rank < $3; rank++)); do
            file=${1%/*}/${name//%t/$rank}
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
SETUP_BEGINS = "trap 'nemo_run_code=$?; set +eu; nemo_run_end \"$nemo_run_code\"' EXIT"

# What follows looks at the codes of commands that may fail. A trap of the user's own stays.
SETUP_ENDS = r"""
set +eu
case "$(trap -p EXIT)" in *nemo_run_end*) trap - EXIT ;; esac
"""

HEAD = r"""
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

SAY = r"""
nemo_run_say() {
    local task
    for task in "${!pids[@]}"; do
        [ "${pids[$task]}" != "$1" ] || echo "nemo_run: task $task has ended with exit code $2"
    done
}
"""

MONITORED = r"""
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

UNMONITORED = r"""
nemo_run_code=0
for pid in "${pids[@]}"; do
    nemo_run_wait "$pid"
    code=$?
    nemo_run_say "$pid" "$code"
    [ "$nemo_run_code" -ne 0 ] || nemo_run_code=$code
done
"""

LATE = r"""
# A task that was asked to end may do so with 0, and was not done all the same.
if [ -e "$nemo_run_state/late$nemo_run_element" ] && [ "$nemo_run_code" -eq 0 ]; then
    nemo_run_code=124
fi
"""

SINGLE = r"""
nemo_run_wait "${pids[0]}"
nemo_run_code=$?
"""
