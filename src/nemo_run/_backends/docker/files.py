"""What a job on Docker keeps in its directory, and the script that its containers run.

``<job directory>/.nemo_run/<app id>`` has a directory for each container, which the container sees
as ``/nemo_run/.nemo_run/...``. What is in there outlives the container, the engine and us. The job
can write it, so it is used as `foreign` files are. What only we may write is in
``.docker/<app id>`` beside the job directory, where no container comes.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from nemo_run import _shell
from nemo_run._backends.docker.settings import RUNDIR
from nemo_run._files import PRIVATE_FILE, make_private_directory, write_whole
from nemo_run._jobs import foreign
from nemo_run._secrets.masking import holds_secret

log = logging.getLogger(__name__)

STATE_DIR = ".nemo_run"
KEPT_DIR = ".docker"
ENVIRONMENT = "environment"
START = "start.sh"
_ENDS = ("SUCCEEDED", "FAILED", "CANCELLED")

# The engine tells the first process of a container to end, and the kernel keeps a signal from a
# first process that does not expect it; so this one stays, and passes it on. `wait` returns early
# when a signal comes, so it is asked again; 127 is what it says of a command whose end it has told.
# Whether the command is still there says nothing: bash may have heard of its end meanwhile.
# The command leads a group of its own, all of which is told to end: a shell would not tell what it
# has started. Everything ends with the first process, so that one waits for the group.
# Output goes through a pipe and not into the file alone, so `docker logs` has it too; a process
# that the job leaves in the background may hold the pipe open.
# The end of one try is forgotten before the next is counted, so that a process that reads the count
# first never takes the one's end for the other's.
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
    """Return the variables that every user of the engine may see."""
    return {k: v for k, v in environment.items() if not holds_secret(k, v)}


@dataclass(frozen=True)
class JobFiles:
    """The files of one submission."""

    directory: Path
    """Below the directory of the job, where its containers can write."""

    @classmethod
    def of(cls, job_dir: str, job: str) -> JobFiles:
        return cls(Path(job_dir) / STATE_DIR / job)

    @property
    def job_dir(self) -> Path:
        return self.directory.parents[1]

    @property
    def kept(self) -> Path:
        """What we alone write, beside the directory of the job, which no container sees."""
        return self.job_dir.parent / KEPT_DIR / self.directory.name

    def member(self, name: str) -> MemberFiles:
        return MemberFiles(self.directory / name, self.job_dir, self.kept / name)

    @property
    def was_cancelled_at(self) -> float | None:
        """When a user asked for the end of the job; None if none did."""
        return self._marked_at("cancelled")

    def cancel(self) -> None:
        """Note that the job is to end; the first note counts."""
        self._mark("cancelled")

    @property
    def was_given_up_at(self) -> float | None:
        """When the rest of a group was told to end, since one of it had failed."""
        return self._marked_at("given-up")

    def give_up(self) -> None:
        self._mark("given-up")

    def _mark(self, name: str) -> None:
        make_private_directory(self.kept)
        with suppress(FileExistsError):
            (self.kept / name).touch(exist_ok=False)

    def _marked_at(self, name: str) -> float | None:
        marked_at = foreign.written_at(self.kept / name)
        if marked_at is None and self._is_old:
            return foreign.written_at(self.directory / name, self.job_dir)
        return marked_at

    @property
    def _is_old(self) -> bool:
        """Whether an earlier release made the job, and kept all files where containers write."""
        return not (self.kept / "where.json").exists()

    def read_where(self) -> dict[str, str] | None:
        """Return how to find the containers of the job, if it was to have any."""
        where = _read_json(self.kept / "where.json")
        if where is None:
            where = _read_json(self.directory / "where.json", self.job_dir)
        is_whole = where is not None and {"state_dir", "containers"} <= where.keys()
        return {k: str(v) for k, v in where.items()} if where and is_whole else None

    def write_where(self, where: Mapping[str, str]) -> None:
        make_private_directory(self.kept)
        old = self.read_old_outcome()
        if old is not None:  # else a job that has ended would be started again
            self.write_outcome(old)
        _write_json(self.kept / "where.json", where)

    def read_outcome(self) -> dict[str, Any] | None:
        """Return how the job ended, if a process of ours saw it."""
        return _read_json(self.kept / "outcome.json")

    def read_old_outcome(self) -> dict[str, Any] | None:
        """Return what an earlier release left, where containers write; ask the engine first."""
        if not self._is_old:
            return None
        outcome = _read_json(self.directory / "outcome.json", self.job_dir)
        return outcome if outcome and outcome.get("state") in _ENDS else None

    def write_outcome(self, outcome: Mapping[str, Any]) -> None:
        make_private_directory(self.kept)
        _write_json(self.kept / "outcome.json", outcome)


@dataclass(frozen=True)
class MemberFiles:
    """The files of one container; it can write all of ``directory``, and nothing of ``kept``."""

    directory: Path
    job_dir: Path
    kept: Path

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def clock(self) -> Path:
        """When how much had been written to the log."""
        ours = self.kept.with_name(f"{self.kept.name}.clock")
        old = self.directory / "clock"
        return old if foreign.file_size(old, self.job_dir) and not ours.exists() else ours

    def write_clock(self, text: str) -> None:
        make_private_directory(self.kept.parent)
        write_whole(self.kept.with_name(f"{self.kept.name}.clock"), text.encode(), sync=False)

    def prepare(self, job: str, name: str, environment: Mapping[str, str]) -> list[str]:
        """Write what the container needs; return the command that starts it, without arguments."""
        secret = {k: v for k, v in environment.items() if holds_secret(k, v)}
        if secret:
            lines = "".join(_shell.export(k, v) + "\n" for k, v in secret.items())
            self._write(ENVIRONMENT, lines.encode("utf-8", "surrogateescape"))
        self._write(START, start_script(job, name).encode(), mode=0o644)
        # So that it is ours, and not the container's user's.
        log_file = foreign.open_file(self.log, self.job_dir, flags=os.O_RDONLY | os.O_CREAT)
        if log_file is not None:
            os.close(log_file)
        inside = f"{RUNDIR}/{self.directory.relative_to(self.job_dir).as_posix()}"
        (self.job_dir / "code").mkdir(exist_ok=True)
        for kind in ("log", "status"):
            target = self.directory.relative_to(self.job_dir) / kind
            _link(self.job_dir / f"{kind}_{name}.out", target)
        return ["sh", f"{inside}/{START}"]

    def _write(self, name: str, data: bytes, mode: int = PRIVATE_FILE) -> None:
        foreign.write_file(self.directory / name, self.job_dir, data, mode=mode)

    @property
    def exit_code(self) -> int | None:
        return exit_code_in(self.directory / "status", self.job_dir)

    @property
    def ended_at(self) -> float | None:
        return foreign.written_at(self.directory / "status", self.job_dir)

    @property
    def log_size(self) -> int:
        return foreign.file_size(self.log, self.job_dir)

    def empty_log(self) -> BinaryIO | None:
        """Open the log to write it; None where it is not the empty file that `prepare` made."""
        descriptor = foreign.open_file(self.log, self.job_dir, flags=os.O_WRONLY)
        if descriptor is None:
            return None
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and found.st_nlink == 1 and not found.st_size:
            return os.fdopen(descriptor, "wb")
        os.close(descriptor)
        return None

    @property
    def was_asked(self) -> bool:
        """Whether the container was told to end, as far as it could write that down."""
        return foreign.written_at(self.directory / "asked", self.job_dir) is not None

    @property
    def attempts(self) -> int:
        """How often the command was started, as far as the container could write it down."""
        return (foreign.read_file(self.directory / "attempts", self.job_dir) or b"").count(b"\n")

    def forget_environment(self) -> None:
        foreign.remove_file(self.directory / ENVIRONMENT, self.job_dir)


def exit_code_in(path: Path, root: Path, job: str = "") -> int | None:
    """Return the exit code that a container left, or None if none of ``job`` has."""
    stored = _read_json(path, root)
    if stored is None or (job and stored.get("id") != job):
        return None
    code = re.fullmatch(r"-?[0-9]{1,3}", str(stored.get("exit_code", "")))
    return int(code[0]) if code else None


def _link(path: Path, target: Path) -> None:
    """Have the files of the latest submission where 0.12 has them."""
    try:
        if path.is_symlink():
            path.unlink()
        path.symlink_to(target)
    except OSError as err:
        log.debug("no link %s: %s", path, err)


def _read_json(path: Path, root: Path | None = None) -> dict[str, Any] | None:
    data = foreign.read_file(path, root)
    try:
        found = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_whole(path, (json.dumps(values, indent=2) + "\n").encode())
