"""The shell script that a Run:ai workload runs in each of its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nemo_run import _shell
from nemo_run.core.execution.launcher import FaultTolerance

RUNDIR = "/nemo_run"

_HEAD = """\
#!/bin/bash
# Runs {name} on DGX Cloud. Holds its environment: not for others to read.
"""

# The host name of a worker ends in its number; that of a single pod in anything.
_RANK = 'export GROUP_RANK="${HOSTNAME##*[!0-9]}"'
_ONLY = "export GROUP_RANK=0"

# Only root can make the link. Nothing of ours needs it, but a task may name files by it.
_PLACE = f"""\
dir={{dir}}
[ -e {RUNDIR} ] || ln -s "$dir" {RUNDIR} 2>/dev/null
mkdir -p "$dir/logs"
cd "$dir/code" 2>/dev/null || cd "$dir" || exit 1
"""

_RESUME = """\
if [ -f "$FAULT_TOL_FINISHED_FLAG_FILE" ] && [ -f {results} ]; then exit 0; fi
rm -f "$FAULT_TOL_FINISHED_FLAG_FILE" {results}
"""

# What the task prints goes to the log of the pod, which is gone with it, and to the volume. The
# pod tells this shell alone to end, so the task has to be told: all of its process group, for a
# shell would not tell the program it waits for. What this shell has to say about a task that was
# killed is nothing that the task printed. Whatever the task leaves running may hold the pipe open:
# it is not waited for. The number of lines tells a reader of the pod's log whether it has them all.
_RUN = """\
printed() {{
  log="$dir/log_$HOSTNAME.out"
  [ ! -f "$log" ] || head -c 100000000 "$log" 2>/dev/null | wc -l
}}
before=$(printed)
exec 4> >(exec tee -a -i -- "$dir/log_$HOSTNAME.out" "$dir/log-allranks_0.out")
tee=$!
set -m
{command} </dev/null >&4 2>&4 4>&- &
child=$! told=
exec 2>/dev/null
trap 'told=1; kill -TERM -- "-$child" 2>/dev/null' TERM INT
wait "$child"; code=$?
while [ "$told" ]; do
  told=
  wait "$child" 2>/dev/null; again=$?
  [ "$again" = 127 ] || code=$again
done
exec 4>&-
(sleep 5; kill "$tee") >/dev/null 2>&1 &
wait "$tee"
echo "nemo_run: lines=$(($(printed) - before))" > /dev/termination-log
exit "$code"
"""


def render(
    argv: Sequence[str],
    *,
    name: str,
    directory: str,
    env: Mapping[str, str],
    nodes: int = 1,
    max_retries: int = 0,
    fault_tolerance: FaultTolerance | None = None,
) -> str:
    """Return the script that runs ``argv`` in the job's ``directory`` on the volume.

    1. The task gets its arguments and environment as they are given here.
    2. The script ends with the task's exit code.
    3. It tells the task when the pod is to end.

    Raises:
        ConfigError: no shell can pass that on.
    """
    variables = {"PYTHONUNBUFFERED": "1", "TORCHX_MAX_RETRIES": str(max_retries), **env}
    exports = [_shell.export(key, value) for key, value in variables.items()]
    place = _PLACE.format(dir=_shell.render([directory]))
    title = name.encode("unicode_escape").decode()  # a comment ends with its line
    parts = [
        _HEAD.format(name=title),
        *(f"{line}\n" for line in exports),
        f"{_RANK if nodes > 1 else _ONLY}\n",
        place,
    ]
    if fault_tolerance is not None:
        parts.append(launcher_lines(fault_tolerance))
    parts.append(_RUN.format(command=_shell.render(argv)))
    return "".join(parts)


def launcher_lines(launcher: FaultTolerance) -> str:
    """Return what tells the launcher where its files are, and ends a job that was done before."""
    variables = {
        "FAULT_TOL_CFG_PATH": launcher.cfg_path,
        "FAULT_TOL_FINISHED_FLAG_FILE": launcher.finished_flag_file,
    }
    exports = "".join(f"{_shell.export(key, value)}\n" for key, value in variables.items())
    return exports + _RESUME.format(results=_shell.render([launcher.job_results_file]))
