"""The shell script that every pod of a TrainJob runs, and what it leaves for us to read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_run import _shell
from nemo_run._backends.kubeflow.manifests import FILES_KEY, JOB_PATH, RUNDIR

STATE_DIR = ".nemo_run"

_MARK = "Holds its environment: not for others to read."
_HEAD = f"""\
#!/bin/bash
# Runs {{name}} on Kubernetes. {_MARK}
"""

# Only root can make the link. Nothing of ours needs it, but a task may name files by it.
_ON_VOLUME = f"""\
dir={{dir}}
[ -e {RUNDIR} ] || ln -s "$dir" {RUNDIR} 2>/dev/null
"""

# The files came with the job. The directory is empty again in each new pod.
_IN_POD = f"""\
dir={RUNDIR}
[ -e "$dir/{STATE_DIR}" ] || tar -xzof {JOB_PATH}/{FILES_KEY} -C "$dir" || exit 125
"""

# Kubernetes starts a container that failed again, as often as the cluster's runtime says, in a new
# container with a log of its own. How often the task is run is for us to say, so what is done is
# written down where the next container finds it, and so is the log: each begins with all there was.
_PLACE = f"""\
rank=${{{{JOB_COMPLETION_INDEX:-0}}}}
state="$dir/{STATE_DIR}/{{name}}"
mkdir -p "$state" "$dir/code" && cd "$dir/code" || exit 125
log="$state/log-$rank.out" tries=0 code=137
[ ! -s "$log" ] || cat "$log"
finish() {{{{
  end="$state/end-$rank"
  echo "$code $tries{{mark}}" > "$end.part" && mv "$end.part" "$end"
  lines=$([ ! -f "$log" ] || head -c 100000000 "$log" | wc -l)
  echo "nemo_run{{mark}}: exit_code=$code attempts=$tries lines=$((lines))" > /dev/termination-log
  exit "$code"
}}}} 2>/dev/null
[ ! -s "$state/tries-$rank" ] || read -r tries < "$state/tries-$rank"
[ ! -s "$state/end-$rank" ] || {{{{ read -r code tries _ < "$state/end-$rank"; finish; }}}}
[ "$tries" -le {{retries}} ] || finish
"""

# The pod tells this shell alone to end, so the task has to be told: all of its process group, for
# a shell would not tell the program it waits for. What this shell has to say about a task that was
# killed is nothing that the task printed. Whatever the task leaves running may hold the pipe open:
# it is not waited for. A task that was told to end has not failed: it may be run elsewhere.
_RUN = """\
exec 4> >(exec tee -a -i -- "$log")
tee=$!
set -m
exec 2>/dev/null
child= told= stopped=
trap 'told=1 stopped=1; [ -z "$child" ] || kill -TERM -- "-$child"' TERM INT
while :; do
  tries=$((tries + 1))
  echo "$tries" > "$state/tries-$rank"
  {command} </dev/null >&4 2>&4 4>&- &
  child=$!
  [ -z "$stopped" ] || kill -TERM -- "-$child"
  wait "$child"; code=$?
  while [ "$told" ]; do
    told=
    wait "$child"; again=$?
    [ "$again" = 127 ] || code=$again
  done
  child=
  [ "$code" != 0 ] && [ -z "$stopped" ] && [ "$tries" -le {retries} ] || break
done
exec 4>&-
(sleep 5; kill "$tee") >/dev/null 2>&1 &
wait "$tee"
[ "$stopped" ] || finish
echo "$((tries - 1))" > "$state/tries-$rank"
exit "$code"
"""


def render(
    argv: Sequence[str],
    *,
    name: str,
    place: str,
    env: Mapping[str, str],
    retries: int = 0,
    expand: Collection[str] = (),
    before: str = "",
    nonce: str = "",
) -> str:
    """Return the script that runs ``argv`` in ``place``, a directory on the work volume.

    Without one it is a directory of the pod, and the job's files come with the script. The
    variables in ``expand`` are those of the pod. ``before`` is shell text that runs first.
    ``nonce`` is in what the script leaves, so that no text of the task is taken for it.

    1. The task gets its arguments and environment as they are given here.
    2. It is run once more for each of ``retries`` that fails, and never after that, however
       often the script is started.
    3. The script ends with the task's exit code, and tells the task when the pod is to end.

    Raises:
        ConfigError: no shell can pass that on.
    """
    variables = {"PYTHONUNBUFFERED": "1", "TORCHX_MAX_RETRIES": str(retries), **env}
    exports = [_shell.export(key, value, expand) for key, value in variables.items()]
    title = name.encode("unicode_escape").decode()  # a comment ends with its line
    return "".join(
        [
            _HEAD.format(name=title),
            before,
            *(f"{line}\n" for line in exports),
            _ON_VOLUME.format(dir=_shell.render([place])) if place else _IN_POD,
            _PLACE.format(name=name, retries=retries, mark=f" {nonce}" if nonce else ""),
            _RUN.format(command=_shell.render(argv, expand), retries=retries),
        ]
    )


def is_script(path: Path) -> bool:
    """Tell whether a file is such a script, and not one of the user's that is called the same."""
    try:
        with path.open(errors="replace") as file:
            return _MARK in file.read(1000)
    except OSError:
        return False


# A task can write both itself: no more digits are read than a code or a count can have.
_MESSAGE = (
    r"nemo_run{mark}: exit_code=([0-9]{{1,3}}) attempts=([0-9]{{1,9}}) lines=([0-9]{{1,15}})\s*"
)
_FILE = r"([0-9]{{1,3}}) ([0-9]{{1,9}}){mark}\s*"


def _read(pattern: str, nonce: str, text: str) -> list[int] | None:
    mark = f" {re.escape(nonce)}" if nonce else ""
    match = re.fullmatch(pattern.format(mark=mark), text)
    return list(map(int, match.groups())) if match else None


@dataclass(frozen=True)
class Outcome:
    """How the task ended in one pod, for good, and how many whole lines it had printed by then."""

    exit_code: int
    attempts: int
    lines: int = 0

    @classmethod
    def from_message(cls, text: str, nonce: str = "") -> Outcome | None:
        """Read what the script leaves as the termination message of its container.

        Scripts of earlier releases have no ``nonce``. A text with more in it is not the script's:
        Kubernetes takes the last lines of a log where a container left no message.
        """
        found = _read(_MESSAGE, nonce, text)
        return cls(*found) if found else None

    @classmethod
    def from_file(cls, text: str, nonce: str = "") -> Outcome | None:
        """Read what the script leaves in a file."""
        found = _read(_FILE, nonce, text)
        return cls(*found) if found else None
