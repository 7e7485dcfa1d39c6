"""Runs a task on a Ray cluster: its command, again if it fails, and nothing is left behind.

Sent with each job and run by the Python of the cluster, so it uses the standard library alone. Ray
starts it in a directory that holds the code, and beside it, in one of ours, what is here.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

JOB_FILE = "job.sealed"
KEY = "nemo_run_key"
"""Of the job's metadata: what opens the file. Each alone tells nothing."""
CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable by which Ray hands metadata to a job."""
LEFT_S = 2.0
"""How long processes that a task has left may take to end."""
# Ray kills what has not ended so long after it was asked to.
KILLED_AFTER_S = float(os.environ.get("RAY_JOB_STOP_WAIT_TIME_S") or 3)


class Driver:
    """One job on this node."""

    def __init__(self, directory: Path, job: dict[str, Any]) -> None:
        self._directory = directory
        self._rundir = re.compile(job["rundir"])
        self._argv = [self._filled(part) for part in job["argv"]]
        self._env = {**os.environ, **{k: self._filled(v) for k, v in job["env"].items()}}
        self._programs = job["programs"]
        self._tries = job["retries"] + 1
        self._mark = f"[nemo_run {job['nonce']} %s]\n"
        self._stopped = False

    def _filled(self, part: list[str | bool]) -> str:
        """Return a text; with a true beside it, ``/nemo_run`` in it stands for our directory."""
        text, fill = str(part[0]), part[1]
        return self._rundir.sub(lambda _: str(self._directory), text) if fill else text

    def lay_out(self, links: dict[str, str]) -> None:
        """Make the links that the package could not hold, and name our directory in scripts."""
        code = self._directory.parent
        for name in self._programs:  # earlier releases of Ray unpack without modes
            with contextlib.suppress(OSError):
                (code / name).chmod((code / name).stat().st_mode | 0o111)
        for name, target in {**links, f"{self._directory.name}/code": ".."}.items():
            with contextlib.suppress(OSError):
                (code / name).symlink_to(target)
        for script in (self._directory / "scripts").glob("*"):
            text = script.read_bytes().decode("utf-8", "surrogateescape")
            filled = self._filled([text, True])
            script.write_bytes(filled.encode("utf-8", "surrogateescape"))

    def run(self) -> int:
        """Run the task until it succeeds or has no tries left; return its exit code."""
        _adopt_orphans()
        for asked in (signal.SIGTERM, signal.SIGINT):
            signal.signal(asked, self._ask)
        signal.signal(signal.SIGALRM, lambda *_: _signal_all(signal.SIGKILL))
        self._say("begin")
        code = 143
        for number in range(1, self._tries + 1):
            if self._stopped:
                break
            self._env["NEMO_RUN_ATTEMPT"] = str(number)
            code = self._once()
            self._say(f"try {number} ended with exit code {code}")
            if code == 0:
                break
        self._say("end")
        return code

    def _once(self) -> int:
        try:
            child = subprocess.Popen(self._argv, env=self._env, stdin=subprocess.DEVNULL)
        except OSError as err:
            os.write(1, os.fsencode(f"nemo_run: cannot start {self._argv[0]!r}: {err}\n"))
            return 127 if isinstance(err, FileNotFoundError) else 126
        while True:
            pid, status = os.waitpid(-1, 0)  # orphans, too
            if pid == child.pid:
                child.returncode = 0  # it is waited for already
                break
        _end_what_is_left()
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        return code

    def _ask(self, *_: Any) -> None:
        # Ray asks all processes of the job itself.
        if not self._stopped:
            self._stopped = True
            signal.setitimer(signal.ITIMER_REAL, max(0.5, KILLED_AFTER_S - 0.7))

    def _say(self, what: str) -> None:
        os.write(1, (self._mark % what).encode())


def _adopt_orphans() -> None:
    """Become the parent of what the task leaves behind, so that it can be found."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _end_what_is_left() -> None:
    _signal_all(signal.SIGTERM)
    deadline = time.monotonic() + LEFT_S
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.02)
    _signal_all(signal.SIGKILL)


def _reap() -> bool:
    """Wait for children that have ended; tell whether there are others."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not pid:
            return True


def _signal_all(number: int) -> None:
    for pid in _descendants():
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def sealed(key: str, data: bytes) -> bytes:
    """Return ``data`` so that only the key opens it, by calling this again; for one use of a key.

    Ray 2.40, for one, unpacks files for all users of a node to read.
    """
    stream = b""
    while len(stream) < len(data):
        stream += hashlib.sha256(f"{key} {len(stream)}".encode()).digest()
    return bytes(one ^ other for one, other in zip(data, stream))  # noqa: B905  # Python 3.8


def _key() -> str:
    """Return what opens the file, and leave it to nothing that is started here."""
    config = json.loads(os.environ[CONFIG])
    key = config["metadata"].pop(KEY)
    os.environ[CONFIG] = json.dumps(config)
    return str(key)


def main() -> int:
    directory = Path(__file__).resolve().parent
    path = directory / JOB_FILE
    job = json.loads(sealed(_key(), path.read_bytes()))
    with contextlib.suppress(OSError):
        path.unlink()  # holds the environment, and what the task is not to know
    driver = Driver(directory, job)
    driver.lay_out(job["links"])
    return driver.run()


if __name__ == "__main__":
    sys.exit(main())
