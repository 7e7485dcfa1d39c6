"""Jobs of an emulated cluster, as real processes.

A container is a process tree with its own root directory: the machine's, with directories mounted
where the job expects them and others hidden. Paths such as ``/nemo_run`` exist only in there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PATH = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Programs of every "image": those of this Python, then those of the machine."""

TERMINATION_LOG = "/dev/termination-log"
"""Where Kubernetes lets a container leave a message."""


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """What to run.

    Attributes:
        env: all that the program sees besides ``PATH`` and ``HOME``.
        mounts: directories of this machine, by their absolute path inside.
        files: texts that replace files of the machine, by path; say ``/etc/hosts``.
        hidden: directories of this machine that are empty inside.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    cwd: str = "/"


@dataclass(frozen=True)
class Line:
    """One line of a log, with its newline unless the output ended without."""

    time_ns: int
    data: bytes

    @property
    def time(self) -> float:
        return self.time_ns / 1e9


class Log:
    """Lines with the time they came, no two with the same; can be read while it grows."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._ended = False
        self._changed = threading.Condition()

    def append(self, data: bytes) -> None:
        with self._changed:
            last = self._lines[-1].time_ns if self._lines else 0
            self._lines.append(Line(max(time.time_ns(), last + 1), data))
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def lines(self) -> list[Line]:
        with self._changed:
            return list(self._lines)

    @property
    def text(self) -> str:
        return b"".join(line.data for line in self.lines).decode("utf-8", "replace")

    def seen(self, lag_s: float) -> list[Line]:
        """Return the lines that are at least so old."""
        return [line for line in self.lines if line.time <= time.time() - lag_s]

    def follow(self, start: int = 0, lag_s: float = 0) -> Iterator[Line]:
        """Yield lines from number ``start`` on as they come; return after the last.

        With ``lag_s`` each comes so much later, and those that come after the end do not.
        """
        while True:
            with self._changed:
                while len(self._lines) <= start and not self._ended:
                    self._changed.wait()
                ended = self._ended
                news = self._lines[start:]
            if lag_s:
                time.sleep(0.02)
                news = [line for line in news if line.time <= time.time() - lag_s]
            if not news and (ended or not lag_s):
                return
            yield from news
            start += len(news)


class Container:
    """A started program, its log and its end. Programs that cannot start end with 128."""

    def __init__(self, spec: ContainerSpec, directory: Path, log: Log | None = None) -> None:
        """Start ``spec``; ``directory`` is ours for what has to be a file.

        A ``log`` that is given, say that of an earlier attempt, goes on when the program ends.
        """
        self.spec = spec
        self.log = log or Log()
        self._ends_log = log is None
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.exit_code: int | None = None
        self.start_error = ""
        self._ended = threading.Event()
        self._namespace = ""
        self._held = -1
        self._lock = threading.Lock()
        self._directory = directory
        self._start(directory)
        threading.Thread(target=self._run, daemon=True).start()

    def text(self, inside: str) -> str:
        """Return what is in one of the files that replace files of the machine."""
        path = self._directory / f"file-{list(self.spec.files).index(inside)}"
        return path.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit code once there is one: 128 plus the number for an ending by signal."""
        self._ended.wait(timeout_s)
        return self.exit_code

    def stop(self, grace_s: float = 5) -> None:
        """Ask the program to end; end all there is in the container after a while."""
        if self._process.poll() is None:
            self._process.terminate()
        if self.wait(grace_s) is None:
            self.kill()
            self.wait(5)

    def kill(self) -> None:
        """End every process of the container at once."""
        if self._process.poll() is None:
            self._process.kill()
        self._sweep()

    def _start(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        files = {}
        for number, (inside, text) in enumerate(self.spec.files.items()):
            path = directory / f"file-{number}"
            path.write_text(text)
            files[inside] = str(path)
        for inside in self.spec.mounts:
            top = Path("/") / Path(inside).parts[1]
            if top.exists() and not Path(inside).is_dir():
                raise ValueError(f"{inside} would have to be made on this machine")
        description = {
            "argv": self.spec.argv,
            "env": {"PATH": PATH, "HOME": "/root", **self.spec.env},
            "mounts": {inside: str(path) for inside, path in self.spec.mounts.items()},
            "files": files,
            "hidden": [str(path) for path in self.spec.hidden],
            "cwd": self.spec.cwd,
        }
        ready, told = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).parent / "container.py"), str(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(told,),
            start_new_session=True,
            env={},
        )
        os.close(told)
        assert self._process.stdin is not None
        with os.fdopen(ready) as file:
            with self._process.stdin as stdin:
                stdin.write(json.dumps(description).encode() + b"\n")
                stdin.flush()
                self._hear(file.readline())
                if self._namespace:
                    # Held, since a number is given to another namespace when one is gone.
                    self._held = os.open(f"/proc/{self._process.pid}/ns/mnt", os.O_RDONLY)
            for line in file:
                self._hear(line)

    def _hear(self, line: str) -> None:
        kind, _, error = line.strip().partition(" ")
        if kind == "error":
            self.start_error = error
        else:
            self._namespace = kind

    def _run(self) -> None:
        if self.start_error:
            self.log.append(self.start_error.encode() + b"\n")
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        code = self._process.wait()
        # As in a real container: when the first process ends, so do all.
        self._sweep()
        reader.join()
        with self._lock:
            if self._namespace:
                self._namespace = ""
                os.close(self._held)
        self.exit_code = code if code >= 0 else 128 - code
        self.ended_at = time.time()
        if self._ends_log:
            self.log.end()
        self._ended.set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.log.append(line)

    def _sweep(self) -> None:
        """Kill what shares the container's namespace, whatever session it fled to."""
        with self._lock:
            while self._namespace and (pids := _members(self._namespace)):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and that nobody waits for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _members(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            inside = str((entry / "ns" / "mnt").readlink()) == namespace
        except OSError:
            continue  # gone, or not ours
        if inside and alive(int(entry.name)):
            found.append(int(entry.name))
    return found
