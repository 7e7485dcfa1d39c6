"""Programs that run until they are stopped, found again by files with their process ids."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import patience

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


class Daemons:
    """The background programs of one directory: pids in ``run``, what they say in ``log``.

    They are started in the foreground of sessions of their own and hold nothing of ours open, so
    that neither Ctrl-C nor a test runner that waits for its pipes meets them.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.environment = {**environment, "PATH": search_path(environment)}
        # What a test starts in its home ends with the test; a daemon may serve others after it.
        self.environment.pop("NEMORUN_HOME", None)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: Sequence[str | Path]) -> None:
        with (self.directory / "log" / f"{name}.out").open("ab") as output:
            child = subprocess.Popen(
                [str(arg) for arg in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd=self.directory,
                start_new_session=True,
            )
        self._children[name] = child
        self._pid_file(name).write_text(f"{child.pid} {started_at(child.pid)}\n")

    def pid(self, name: str) -> int | None:
        """Return the process id of a program that runs, whoever started it."""
        try:
            pid, started = map(int, self._pid_file(name).read_text().split())
        except (FileNotFoundError, ValueError):
            return None
        # Another process may have the number by now.
        return pid if is_running(pid) and started_at(pid) == started else None

    def stop(self, name: str, *, kill: bool = False, timeout_s: float = 20) -> None:
        """End a program and wait until it is gone; fine if it is."""
        pid = self.pid(name)
        if pid is not None:
            end(pid, kill=kill, timeout_s=timeout_s)
        child = self._children.pop(name, None)
        if child is not None:
            child.wait()
        self._pid_file(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return sorted(path.stem for path in (self.directory / "run").glob("*.daemon"))

    def said(self, name: str) -> str:
        """Return what a program has said, for messages."""
        parts = [self.directory / "log" / f"{name}.out", self.directory / "log" / f"{name}.log"]
        return "\n".join(part.read_text(errors="replace") for part in parts if part.exists())

    def _pid_file(self, name: str) -> Path:
        return self.directory / "run" / f"{name}.daemon"


@contextmanager
def owned_directory(prefix: str, clean: Callable[[Path], None]) -> Iterator[Path]:
    """Have a directory while entered; ``clean`` ends what runs in it before it is removed.

    So are those that a test run left when it was killed. Names are short, unlike those of pytest's
    directories: sockets go below them.
    """
    for owner in Path(tempfile.gettempdir()).glob(f"{prefix}*/owner"):
        # Somebody else may be doing the same.
        with contextlib.suppress(FileNotFoundError, ValueError):
            if not is_running(int(owner.read_text())):
                clean(owner.parent)
                shutil.rmtree(owner.parent, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    (directory / "owner").write_text(str(os.getpid()))
    try:
        yield directory
    finally:
        clean(directory)
        # What was told to end may still be removing files of its own, or making some.
        wait_until(lambda: _removed(directory), f"the end of {directory}")


def _removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def search_path(environment: Mapping[str, str]) -> str:
    """Return a PATH that has the places of daemons, which an ordinary user's leaves out."""
    return os.pathsep.join([environment.get("PATH", os.defpath), *SBIN])


def wait_until(
    condition: Callable[[], object], what: str, *, timeout_s: float = 60, pause_s: float = 0.05
) -> None:
    """Return once ``condition()`` is true; say ``what`` did not come otherwise."""
    deadline = patience.deadline(timeout_s)
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {timeout_s:g} s")
        time.sleep(pause_s)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody listens on, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_running(pid: int) -> bool:
    """Tell whether a process exists and is not merely waiting to be reaped."""
    return (_stat(pid) or ["Z"])[0] != "Z"


def started_at(pid: int) -> int:
    """Return when a process was started, in ticks since this machine was; 0 if it is gone."""
    return int((_stat(pid) or ["0"] * 20)[19])


def _stat(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on; nothing if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat.rpartition(")")[2].split()


def children(pid: int) -> list[int]:
    """Return the processes below ``pid``, the nearest first."""
    found = []
    # A process may end while it is looked at.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found + [below for child in found for below in children(child)]


def end(pid: int, *, kill: bool = False, timeout_s: float = 20) -> None:
    """End a process, by force if it does not listen, and wait until it is gone."""
    for number in [signal.SIGKILL] if kill else [signal.SIGTERM, signal.SIGKILL]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not is_running(pid), f"the end of {pid}", timeout_s=timeout_s)
            return
    raise TimeoutError(f"process {pid} cannot be ended")
