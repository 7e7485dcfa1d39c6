"""What runs on the cluster: short POSIX shell programs, each sent as one command.

They are made to be repeated: each says what it found or did, and a second one does nothing twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from nemo_run import _shell
from nemo_run._backends.slurm.answers import SACCT_FIELDS, SQUEUE_FIELDS
from nemo_run.core.packaging._delivery import remove_unless_intact
from nemo_run.exceptions import BackendUnavailableError

BACKEND = "slurm_tunnel"
TIMEOUT_S = 120.0

KEY = "NEMO_RUN_KEY"
"""Variable that takes a key to a job: the script seals with it what Slurm is not to know."""

STARTED = "started"
"""File in which a job's script writes the job's number as soon as it runs."""

MARK = f"@nemo_run-{os.urandom(8).hex()}"
"""Starts every line that is ours: login scripts may print, too.

It is another one in each process, so that no job, and no program that prints what jobs are called,
knows it.
"""

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

_HASHED = re.compile(r"/[0-9a-f]{64}\.tar\.gz$")
"""How archives end that were brought to the cluster; those of this machine have other names."""

_STALE_MINUTES = 10
"""When a submission from another login node, of which no more was heard, counts as given up."""


@dataclass(frozen=True)
class Answer:
    """What a remote command said."""

    code: int
    out: str
    err: str


class Shell(Protocol):
    """Runs one command of a POSIX shell where Slurm's commands are.

    Raises:
        BackendUnavailableError: it could not be reached, or the connection broke; then the
            command may have run.
    """

    def __call__(self, command: str, stdin: bytes, timeout_s: float) -> Answer: ...

    def send(self, local: Path, remote: str) -> None:
        """Copy a file of any size there, whole or not at all."""


def unavailable(operation: str, said: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"Slurm could not be asked to {operation}: {said.strip() or 'no answer'}",
        backend=BACKEND,
        operation=operation,
        detail=said,
    )


def ours(out: str) -> list[str]:
    """Return the lines that our own programs printed."""
    mark = f"{MARK} "
    return [line.removeprefix(mark) for line in out.split("\n") if line.startswith(mark)]


def blocks(out: str) -> list[list[str]]:
    blocks: list[list[str]] = []
    for line in ours(out):
        if line == "begin":
            blocks.append([])
        elif blocks:
            blocks[-1].append(line)
    return blocks


# Print a file, each line marked as ours.
_SAY = rf"""
say() {{
    while IFS= read -r line || [ -n "$line" ]; do
        printf '{MARK} %s %s\n' "$1" "$line"
    done <"$2"
}}
"""

# Print a file that a job may have replaced: not what a link leads to, a FIFO without a writer, or
# bytes without end.
_SMALL = r"""
small() {
    [ ! -f "$1" ] || [ -L "$1" ] || head -c 4096 "$1"
} 2>/dev/null
"""

# Find a job by the directory of its submission: by what its script has written there when it
# started, or by Slurm, since the directory is part of the path of the script. A sacct
# that knows no submit lines may know comments.
_FIND = (
    _SMALL
    + rf"""
find_job() {{
    found=$(small "$1/{STARTED}" | sed -n '1s/[^0-9].*//; 1p')
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
)

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
# The submitting shell may still run: its arguments name the directory.
at_it() {{
    host=$(small "$1/submitting" | head -n 1)
    pid=${{host%% *}} host=${{host#* }}
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
    if [ "$(small "$1/code")" = 0 ]; then
        echo "{MARK} done 0"
        small "$1/out" | sed 's/^/{MARK} out /'
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
    # Of several processes that unpack at once, one tar fails for a directory above that another
    # makes at the same moment; mkdir does not.
    above = sorted({str(PurePosixPath(path).parents[2]) for path, _ in jobs})
    unpack = f"{_shell.render(['mkdir', '-p', *above])}; tar -xpof - -C / || exit {BAD_STREAM}"
    # Code may have been changed since it was sent: one that was is sent again.
    archives = sorted({archive for _, archive in jobs if _HASHED.search(archive)})
    checks = [remove_unless_intact(archive) for archive in archives]
    answers = _shell.render(["cat", *(f"{path}/{_ANSWER}" for path, _ in jobs)])
    return "\n".join(
        [
            _SUBMIT.strip("\n"),
            unpack,
            *checks,
            *(f"{{ {row}; }} &" for row in rows),
            "wait",
            answers,
        ]
    )


def ask(state_dir: str, patience_s: int) -> str:
    """Find out what became of a submission: ``done``, ``never``, or ``unknown``."""
    return "\n".join([_ASK.strip("\n"), _shell.render(["ask", state_dir, str(patience_s)])])


def queue(ids: Collection[str]) -> str:
    """Ask the controller for jobs."""
    argv = ["squeue", "-h", "-t", "all", "-j", ",".join(ids), "-O", SQUEUE_FIELDS]
    return f"SLURM_TIME_FORMAT=%s {_shell.render(argv)}"


# A job can write these files, and may want another's end to be believed: what comes back has no
# line ends and no signs but those of numbers, and files with other names say nothing.
_LEFT = (
    _SMALL
    + rf"""
left() {{
    for f in "$2"/exit "$2"/exit-* "$2"/cancelled; do
        case "${{f##*/}}" in exit-|exit-*[!0-9]*) continue ;; esac
        [ -e "$f" ] || continue
        numbers=$(small "$f" | head -c 200 | tr -c '0-9-' ' ')
        echo "{MARK} exit $1 ${{f##*/}} $numbers"
    done
}}
"""
)

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
        _shell.render(["left", str(number), path]) for number, path in enumerate(state_dirs) if path
    ]
    # Ours first, so that an accounting without an end of line does no harm.
    return "\n".join(
        [_LEFT.strip("\n"), *files, _ACCOUNTING.format(sacct=_shell.render(argv)).strip("\n")]
    )


def cancel(job_id: str, state_dir: str, *, kill: bool, array: bool) -> str:
    """Ask Slurm to end a job, after leaving a note that we did; with ``kill`` without any grace.

    Its tasks are asked first: ending the whole job ends srun, too, and with it their last words.
    The script says when srun has written them; Slurm counts a step as over before that.
    """
    directory = _shell.render([state_dir])
    # A job may have put a FIFO there, which a redirection would wait for.
    note = (
        f"[ ! -d {directory} ] || {{ [ -f {directory}/cancelled ] || rm -rf {directory}/cancelled; "
        f"touch {directory}/cancelled; }}"
    )
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
