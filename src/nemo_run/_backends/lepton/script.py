"""What runs in a Lepton container before, around and after the user's command."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from nemo_run import _shell

WHERE_NODES_MEET = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES")
"""Variables that the set-up below provides and that arguments may contain."""

MARK_LABEL = "nemo-run-mark"
"""Of a job whose marks have a nonce: that."""

JOB_NAME_LENGTH = 36
RUNDIR = "/nemo_run"

_NOT_NAME = re.compile(r"[^a-z0-9]+")
_HASH_LENGTH = 10

# From the variables that Lepton sets in every container of a job:
# https://docs.nvidia.com/dgx-cloud/lepton/features/batch-jobs/predefined-env-vars
_FIND_OTHER_NODES = """\
: "${NNODES:=${LEPTON_JOB_TOTAL_WORKERS:-1}}"
: "${NODE_RANK:=${LEPTON_JOB_WORKER_INDEX:-0}}"
: "${MASTER_PORT:=29400}"
if [ "$NNODES" -gt 1 ]; then
    first=${LEPTON_JOB_SERVICE_PREFIX:-${LEPTON_JOB_WORKER_PREFIX:-$LEPTON_JOB_NAME}}-0
    : "${MASTER_ADDR:=$first.${LEPTON_SUBDOMAIN:-$LEPTON_JOB_NAME-job-svc}}"
else
    : "${MASTER_ADDR:=localhost}"
fi
export NNODES NODE_RANK MASTER_ADDR MASTER_PORT
"""

# The platform tells the first process of a container to end, and a shell that waits for a program
# would keep that to itself. `wait` returns early when a signal comes, so it is asked again.
_RUN = """\
{command} &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    code=$?
done
"""


def job_name(name: str, tag: str) -> str:
    """Return a name that Lepton takes and that no other job has: ``name``, shortened, and a hash.

    The same name and tag give the same name again.
    """
    digest = hashlib.sha256(f"{name}\0{tag}".encode("utf-8", "surrogatepass")).hexdigest()
    start = _NOT_NAME.sub("-", name.lower()).strip("-")
    if not start[:1].isalpha():
        start = f"job-{start}".strip("-")
    start = start[: JOB_NAME_LENGTH - _HASH_LENGTH - 1].rstrip("-")
    return f"{start}-{digest[:_HASH_LENGTH]}"


def launch_script(
    command: Sequence[str],
    *,
    job_id: str,
    job_dir: str,
    before: Sequence[str] = (),
    nonce: str = "",
) -> str:
    """Return the script that every container of a job runs.

    ``nonce`` is in the mark at the end of the log, which the task does not know it by.
    ``before`` are shell commands of the user's, run first, whose failure does not stop the job.
    """
    link = _shell.render(["ln", "-sfn", job_dir, RUNDIR])
    return "\n".join(
        [
            "#!/bin/bash",
            *before,
            _FIND_OTHER_NODES,
            f"{link} && mkdir -p {RUNDIR}/code && cd {RUNDIR}/code || exit 125",
            _RUN.format(command=_shell.render(command, expand=WHERE_NODES_MEET)),
            # Lepton does not tell how a program ended, so the log does.
            f'echo "[{_words(job_id, nonce)} '
            '${LEPTON_JOB_FAILURE_COUNT:-0} with exit code $code]"',
            "exit $code",
            "",
        ]
    )


class ExitMark:
    """How the last line of a replica's log ends: with attempt and exit code.

    ``words`` are in every mark of the job. Jobs of earlier releases have no ``nonce``; of one that
    has, lines without it are the task's own text.
    """

    def __init__(self, job_id: str, nonce: str = "") -> None:
        self.words = _words(job_id, nonce)
        text = rf"\[{re.escape(self.words)} ([0-9]{{1,9}}) with exit code ([0-9]{{1,3}})\]\n?$"
        self._pattern = re.compile(text)

    def end(self, line: str) -> tuple[int, int] | None:
        """Return attempt and exit code, or None where ``line`` has no mark."""
        match = self._pattern.search(line)
        return (int(match[1]), int(match[2])) if match else None

    def strip(self, line: str) -> str:
        """Return a line as the program wrote it; empty for one that was only the mark."""
        return self._pattern.sub("", line)


def _words(job_id: str, nonce: str) -> str:
    return f"nemo_run {job_id}{' ' if nonce else ''}{nonce} ended attempt"
