"""Processes of this machine: who they are, whether they live, and how they are ended."""

# ruff: noqa: PTH110, PTH115, PTH208, SIM105

from __future__ import annotations

import os
import time

from .disk import read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator
else:
    import _signal as signal  # the public module builds enums: a third of our start-up time

# In the environment of everything that runs for a replica.
MARK = b"NEMO_RUN_REPLICA"
# What has not gone so long after KILL is not asked about as often.
KILL_PATIENCE_S = 5.0


class Process:
    """A process that is not mistaken for a later one with the same id."""

    __slots__ = ("birth", "pid")

    def __init__(self, pid: int, birth: str) -> None:
        self.pid = pid
        self.birth = birth

    @classmethod
    def parse(cls, text: str) -> Process:
        pid, _, birth = text.partition(" ")
        return cls(int(pid), birth)

    def is_alive(self) -> bool:
        """Whether it still runs on this machine; a zombie does not."""
        return self.birth != "" and birth_of(self.pid) == self.birth

    def send(self, signum: int) -> None:
        """Send a signal, unless the process has ended."""
        fd = self.open()
        try:
            if fd is not None:
                signal.pidfd_send_signal(fd, signum)
            elif self.is_alive():
                os.kill(self.pid, signum)
        except (ProcessLookupError, PermissionError):
            return  # ended, or not ours to end
        finally:
            if fd is not None:
                os.close(fd)

    def open(self) -> int | None:
        """A descriptor that becomes readable at its end; None if it ended, or there is no such."""
        try:
            fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            return None
        if self.is_alive():
            return fd
        os.close(fd)
        return None


class Row:
    """A line of the process table."""

    __slots__ = ("birth", "group", "pid", "session", "state")

    def __init__(self, pid: int, state: str, group: int, session: int, birth: str) -> None:
        self.pid = pid
        self.state = state
        self.group = group
        self.session = session
        self.birth = birth


def birth_of(pid: int) -> str:
    """When the process was started, in clock ticks since the boot; empty if it has ended."""
    row = _row(pid)
    return "" if row is None or row.state in "ZXx" else row.birth


def _row(pid: int) -> Row | None:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None if _has_proc() else _row_of_ps(pid)
    try:
        data = os.read(fd, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    # The command's name stands in parentheses and may hold anything, parentheses too.
    fields = data[data.rindex(b")") + 2 :].split()
    return Row(pid, fields[0].decode(), int(fields[2]), int(fields[3]), fields[19].decode())


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _row_of_ps(pid: int) -> Row | None:
    rows = _ps("-p", str(pid))
    return rows[0] if rows else None


def _ps(*selection: str) -> list[Row]:
    """The process table where there is no /proc, as on macOS."""
    columns = ("-o", "pid=", "-o", "state=", "-o", "pgid=", "-o", "lstart=")
    rows = []
    for line in _output_of(["ps", *selection, *columns]).splitlines():
        pid, state, group, *birth = line.split()
        # Sessions are not to be had there, and not needed: ours are groups at the same time.
        rows.append(Row(int(pid), state[0], int(group), int(group), "-".join(birth)))
    return rows


def _output_of(command: list[str]) -> str:
    reader, writer = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    # Everybody has to read the same dates.
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC0"}
    pid = os.posix_spawnp(command[0], command, env, file_actions=actions)
    os.close(writer)
    try:
        return read_all(reader).decode("ascii", "replace")
    finally:
        os.close(reader)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # this process leaves reaping to the kernel


def _table() -> Iterator[Row]:
    if not _has_proc():
        yield from _ps("-ax")
        return
    for name in os.listdir("/proc"):
        if name.isdigit():
            row = _row(int(name))
            if row is not None:
                yield row


def _tree(pid: int) -> list[Row]:
    """What is below a process: far less to look at than everything.

    The kernel may leave a child out while another one ends, so that finding nothing is no proof.
    """
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # each has its own children
    except OSError:
        return []
    for thread in threads:
        for child in _contents(f"/proc/{pid}/task/{thread}/children").split():
            row = _row(int(child))
            if row is not None:
                found += [row, *_tree(row.pid)]
    return found


def processes_of(
    task: Process, token: str, *, trust_group: bool = False, below_us: bool = False
) -> tuple[list[Row], bool]:
    """Everything that runs for a replica, and whether some of it is in the task's own group.

    That is the task's group and session, and what left them but has the mark in its environment,
    such as the workers of torchrun. When the task itself has ended its group could in theory be
    somebody else's by now; ``trust_group`` says that it cannot, because we never looked away.
    ``below_us`` says to look among our descendants only.
    """
    mark = b"\0" + MARK + b"=" + token.encode() + b"\0"
    trust_group = trust_group or task.is_alive()
    own_pid = os.getpid()
    found = []
    for row in _tree(own_pid) if below_us else _table():
        if row.state in "ZXx" or row.pid == own_pid:
            continue
        if row.birth.isdigit() and task.birth.isdigit() and int(row.birth) < int(task.birth):
            continue  # it was there before the task, so it is none of its
        inside = trust_group and task.pid in (row.group, row.session)
        if inside or mark in b"\0" + _contents(f"/proc/{row.pid}/environ"):
            found.append(row)
    return found, any(row.group == task.pid for row in found)


def _contents(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return read_all(fd)
    except OSError:  # it ended, or is not ours to look at
        return b""
    finally:
        os.close(fd)


def end_processes(
    task: Process,
    token: str,
    grace_s: float,
    *,
    trust_group: bool,
    below_us: bool,
    wait: Callable[[float], None],
) -> None:
    """End everything that runs for a replica; return when it is gone.

    The task's group is asked first, and once: a program that shuts its workers down in order shall
    not be disturbed. What is left outside when the group has gone is asked then, and after
    ``grace_s`` whatever remains is killed.
    """
    deadline = time.monotonic() + grace_s
    told_group = told_others = False
    pause_s = 0.005
    while True:
        rows, in_group = processes_of(task, token, trust_group=trust_group, below_us=below_us)
        if not rows:
            return
        if time.monotonic() >= deadline:
            for row in rows:
                Process(row.pid, row.birth).send(signal.SIGKILL)
        elif in_group and not told_group:
            told_group = True
            # TERM does not reach a stopped process before CONT does.
            _signal_group(task.pid, signal.SIGTERM)
            _signal_group(task.pid, signal.SIGCONT)
        elif not in_group and not told_others:
            told_others = True
            for row in rows:
                Process(row.pid, row.birth).send(signal.SIGTERM)
        rest_s = deadline - time.monotonic()
        wait(min(pause_s, rest_s) if rest_s > 0 else pause_s)
        # What survives KILL hangs in a device or a network file system, perhaps for long.
        pause_s = min(pause_s * 1.5, 0.1 if rest_s > -KILL_PATIENCE_S else 2.0)


def _signal_group(group: int, signum: int) -> None:
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        return  # ended, or not ours to end


_here = ""


def here() -> str:
    """This machine since its boot, and the process ids we can see."""
    global _here
    if not _here:
        boot = _contents("/proc/sys/kernel/random/boot_id").decode("ascii", "replace")
        boot = boot or _output_of(["ps", "-o", "lstart=", "-p", "1"])
        machine = _contents("/etc/machine-id").decode("ascii", "replace")
        try:
            namespace = os.readlink("/proc/self/ns/pid")
        except OSError:
            namespace = ""
        words = (boot, namespace, machine, os.uname().nodename)
        _here = " ".join("-".join(word.split()) or "-" for word in words)
    return _here


def distance(place: str) -> str:
    """How a place relates to this process.

    ``here``; ``hidden``: the same machine, where process ids mean something else; ``gone``: this
    machine before its last boot; ``away``: another machine.
    """
    if place == here():
        return "here"
    boot, _, *machine = place.split(" ")
    our_boot, _, *our_machine = here().split(" ")
    if boot == our_boot:
        return "hidden"
    # Another boot of the same machine: nothing from before is left.
    return "gone" if machine == our_machine else "away"
