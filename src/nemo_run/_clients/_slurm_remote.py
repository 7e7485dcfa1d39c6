"""What runs on the cluster: short POSIX shell programs, each sent as one command.

They are made to be repeated: each says what it found or did, and a second one does nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nemo_run import _shell
from nemo_run._clients._slurm_answers import SACCT_FIELDS, SQUEUE_FIELDS

KEY = "NEMO_RUN_KEY"
"""Variable that takes a key to a job: the script seals with it what Slurm is not to know."""

STARTED = "started"
"""File in which a job's script writes the job's number as soon as it runs."""

MARK = "@nemo_run"
"""Starts every line that is ours: login scripts may print, too."""

BAD_STREAM = 65

TRANSIENT = (
    "timed out|Unable to contact slurm controller|Communication connection failure|"
    "Zero Bytes were transmitted|temporarily unable|Resource temporarily unavailable|"
    "Connection refused|Unexpected message received"
)
"""What Slurm's commands say when the controller did not answer: a pattern for Python and grep."""

_LOOKS = 25
"""How often to look, five times a second, whether tasks that were asked to end have ended."""

_ROWS = 4
"""How many jobs are submitted at once: a controller with much to do takes its time for each."""

_ANSWER = "answer"
"""File in which a submission says how it went, until all have."""

_READ_AT_ONCE = 500
"""With how many arguments log files are read; five for each."""

_STALE_MINUTES = 10
"""When a submission from another login node, of which no more was heard, counts as given up."""

# Print a file, each line marked as ours.
_SAY = rf"""
say() {{
    while IFS= read -r line || [ -n "$line" ]; do
        printf '{MARK} %s %s\n' "$1" "$line"
    done <"$2"
}}
"""

# Find a job by the directory of its submission: by what its script has written there when it
# started, or by Slurm, since the directory is part of the path of the script. Who knows nothing of
# submit lines may know of comments.
_FIND = rf"""
find_job() {{
    found=$(cat "$1/{STARTED}" 2>/dev/null)
    [ -z "$found" ] || return 0
    squeue -h -t all -u "$(id -un)" -O 'JobArrayID:80|,Command:4000' 2>"$1/find" >"$1/queue"
    answered=$?
    found=$(grep -F "$1/" "$1/queue" | sed -n '1s/[_+|].*//p' | tr -d ' ')
    for more in ,SubmitLine ''; do
        [ -z "$found" ] || break
        found=$(sacct -n -P -X -S now-8days -o "JobID,Comment$more" 2>/dev/null \
            | grep -F -e "${{1##*/}}" | sed -n '1s/[_+|].*//p')
    done
    rm -f "$1/queue"
    [ -n "$found" ] || return $answered
}}
"""

# sbatch may take the job and fail to say so; then the job is found by its directory.
_SUBMIT = (
    _FIND
    + _SAY
    + rf"""
trap '' HUP PIPE
host=$(hostname)
# Whether the controller itself has said no.
refused() {{
    grep -q 'submission failed: ' "$1" && ! grep -q -i -E '{TRANSIENT}' "$1"
}}
# What Slurm has told a job that we are part of is not meant for those that we submit.
leave_job() {{
    [ -z "${{SLURM_JOB_ID:-}}" ] || unset $(env | sed -n -e '/^SLURM_CONF=/d' \
        -e 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(SBATCH_[A-Z]*_BIND[A-Z_]*\)=.*/\1/p')
}}
# Make a file, which only one can.
claim() {{
    set -C
    true >"$1" || set -- ''
    set +C
    [ -n "$1" ]
}}
key=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
submit() {{
    echo '{MARK} begin'
    if [ ! -e "$1/ready" ]; then
        echo '{MARK} cut'
        return
    fi
    if [ -n "$2" ] && [ ! -s "$2" ]; then
        echo '{MARK} nocode'
        return
    fi
    if ! claim "$1/submitting" 2>/dev/null; then
        echo '{MARK} twice'
        return
    fi
    echo "$$ $host" >"$1/submitting"
    code=0
    if [ -n "$2" ]; then
        mkdir -p "$1/../../code" && tar -xzof "$2" -C "$1/../../code" 2>"$1/err"
        code=$?
    fi
    if [ $code -eq 0 ]; then
        (
            leave_job
            cd "$1/../.." && export {KEY}="$key" && . "$1/submit.sh"
        ) >"$1/out" 2>"$1/err" </dev/null
        code=$?
    fi
    found=
    if [ $code -ne 0 ] && ! refused "$1/err"; then
        sleep 1
        find_job "$1" && [ -n "$found" ] && echo "$found" >"$1/out" && code=0
    fi
    echo $code >"$1/code"
    echo "{MARK} done $code"
    say out "$1/out"
    say err "$1/err"
}}
"""
)

_ASK = (
    _FIND
    + rf"""
# Whoever submits may be at it still: its arguments name the directory.
at_it() {{
    read pid host 2>/dev/null <"$1/submitting" || host=
    if [ "$host" = "$(hostname)" ]; then
        tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q -F -e "${{1##*/}}"
    else
        [ -z "$(find "$1/submitting" -mmin +{_STALE_MINUTES} 2>/dev/null)" ]
    fi
}}
ask() {{
    waited=0
    # A program that it had started may go on for a moment when it was killed.
    while [ -e "$1/submitting" ] && [ ! -s "$1/code" ] && [ $waited -lt $2 ]; do
        if [ $waited -ge 15 ] && ! at_it "$1"; then
            break
        fi
        sleep 1
        waited=$((waited + 1))
    done
    if [ "$(cat "$1/code" 2>/dev/null)" = 0 ]; then
        echo "{MARK} done 0"
        sed 's/^/{MARK} out /' "$1/out"
        return
    fi
    if [ ! -e "$1/submitting" ]; then
        echo '{MARK} never'
        return
    fi
    found=
    if [ ! -s "$1/code" ] && at_it "$1"; then
        echo '{MARK} unknown'
        echo '{MARK} err it is still being submitted'
    elif ! find_job "$1"; then
        echo '{MARK} unknown'
        sed 's/^/{MARK} err /' "$1/find"
    elif [ -n "$found" ]; then
        echo "{MARK} done 0"
        echo "{MARK} out $found"
    else
        rm -f "$1/submitting" "$1/code" "$1/out" "$1/err"
        echo '{MARK} never'
    fi
}}
"""
)


def submit(jobs: Sequence[tuple[str, str]]) -> str:
    """Unpack a tar stream and submit what it brought, once for each of ``jobs``.

    These are the directory of a submission and the archive of its code, which may be empty.

    Answers, a block for each after a line ``begin``: ``done`` with the exit code and what sbatch
    said, ``cut`` where the stream ended too early, ``nocode`` where the archive has to be sent
    first, or ``twice`` where it was submitted before.
    """
    calls = [
        f"{_shell.render(['submit', path, archive])} >{_shell.render([f'{path}/{_ANSWER}'])}"
        for path, archive in jobs
    ]
    rows = [" ; ".join(calls[start::_ROWS]) for start in range(min(_ROWS, len(jobs)))]
    unpack = f"tar -xpof - -C / || exit {BAD_STREAM}"
    answers = _shell.render(["cat", *(f"{path}/{_ANSWER}" for path, _ in jobs)])
    return "\n".join(
        [_SUBMIT.strip("\n"), unpack, *(f"{{ {row}; }} &" for row in rows), "wait", answers]
    )


def ask(state_dir: str, patience_s: int) -> str:
    """Find out what became of a submission: ``done``, ``never``, or ``unknown``."""
    return "\n".join([_ASK.strip("\n"), _shell.render(["ask", state_dir, str(patience_s)])])


def queue(ids: Collection[str]) -> str:
    """Ask the controller for jobs."""
    argv = ["squeue", "-h", "-t", "all", "-j", ",".join(ids), "-O", SQUEUE_FIELDS]
    return f"SLURM_TIME_FORMAT=%s {_shell.render(argv)}"


# What it complains of is told apart from what it answers.
_ACCOUNTING = rf"""
{{{{ said=$(SLURM_TIME_FORMAT=%s {{sacct}} 2>&1 >&3); code=$?; }}}} 3>&1
printf '\n{MARK} accounting %s %s\n' $code "$(printf %s "$said" | tr '\n' ' ')"
"""


def history(ids: Collection[str], state_dirs: Sequence[str]) -> str:
    """Ask accounting for jobs, and look for what their scripts left behind.

    Jobs of other programs have an empty state directory, where nothing of ours is. The last line,
    ``accounting`` with an exit code and what was said, tells whether accounting has answered.
    """
    argv = ["sacct", "-n", "-P", "-X", "-j", ",".join(ids), "-o", SACCT_FIELDS]
    files = [
        f"for f in {_shell.render([path])}/exit* {_shell.render([path])}/cancelled; do "
        '[ ! -e "$f" ] '
        f'|| echo "{MARK} exit {number} ${{f##*/}} $(cat "$f")"; done'
        for number, path in enumerate(state_dirs)
        if path
    ]
    # Ours first, so that an accounting without an end of line does no harm.
    return "\n".join([*files, _ACCOUNTING.format(sacct=_shell.render(argv)).strip("\n")])


def cancel(job_id: str, state_dir: str, *, kill: bool, array: bool) -> str:
    """Ask Slurm to end a job, after leaving a note that we did; with ``kill`` without any grace.

    Its tasks are asked first: ending the whole job ends srun, too, and with it their last words.
    The script says when srun has written them; Slurm counts a step as over before that.
    """
    directory = _shell.render([state_dir])
    note = f"[ ! -d {directory} ] || : >{directory}/cancelled"
    queue = _shell.render(["squeue", "--steps", "-h", "-j", job_id, "-o", "%i"])
    steps = f"{queue} 2>/dev/null | grep -v '[a-z]'"
    ask = _shell.render(["scancel", "--signal=TERM", job_id])
    first = []
    if kill:
        first = [f"scancel --signal=KILL $({steps}) 2>/dev/null"]
    elif not array:  # whose next elements would start when the first have ended
        first = [
            f'ran="$({steps})"',
            # Of a job that has not started Slurm says "try again", which scancel does for a minute.
            f'[ -z "$ran" ] || {ask} 2>/dev/null',
            f'n=0; while [ -n "$ran" ] && [ $n -lt {_LOOKS} ] && [ ! -e {directory}/written ]; do '
            f'sleep 0.2; n=$((n + 1)); [ -d {directory} ] || ran="$({steps})"; done',
        ]
    return "\n".join([note, *first, _shell.render(["scancel", job_id])])


def forget_environment(state_dirs: Sequence[str]) -> str:
    """Remove the variables of jobs that do not come back."""
    return "\n".join(f"rm -f {_shell.render([path])}/env*" for path in state_dirs if path)


def read_logs(requests: Sequence[LogRequest]) -> str:
    """Print the files of each request, and what is in them after the bytes that are known."""
    lines = [_READ.strip("\n")]
    for number, request in enumerate(requests):
        known = "".join(
            f" {_shell.render([path])}) o={offset} ;;" for path, offset in request.offsets.items()
        )
        lines.append(
            f'for f in {request.pattern}; do [ -e "$f" ] || continue; o=0; '
            f'case "$f" in{known} *) ;; esac; '
            f'set -- "$@" {number} "$f" "$o" {request.limit} {request.last}; '
            # A shell takes the longer for each argument the more there are.
            f'[ $# -lt {_READ_AT_ONCE} ] || {{ read_all "$@"; set --; }}; done'
        )
    return "\n".join([*lines, 'read_all "$@"'])


# With few programs, since there may be many files: one tells the lengths of all, and what has not
# grown is not read. Base64, since what comes back may be any bytes, and passes through a login
# shell's terminal.
_READ = rf"""
read_log() {{
    if [ "$5" -gt 0 ] && [ "$3" -eq 0 ] && [ "$6" -gt "$5" ]; then
        set -- "$1" "$2" $(($6 - $5)) "$4" "$5" "$6"
    fi
    echo "{MARK} file $1 $3 $6 $2"
    if [ "$3" -eq 0 ] && [ "$6" -gt 0 ] && [ "$6" -le "$4" ]; then
        base64 "$2"
    elif [ "$6" -gt "$3" ]; then
        tail -c +$(($3 + 1)) "$2" | head -c "$4" | base64
    fi
}}
paths() {{
    while [ $# -gt 0 ]; do
        printf '%s\0' "$2"
        shift 5
    done
}}
lengths() {{
    while [ $# -gt 0 ]; do
        size=$(wc -c <"$2") || size=0
        echo $((size))
        shift 5
    done
}}
read_all() {{
    # A file that has gone away meanwhile would put the others out of step.
    sizes=$(paths "$@" | xargs -0 stat -L -c %s 2>/dev/null) || sizes=$(lengths "$@")
    for size in $sizes; do
        read_log "$1" "$2" "$3" "$4" "$5" "$size"
        shift 5
    done
}}
"""


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """Which files to read from where.

    Attributes:
        pattern: for the shell, quoted but for its wildcards.
        offsets: how many bytes of which file are known.
        limit: read at most this many bytes of each.
        last: start a file that is not known at most this many bytes before its end; 0 for all.
    """

    pattern: str
    offsets: Mapping[str, int] = field(default_factory=dict)
    limit: int = 1 << 22
    last: int = 0
