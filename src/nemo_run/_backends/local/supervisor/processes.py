"""Processes of this machine: who they are, whether they live, and how they are ended."""

# ruff: noqa: PTH110, PTH115, PTH208, SIM105

from __future__ import annotations

import os
import time

from .disk import PASSING, read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Collection, Iterable, Sequence
else:
    import _signal as signal  # the public module builds enums: a third of our start-up time

# In the environment of everything that runs for a replica.
MARK = b"NEMO_RUN_REPLICA"
# In the environment of supervisors, their keepers and fork servers.
ATTENDANT = b"NEMO_RUN_ATTENDANT"
# What has not gone so long after KILL is not asked about as often.
KILL_PATIENCE_S = 5.0
# How often the process table is read again at once because processes ended while it was read.
TABLE_READS = 20


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
        alive = False
        try:
            alive = self.is_alive()
        finally:
            if not alive:
                os.close(fd)
        return fd if alive else None


class Row:
    """A line of the process table."""

    __slots__ = ("birth", "group", "parent", "pid", "session", "state")

    def __init__(
        self, pid: int, state: str, *, parent: int, group: int, session: int, birth: str
    ) -> None:
        self.pid = pid
        self.state = state
        self.parent = parent
        self.group = group
        self.session = session
        self.birth = birth


def birth_of(pid: int) -> str:
    """When the process was started, in clock ticks since the boot; empty if it has ended.

    OSError if this machine is in trouble: without a free descriptor, say, no process can be seen,
    which does not mean that it has ended.
    """
    row = _row(pid)
    return "" if row is None or row.state in "ZXx" else row.birth


def _row(pid: int) -> Row | None:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError as error:
        if error.errno in PASSING:
            raise
        return None if _has_proc() else _row_of_ps(pid)
    try:
        data = os.read(fd, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    # The command's name stands in parentheses and may hold anything, parentheses too.
    fields = data[data.rindex(b")") + 2 :].split()
    parent, group, session = map(int, fields[1:4])
    state, birth = fields[0].decode(), fields[19].decode()
    return Row(pid, state, parent=parent, group=group, session=session, birth=birth)


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _row_of_ps(pid: int) -> Row | None:
    rows = _ps("-p", str(pid))
    return rows[0] if rows else None


def _ps(*selection: str) -> list[Row]:
    """The process table where there is no /proc, as on macOS."""
    columns = ("-o", "pid=", "-o", "state=", "-o", "ppid=", "-o", "pgid=", "-o", "lstart=")
    rows = []
    for line in _output_of(["ps", *selection, *columns]).splitlines():
        pid, state, parent, group, *words = line.split()
        numbers, birth = (int(parent), int(group)), "-".join(words)
        # Sessions are not to be had there, and not needed: ours are groups at the same time.
        rows.append(
            Row(
                int(pid),
                state[0],
                parent=numbers[0],
                group=numbers[1],
                session=numbers[1],
                birth=birth,
            )
        )
    return rows


def _output_of(command: list[str]) -> str:
    reader, writer = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    # All processes have to read the same dates.
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


def _table() -> list[Row]:
    """All processes, as of one moment if the machine allows it.

    A process whose parent ends while we read may be found under a parent that is not, or not be
    found at all if it was started meanwhile. Either shows, and is a reason to read again.
    """
    if not _has_proc():
        return _ps("-ax")
    rows: list[Row] = []
    for _ in range(TABLE_READS):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        rows = [row for row in map(_row, pids) if row is not None]
        found = {row.pid for row in rows}
        if len(rows) == len(pids) and all(row.parent in found or not row.parent for row in rows):
            break
    return rows


def _tree(pid: int) -> list[Row]:
    """What is below a process: far less to look at than everything.

    The kernel may leave a child out while another one ends, so that finding nothing is no proof.
    """
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # each has its own children
    except OSError as error:
        if error.errno in PASSING:
            raise
        return []
    for thread in threads:
        for child in _contents(f"/proc/{pid}/task/{thread}/children").split():
            row = _row(int(child))
            if row is not None:
                found += [row, *_tree(row.pid)]
    return found


def processes_of(
    task: Process,
    token: str,
    *,
    above: Sequence[Process] = (),
    trust_group: bool = False,
    below_us: bool = False,
) -> tuple[list[Row], bool]:
    """Everything that runs for a replica, and whether some of it is in the task's own group.

    That is all that descends from the task or from the processes ``above`` it (its keeper and its
    supervisor, to which children of processes that ended are passed on), whatever session and
    environment it made for itself; the task's group and session; and what has the mark in its
    environment. When the task itself has ended its group could in theory be another program's by
    now; ``trust_group`` says that it cannot, because we never looked away. ``below_us`` says to
    look among our descendants only. Replicas that the task started are replicas of their own.
    """
    trust_group = trust_group or task.is_alive()
    above = [process for process in above if process.is_alive()]
    spared = {os.getpid(), *(process.pid for process in above)}
    rows = _tree(os.getpid()) if below_us else _table()
    roots = {*(process.pid for process in above), *([task.pid] if task.is_alive() else [])}
    kin = _descendants(rows, roots, token)
    found = []
    for row in rows:
        if row.state in "ZXx" or row.pid in spared:
            continue
        inside = trust_group and task.pid in (row.group, row.session)
        ours = row.pid in kin or inside or _is_marked(row.pid, token)
        if ours and (row.pid in kin or not _is_older(row, task)):
            found.append(row)
    return found, any(row.group == task.pid for row in found)


def _descendants(rows: Iterable[Row], roots: Collection[int], token: str) -> set[int]:
    """What is below ``roots``, without other replicas and what is below those."""
    children: dict[int, list[int]] = {}
    for row in rows:
        children.setdefault(row.parent, []).append(row.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child in found or child in roots or _is_of_another(child, token):
                continue
            found.add(child)
            waiting.append(child)
    return found


def _is_marked(pid: int, token: str) -> bool:
    mark = b"\0" + MARK + b"=" + token.encode() + b"\0"
    return mark in b"\0" + _contents(f"/proc/{pid}/environ")


def _is_of_another(pid: int, token: str) -> bool:
    """Whether a process is a supervisor, or runs for another replica than that of ``token``."""
    environment = b"\0" + _contents(f"/proc/{pid}/environ")
    if b"\0" + ATTENDANT + b"=" in environment:
        return True
    return b"\0" + MARK + b"=" in environment and not _is_marked(pid, token)


def _is_older(row: Row, task: Process) -> bool:
    """Whether a process was there before the task: it is none of its then."""
    return row.birth.isdigit() and task.birth.isdigit() and int(row.birth) < int(task.birth)


def _contents(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            return read_all(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in PASSING:
            raise
        return b""  # it ended, or is not ours to look at


def end_processes(
    task: Process,
    token: str,
    grace_s: float,
    *,
    above: Sequence[Process],
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
        rows, in_group = processes_of(
            task, token, above=above, trust_group=trust_group, below_us=below_us
        )
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


def become_subreaper() -> bool:
    """Get the children of our children when those die; False where there is no such thing."""
    prctl = find_prctl()
    return prctl is not None and prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


_prctl: Callable[..., int] | None = None


def find_prctl() -> Callable[..., int] | None:
    """The system call of that name, where there is one."""
    global _prctl
    if _prctl is None:
        import ctypes

        try:
            _prctl = ctypes.CDLL(None).prctl
        except (OSError, AttributeError):
            return None
    return _prctl
