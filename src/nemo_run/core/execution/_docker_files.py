"""What a job on Docker keeps in its directory, and the script that its containers run.

``<job directory>/.nemo_run/<app id>`` has a directory for each container, which the container sees
as ``/nemo_run/.nemo_run/...``. What is in there outlives the container, the engine and us.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_run import _shell
from nemo_run._credentials import holds_secret
from nemo_run._files import read_whole, write_whole
from nemo_run.core.execution._docker_settings import RUNDIR

log = logging.getLogger(__name__)

STATE_DIR = ".nemo_run"
ENVIRONMENT = "environment"
START = "start.sh"

# The engine tells the first process of a container to end, and the kernel keeps a signal from a
# first process that does not expect it; so this one stays, and passes it on. `wait` returns early
# when a signal comes, so it is asked again; 127 is what it says of a command whose end it has told.
# Whether the command is still there says nothing: bash may have heard of its end meanwhile.
# The command leads a group of its own, all of which is told to end: a shell would not tell what it
# has started. Everything ends with the first process, so that one waits for the group.
# Output goes through a pipe and not into the file alone, so that `docker logs` has it too; whoever
# the job leaves in the background may hold the pipe open.
# The end of one try is forgotten before the next is counted, so that whoever reads the count first
# never takes the one's end for the other's.
_SCRIPT = """\
# Runs the command of a job, and keeps its output and its exit code beside this file.
here=${0%/*}
child= copier= asked= ending=
end() {
    ending=1
    kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
}
trap 'asked=1; touch "$here/asked" 2>/dev/null; [ -z "$child" ] || end' TERM INT HUP
if [ -e "$here/ENVIRONMENT" ]; then
    if [ ! -r "$here/ENVIRONMENT" ]; then
        echo "nemo_run: the user of this image may not read the variables of the job in" \\
            "$here/ENVIRONMENT. Set additional_kwargs={'user': ...} to who may." >&2
        exit 125
    fi
    . "$here/ENVIRONMENT"
fi
if (rm -f "$here/status" && echo started >>"$here/attempts" && : >>"$here/log") 2>/dev/null; then
    for place in /dev/shm /tmp "$here"; do
        pipe=$place/.nemo_run-NAME
        rm -f "$pipe" 2>/dev/null
        if mkfifo -m 600 "$pipe" 2>/dev/null; then
            tee -a "$here/log" <"$pipe" &
            copier=$!
            exec 3>"$pipe"
            rm -f "$pipe"
            break
        fi
    done
fi
[ -n "$copier" ] || exec 3>&1
if [ "$1" = bash ] && ! command -v bash >/dev/null 2>&1; then
    echo "nemo_run: this image has no bash, so sh runs the script" >&3
    shift
    set -- sh "$@"
fi
command -v setsid >/dev/null 2>&1 && set -- setsid "$@"
"$@" >&3 2>&3 3>&- </dev/null &
child=$!
exec 3>&-
[ -z "$asked" ] || end
wait "$child"
code=$?
while [ -n "$asked" ]; do
    asked=
    wait "$child" 2>/dev/null
    late=$?
    [ "$late" = 127 ] || code=$late
done
while [ -n "$ending" ] && kill -0 "-$child" 2>/dev/null; do
    sleep 0.1 2>/dev/null || sleep 1
done
if [ -n "$copier" ]; then
    (sleep 2; kill "$copier") >/dev/null 2>&1 &
    wait "$copier"
fi
{ printf '{"id": "%s", "exit_code": "%s"}\\n' JOB "$code" >"$here/status.new" &&
    mv "$here/status.new" "$here/status"; } 2>/dev/null
exit "$code"
"""


def start_script(job: str, name: str) -> str:
    """Return the script that runs, and outlives, the command it is given."""
    words = {
        "ENVIRONMENT": ENVIRONMENT,
        "JOB": _shell.render([job]),
        "NAME": f"{name}-{job[-8:]}",
    }
    # At once: a name may have such a word in it.
    return re.sub("|".join(words), lambda match: words[match[0]], _SCRIPT)


def seen_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that everybody may see who may ask the engine."""
    return {k: v for k, v in environment.items() if not holds_secret(k, v)}


@dataclass(frozen=True)
class JobFiles:
    """The files of one submission."""

    directory: Path

    @classmethod
    def of(cls, job_dir: str, job: str) -> JobFiles:
        return cls(Path(job_dir) / STATE_DIR / job)

    def member(self, name: str) -> MemberFiles:
        return MemberFiles(self.directory / name)

    @property
    def was_cancelled_at(self) -> float | None:
        """When somebody asked for the end of the job, if anybody did."""
        return _time_of(self.directory / "cancelled")

    def cancel(self) -> None:
        """Note that the job is to end; the first note counts."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (self.directory / "cancelled").touch(exist_ok=False)

    @property
    def was_given_up_at(self) -> float | None:
        """When the rest of a group was told to end, since one of it had failed."""
        return _time_of(self.directory / "given-up")

    def give_up(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (self.directory / "given-up").touch(exist_ok=False)

    def read_where(self) -> dict[str, str] | None:
        """Return how to find the containers of the job, if it was to have any."""
        return _read_json(self.directory / "where.json")

    def write_where(self, where: Mapping[str, str]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        _write_json(self.directory / "where.json", where)

    def read_outcome(self) -> dict[str, Any] | None:
        """Return how the job ended, if somebody saw it."""
        return _read_json(self.directory / "outcome.json")

    def write_outcome(self, outcome: Mapping[str, Any]) -> None:
        _write_json(self.directory / "outcome.json", outcome)


@dataclass(frozen=True)
class MemberFiles:
    """The files of one container."""

    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def clock(self) -> Path:
        """When how much had been written to the log."""
        return self.directory / "clock"

    def prepare(self, job: str, name: str, environment: Mapping[str, str]) -> list[str]:
        """Write what the container needs; return the command that starts it, without arguments."""
        self.directory.mkdir(parents=True, exist_ok=True)
        secret = {k: v for k, v in environment.items() if holds_secret(k, v)}
        if secret:
            lines = "".join(_shell.export(k, v) + "\n" for k, v in secret.items())
            write_whole(self.directory / ENVIRONMENT, lines.encode("utf-8", "surrogateescape"))
        write_whole(self.directory / START, start_script(job, name).encode(), mode=0o644)
        self.log.touch()  # so that it is ours, and not the container's user's
        job_dir = self.directory.parents[2]
        inside = f"{RUNDIR}/{self.directory.relative_to(job_dir).as_posix()}"
        (job_dir / "code").mkdir(exist_ok=True)
        for kind in ("log", "status"):
            _link(job_dir / f"{kind}_{name}.out", self.directory.relative_to(job_dir) / kind)
        return ["sh", f"{inside}/{START}"]

    @property
    def exit_code(self) -> int | None:
        return exit_code_in(self.directory / "status")

    @property
    def ended_at(self) -> float | None:
        return _time_of(self.directory / "status")

    @property
    def was_asked(self) -> bool:
        """Whether the container was told to end, as far as it could write that down."""
        return (self.directory / "asked").exists()

    @property
    def attempts(self) -> int:
        """How often the command was started, as far as the container could write it down."""
        try:
            return (self.directory / "attempts").read_text(errors="replace").count("\n")
        except OSError:
            return 0

    def forget_environment(self) -> None:
        (self.directory / ENVIRONMENT).unlink(missing_ok=True)


def exit_code_in(path: Path, job: str = "") -> int | None:
    """Return the exit code that a container left, or None if none of ``job`` has."""
    stored = _read_json(path)
    if stored is None or (job and stored.get("id") != job):
        return None
    try:
        return int(stored["exit_code"])
    except (KeyError, TypeError, ValueError):
        return None


def _link(path: Path, target: Path) -> None:
    """Have the files of the latest submission where 0.12 has them."""
    try:
        if path.is_symlink():
            path.unlink()
        path.symlink_to(target)
    except OSError as err:
        log.debug("no link %s: %s", path, err)


def _time_of(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _read_json(path: Path) -> dict[str, Any] | None:
    data = read_whole(path)
    try:
        found = None if data is None else json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_whole(path, (json.dumps(values, indent=2) + "\n").encode())
