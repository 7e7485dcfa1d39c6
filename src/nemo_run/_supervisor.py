"""Run one process of a local job to its end, whoever else is killed meanwhile.

Started by ``_replica`` as ``python -I -S`` in a session of its own. Three processes take part::

    supervisor   takes slots, starts attempts, applies retries, time limit and cancelling
      keeper     a fork of the supervisor: waits for one attempt and writes down how it ended
        task     the user's program, leader of its own session and process group

What is known is in ``<replica>/.replica/``. Every file that matters appears whole, by a rename:

    lock                 flock: held by the supervisor
    keeper.lock          flock: held by the keeper, and by the task until its program is executed
    spec                 what to run, with its environment; 0600, removed at the end
    status               what the supervisor last said; final once the replica has ended
    attempt-N.ready      attempt N is about to be started; the space for the next file
    attempt-N.started    attempt N runs or ran; written by the task itself just before ``execve``
    attempt-N.expired    the same, after the time limit was reached and before it is told to end
    ….exit.CODE          one of the last two, after the attempt ended; a rename needs no disk space
    cancel               somebody asked for the end; made before anything is told to end
    clock                how long the log was when; the one file that is appended to

Why no attempt runs twice and no exit code is lost:

1. Only the holder of ``lock`` starts attempts, and only while it can take ``keeper.lock``. Both
   the keeper and the unborn task inherit that lock, so taking it proves that nobody is left who
   could still write ``started``. Without that file the attempt never ran; with it, it is never
   run again.
2. The keeper looks at the task's exit code without reaping it, writes it down, and leaves. If it is
   killed before that, the task (alive or a zombie) passes to the supervisor, a child subreaper,
   which writes instead. If the supervisor is killed the keeper does not notice. Only when both are
   killed while the task lives is the exit code unknown, and then we say so.
3. A process is its id, its start time and the boot of its machine. Ids are reused, all three
   together are not.

The task's output goes straight to files opened for appending: no pipe through a process that could
die, nothing copied. Unless the streams are asked for separately both go to ``combined.log``: the
order is exact, every byte is stored once, and ``stdout.log`` and ``stderr.log`` are links to it, so
whoever looks for a traceback in either finds it. With ``separate`` there is no ``combined.log``,
since the order between two files is not known.
"""

# pathlib alone would double the start-up time, and directories are descriptors here; contextlib
# would come on top.
# ruff: noqa: PTH102, PTH108, PTH110, PTH113, PTH115, PTH116, PTH118, PTH208, PTH211, SIM105

from __future__ import annotations

import errno
import fcntl
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import NoReturn
else:
    import _signal as signal  # the public module builds enums: a third of our start-up time

STATE_DIR = ".replica"
LOCK = "lock"
KEEPER_LOCK = "keeper.lock"
SPEC = "spec"
STATUS = "status"
CANCEL = "cancel"
CLOCK = "clock"
MARK = b"NEMO_RUN_REPLICA"
ATTEMPT = b"NEMO_RUN_ATTEMPT"

FINAL = ("succeeded", "failed", "cancelled")
LOST = "ended without an exit code (killed, or the machine went down)"

# Reserved ahead for every status, so that the end can be written on a full disk.
STATUS_SIZE = 4096
STARTED_SIZE = 1024
# Waits end by events; this bounds the harm of one that is missed.
LONGEST_WAIT_S = 10.0
KEEPER_PATIENCE_S = 5.0
LOCK_PATIENCE_S = 30.0
LAUNCH_TRIES = 5
CLOCK_S = 1.0


# What is on disk


class Spec:
    """What to run and how, as bytes all the way: nothing is decoded that the kernel would not."""

    def __init__(self, data: bytes) -> None:
        """Read what ``pack`` wrote; ValueError if it was cut short."""
        fields = data.split(b"\0")
        if fields[-2:] != [b"end=", b""]:
            raise ValueError("the description of the replica is incomplete")
        self.data = data
        self.argv: list[bytes] = []
        self.env: dict[bytes, bytes] = {}
        self.slots: list[SlotRequest] = []
        single: dict[bytes, bytes] = {}
        for field in fields[:-2]:
            key, _, value = field.partition(b"=")
            if key == b"argv":
                self.argv.append(value)
            elif key == b"env":
                name, _, text = value.partition(b"=")
                self.env[name] = text
            elif key == b"slot":
                self.slots.append(SlotRequest(value))
            else:
                single[key] = value
        self.cwd = single[b"cwd"]
        self.retries = int(single[b"retries"])
        self.backoff_s = float(single[b"backoff_s"])
        self.backoff_cap_s = float(single[b"backoff_cap_s"])
        self.time_limit_s = float(single[b"time_limit_s"]) if single[b"time_limit_s"] else None
        self.grace_s = float(single[b"grace_s"])
        self.separate = single[b"separate"] == b"1"
        self.slots_dir = single[b"slots_dir"]
        self.umask = int(single[b"umask"], 8) if b"umask" in single else None

    def with_umask(self, umask: int) -> Spec:
        """Remember the launcher's umask, for supervisors that somebody else starts later."""
        if self.umask is not None:
            return self
        return Spec(self.data[: -len(b"end=\0")] + pack([(b"umask", b"%o" % umask)]))

    def pause_before(self, attempt: int) -> float:
        """Seconds between the end of the attempt before and the start of ``attempt``."""
        if attempt < 2:
            return 0.0
        # Beyond 2**60 the cap decides anyway, and a float would overflow.
        return min(self.backoff_cap_s, self.backoff_s * 2.0 ** min(attempt - 2, 60))


class SlotRequest:
    """``count`` of the named slots of a pool; their names go to the variable ``env``, if any."""

    def __init__(self, data: bytes) -> None:
        pool, count, env, *names = data.split(b"\t")
        self.pool = pool
        self.count = int(count)
        self.env = env
        self.names = names


def pack(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode fields as ``Spec`` reads them. Neither arguments nor environments can hold a NUL."""
    return b"".join(key + b"=" + value + b"\0" for key, value in (*fields, (b"end", b"")))


class Status:
    """What the supervisor last said about the replica."""

    def __init__(self, *, token: str, attempts: int, limit_s: float | None, grace_s: float) -> None:
        self.token = token
        self.attempts = attempts
        self.limit_s = limit_s
        self.grace_s = grace_s
        self.place = here()
        self.supervisor = Process(os.getpid(), birth_of(os.getpid()))
        self.state = "pending"
        self.attempt = 0
        self.exit_code: int | None = None
        self.pid: int | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.message = ""

    def render(self) -> bytes:
        lines = [
            "format 1",
            f"token {self.token}",
            f"attempts {self.attempts}",
            f"limit_s {_text(self.limit_s)}",
            f"grace_s {self.grace_s}",
            f"place {self.place}",
            f"supervisor {self.supervisor.pid} {self.supervisor.birth}",
            f"state {self.state}",
            f"attempt {self.attempt}",
            f"exit_code {_text(self.exit_code)}",
            f"pid {_text(self.pid)}",
            f"started_at {_text(self.started_at)}",
            f"ended_at {_text(self.ended_at)}",
            f"message {' '.join(self.message.split())}",
        ]
        return "\n".join(lines).encode("utf-8", "replace")[: STATUS_SIZE - 1] + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Status:
        lines = data.decode("utf-8", "replace").rstrip("\n").split("\n")
        fields = {key: value for key, _, value in (line.partition(" ") for line in lines)}
        status = cls.__new__(cls)
        status.token = fields["token"]
        status.attempts = int(fields["attempts"])
        status.limit_s = _number(fields["limit_s"])
        status.grace_s = float(fields["grace_s"])
        status.place = fields["place"]
        status.supervisor = Process.parse(fields["supervisor"])
        status.state = fields["state"]
        status.attempt = int(fields["attempt"])
        status.exit_code = int(fields["exit_code"]) if fields["exit_code"] else None
        status.pid = int(fields["pid"]) if fields["pid"] else None
        status.started_at = _number(fields["started_at"])
        status.ended_at = _number(fields["ended_at"])
        status.message = fields.get("message", "")
        return status


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


def _number(text: str) -> float | None:
    return float(text) if text else None


class Attempt:
    """One run of the program, as its file tells."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.number, kind, self.exit_code = split_name(name)
        self.expired = kind == "expired"
        self.ended_at: float | None = None
        lines = data.decode("utf-8", "replace").split("\n")
        self.task = Process.parse(lines[0])
        self.keeper = Process.parse(lines[1])
        self.place = lines[2]
        self.started_at = float(lines[3])
        self.clock_s = float(lines[4])  # monotonic: a laptop's sleep is no part of a time limit
        self.slots = lines[5]

    def is_running(self) -> bool:
        """Whether the task or its keeper lives, as far as can be seen from here."""
        if self.exit_code is not None or distance(self.place) == "gone":
            return False
        return self.keeper.is_alive() or self.task.is_alive()


def split_name(name: str) -> tuple[int, str, int | None]:
    """Number, kind and exit code of the attempt a file tells of; number 0 if it tells of none."""
    stem, _, rest = name.partition(".")
    kind, _, code = rest.partition(".exit.")
    if not stem.startswith("attempt-") or kind not in ("started", "expired"):
        return 0, "", None
    return int(stem[len("attempt-") :]), kind, int(code) if code else None


class Files:
    """The state directory of one replica. Reading is for everybody, writing for the lock holder."""

    def __init__(self, directory: str | bytes) -> None:
        self.directory = os.fsencode(directory)
        state_dir = os.path.join(self.directory, os.fsencode(STATE_DIR))
        self.fd = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        os.close(self.fd)

    def status(self) -> Status | None:
        data = self.read(STATUS)
        return None if data is None else Status.parse(data)

    def read(self, name: str) -> bytes | None:
        try:
            fd = os.open(name, os.O_RDONLY, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        try:
            return read_all(fd)
        finally:
            os.close(fd)

    def cancelled_at(self) -> float | None:
        """When somebody asked for the end, or None."""
        try:
            return os.stat(CANCEL, dir_fd=self.fd).st_mtime
        except FileNotFoundError:
            return None

    def last_attempt(self) -> Attempt | None:
        """The latest attempt that was started, or None."""
        while True:
            latest, number = "", 0
            for name in os.listdir(self.fd):
                this, _, _ = split_name(name)
                if this > number:
                    latest, number = name, this
            if not latest:
                return None
            try:
                fd = os.open(latest, os.O_RDONLY, dir_fd=self.fd)
            except FileNotFoundError:
                continue  # it ended, and was renamed, since we looked
            try:
                attempt = Attempt(latest, read_all(fd))
                if attempt.exit_code is not None:
                    attempt.ended_at = os.fstat(fd).st_mtime
                return attempt
            finally:
                os.close(fd)

    def write_status(self, status: Status) -> None:
        """Replace the status; needs no disk space if it was written before."""
        self._replace(STATUS, status.render(), 0o644)
        try:
            self._reserve(STATUS + ".next", STATUS_SIZE, 0o644)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def write_spec(self, spec: Spec) -> None:
        self._replace(SPEC, spec.data, 0o600)

    def reserve_attempt(self, number: int) -> None:
        """Set aside the space in which attempt ``number`` will say that it started."""
        self._reserve(f"attempt-{number}.ready", STARTED_SIZE, 0o644)
        self.sync()

    def record_start(self, number: int, keeper: Process, slots: str) -> None:
        """Say that the calling process is attempt ``number`` from here on."""
        pid = os.getpid()
        lines = [
            f"{pid} {birth_of(pid)}",
            f"{keeper.pid} {keeper.birth}",
            here(),
            str(time.time()),
            str(time.monotonic()),
            slots,
            "",
        ]
        ready = f"attempt-{number}.ready"
        self._fill(ready, "\n".join(lines).encode("utf-8", "replace"), 0o644)
        self._rename(ready, f"attempt-{number}.started")

    def record_exit(self, number: int, code: int) -> None:
        """Say how attempt ``number`` ended; FileNotFoundError if it never started."""
        started, expired = f"attempt-{number}.started", f"attempt-{number}.expired"
        try:
            os.utime(started, dir_fd=self.fd)
            self._rename(started, f"{started}.exit.{code}")
        except FileNotFoundError:
            os.utime(expired, dir_fd=self.fd)
            self._rename(expired, f"{expired}.exit.{code}")

    def record_expiry(self, number: int) -> bool:
        """Say that attempt ``number`` reached its time limit; False if it has just ended."""
        try:
            self._rename(f"attempt-{number}.started", f"attempt-{number}.expired")
        except FileNotFoundError:
            return False
        return True

    def request_cancel(self, grace_s: float | None) -> None:
        """Ask for the end; the first request counts."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            fd = os.open(CANCEL, flags, 0o644, dir_fd=self.fd)
        except FileExistsError:
            return
        try:
            if grace_s is not None:
                os.write(fd, str(grace_s).encode())
        except OSError as error:
            # That the file exists is the request. Without a number the spec's grace counts.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        finally:
            os.close(fd)
        self.sync()

    def tidy(self) -> None:
        """Remove what is not needed after the end, the environment of the task above all."""
        for name in (SPEC, SPEC + ".next", STATUS + ".next"):
            try:
                os.unlink(name, dir_fd=self.fd)
            except FileNotFoundError:
                continue

    def try_lock(self, name: str, *, shared: bool = False) -> int | None:
        """Take a lock, held until the descriptor is closed everywhere; None if it is taken."""
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.fd)
        try:
            return fd if _try_flock(fd, mode) else None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        # Some network file systems come without locks. All who take part are on this machine, so a
        # lock on its own disk does as well.
        stat = os.fstat(self.fd)
        local = make_private_directory(os.path.join(machine_directory(), b"locks"))
        path = os.path.join(local, f"{stat.st_dev}-{stat.st_ino}-{name}".encode())
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        return fd if _try_flock(fd, mode) else None

    @staticmethod
    def unlock(fd: int) -> None:
        """Give a lock back at once, even if a fork of this process still has the descriptor."""
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def sync(self) -> None:
        try:
            os.fsync(self.fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # directories that cannot be synced
                raise

    def _replace(self, name: str, data: bytes, mode: int) -> None:
        self._fill(name + ".next", data, mode)
        self._rename(name + ".next", name)

    def _rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        self.sync()

    def _fill(self, name: str, data: bytes, mode: int) -> None:
        # No O_TRUNC: overwriting the reserved blocks works where new ones cannot be had.
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, mode, dir_fd=self.fd)
        try:
            write_all(fd, data)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
        finally:
            os.close(fd)

    def _reserve(self, name: str, size: int, mode: int) -> None:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, mode, dir_fd=self.fd)
        try:
            write_all(fd, b" " * size)
        finally:
            os.close(fd)


def _try_flock(fd: int, mode: int) -> bool:
    """Lock a descriptor, or close it."""
    try:
        fcntl.flock(fd, mode)
    except BlockingIOError:
        os.close(fd)
        return False
    except OSError:
        os.close(fd)
        raise
    return True


def explain(error: OSError) -> str:
    """What went wrong, for people."""
    reason = error.strerror or str(error)
    return f"{reason}: {os.fsdecode(error.filename)!r}" if error.filename else reason


def read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 65536):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def machine_directory() -> bytes:
    """Where this user's processes on this machine meet.

    Not ``XDG_RUNTIME_DIR``: it is removed when the user logs out, and jobs go on after that.
    """
    return make_private_directory(b"/tmp/nemo_run-%d" % os.getuid())


def make_private_directory(path: bytes) -> bytes:
    """Create a directory for this user only; PermissionError if somebody else was first."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        stat = os.lstat(path)
        if stat.st_mode & 0o170077 != 0o040000 or stat.st_uid != os.getuid():
            name = os.fsdecode(path)
            raise PermissionError(
                errno.EACCES, "not a directory of this user alone (mode 0700)", name
            ) from None
    return path


# Processes


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


class _Row:
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


def _row(pid: int) -> _Row | None:
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
    return _Row(pid, fields[0].decode(), int(fields[2]), int(fields[3]), fields[19].decode())


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _row_of_ps(pid: int) -> _Row | None:
    rows = _ps("-p", str(pid))
    return rows[0] if rows else None


def _ps(*selection: str) -> list[_Row]:
    """The process table where there is no /proc, as on macOS."""
    columns = ("-o", "pid=", "-o", "state=", "-o", "pgid=", "-o", "lstart=")
    rows = []
    for line in _output_of(["ps", *selection, *columns]).splitlines():
        pid, state, group, *birth = line.split()
        # Sessions are not to be had there, and not needed: ours are groups at the same time.
        rows.append(_Row(int(pid), state[0], int(group), int(group), "-".join(birth)))
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


def _table() -> Iterator[_Row]:
    if not _has_proc():
        yield from _ps("-ax")
        return
    for name in os.listdir("/proc"):
        if name.isdigit():
            row = _row(int(name))
            if row is not None:
                yield row


def _tree(pid: int) -> list[_Row]:
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
) -> tuple[list[_Row], bool]:
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
        pause_s = min(pause_s * 1.5, 0.1 if rest_s > -KEEPER_PATIENCE_S else 2.0)


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


# What follows from what is on disk


class End:
    """The replica has ended."""

    def __init__(self, state: str, exit_code: int | None, message: str) -> None:
        self.state = state
        self.exit_code = exit_code
        self.message = message


class Start:
    """The next thing to do is to start an attempt."""

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self.reason = reason


def decide(
    status: Status, last: Attempt | None, cancelled_at: float | None, *, alive: bool
) -> End | Start | None:
    """What the files mean: an end, an attempt to start, or None while the last one runs.

    ``alive`` says whether anything of the last attempt is left, a keeper included.
    """
    if last is None:
        if cancelled_at is not None:
            return End("cancelled", None, "cancelled before it started")
        return Start(1, "")
    code, ended_at = last.exit_code, last.ended_at
    if code is None or ended_at is None:
        if alive:
            return None
        if last.expired:
            return End("failed", None, _limit_message(status))
        if cancelled_at is not None:
            return End("cancelled", None, "cancelled")
        return End("failed", None, LOST)
    if last.expired:
        return End("failed", code, _limit_message(status))
    # What ended by itself before the request came keeps its outcome.
    if cancelled_at is not None and cancelled_at <= ended_at:
        return End("cancelled", code, "cancelled")
    if code == 0:
        return End("succeeded", 0, "")
    reason = describe_exit(code)
    if last.number < status.attempts:
        if cancelled_at is not None:
            return End("cancelled", code, f"cancelled after attempt {last.number} ({reason})")
        return Start(last.number + 1, f"attempt {last.number} ended with {reason}")
    if status.attempts > 1:
        reason += f" in attempt {last.number} of {status.attempts}"
    return End("failed", code, reason)


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    for name in dir(signal):
        if name.startswith("SIG") and "_" not in name and getattr(signal, name) == -code:
            return f"signal {-code} ({name})"
    return f"signal {-code}"


def _limit_message(status: Status) -> str:
    return f"time limit of {status.limit_s or 0:g} s reached"


# Slots: a pool is a directory of FIFOs. Whoever holds a slot has its FIFO open and locked. The lock
# makes it exclusive, and the kernel tells writers of a FIFO when its last reader has gone, however
# it went: waiting for a slot, or for one's turn in the queue, costs nothing until it comes.


class Slots:
    """Slots held for one attempt, until every process that inherited them has closed them."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self.env: dict[bytes, bytes] = {}
        self.names: list[bytes] = []

    def take(
        self, root: bytes, requests: Sequence[SlotRequest], wait: Callable[[list[int]], None]
    ) -> None:
        """Wait for all that is requested, first come first served in each pool.

        ``wait`` returns when one of the descriptors has something to say, or raises to give up.
        """
        make_private_directory(root)
        # Everybody takes pools in the same order, so nobody waits in a circle.
        for request in sorted(requests, key=lambda request: request.pool):
            pool = make_private_directory(os.path.join(root, request.pool))
            queue = make_private_directory(os.path.join(pool, b"queue"))
            ticket, ticket_fd = _draw_ticket(pool, queue)
            try:
                _wait_for_turn(pool, queue, ticket, wait)
                self._collect(pool, request, wait)
            finally:
                _unlink(os.path.join(queue, ticket))
                os.close(ticket_fd)

    def hold_again(self, root: bytes, text: str) -> None:
        """Take the slots of an attempt whose keeper is gone, as far as they are still free."""
        for slot in text.encode().split():
            path = os.path.join(root, slot)
            if os.path.exists(path):
                fd = _try_slot(path)
                if fd is not None:
                    self.fds.append(fd)

    def release(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()

    def _collect(
        self, pool: bytes, request: SlotRequest, wait: Callable[[list[int]], None]
    ) -> None:
        held: list[bytes] = []
        while len(held) < request.count:
            watched: list[int] = []
            try:
                for name in request.names:
                    if name in held or len(held) == request.count:
                        continue
                    path = os.path.join(pool, name)
                    fd = _try_slot(path)
                    if fd is not None:
                        self.fds.append(fd)
                        held.append(name)
                    elif (watch := _watch(path)) is not None:
                        watched.append(watch)
                if len(held) < request.count and len(held) + len(watched) == len(request.names):
                    wait(watched)
            finally:
                for fd in watched:
                    os.close(fd)
        held.sort(key=request.names.index)
        self.names += [request.pool + b"/" + name for name in held]
        if request.env:
            self.env[request.env] = b",".join(held)


def _try_slot(path: bytes) -> int | None:
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        pass
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    return fd if _try_flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB) else None


def _watch(path: bytes) -> int | None:
    """A descriptor in error as soon as nobody has the FIFO open for reading; None if so already."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return None
        raise


def _draw_ticket(pool: bytes, queue: bytes) -> tuple[bytes, int]:
    mutex = _pool_mutex(pool)
    try:
        ticket = b"%012d" % (max(map(int, os.listdir(queue)), default=0) + 1)
        path = os.path.join(queue, ticket)
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.flock(fd, fcntl.LOCK_EX)  # systemd does not tidy away what is locked
        return ticket, fd
    finally:
        os.close(mutex)


def _wait_for_turn(
    pool: bytes, queue: bytes, ticket: bytes, wait: Callable[[list[int]], None]
) -> None:
    while ahead := [name for name in os.listdir(queue) if name < ticket]:
        path = os.path.join(queue, max(ahead))
        watch = _watch(path)
        if watch is None:
            _drop_dead_ticket(pool, path)
            continue
        try:
            wait([watch])
        finally:
            os.close(watch)


def _drop_dead_ticket(pool: bytes, path: bytes) -> None:
    mutex = _pool_mutex(pool)  # a ticket is made and opened under it: one in the making looks dead
    try:
        watch = _watch(path)
        if watch is not None:
            os.close(watch)
        else:
            _unlink(path)
    finally:
        os.close(mutex)


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _pool_mutex(pool: bytes) -> int:
    fd = os.open(os.path.join(pool, b"mutex"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


# The supervisor


class Cancelled(Exception):
    """The end was asked for while waiting. Not an error."""


class Supervisor:
    """Brings a replica to its end from wherever it is. Make one only while holding its lock."""

    def __init__(self, files: Files, status: Status, lock_fd: int) -> None:
        self.files = files
        self.status = status
        self.lock_fd = lock_fd
        self.slots = Slots()
        self.wake_fd = -1
        self.told_to_end = False
        # Whether the latest attempt is below us, and whether all that it starts stays below us.
        self.launched = False
        self.subreaper = False
        self.reaped: dict[int, int] = {}
        self.clock = LogClock(files)

    def own_this_process(self) -> None:
        """Take signals, reap children, and inherit those of keepers that are killed."""
        self.wake_fd, writer = os.pipe()
        for fd in (self.wake_fd, writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._hear)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.subreaper = become_subreaper()

    def _hear(self, *_: object) -> None:
        self.told_to_end = True

    def run(self) -> None:
        """Return when the replica has ended and its end is written down."""
        number = tries = 0
        while True:
            last = self._watch()
            step = decide(self.status, last, self.files.cancelled_at(), alive=False)
            if last is not None and not (isinstance(step, End) and step.state == "succeeded"):
                # What a failed program leaves running would be in the way of the next attempt, or
                # of whoever gets the slots. What a successful one leaves is left on purpose.
                self._end(last, thoroughly=True)
            if last is not None:
                self.clock.look(always=True)
            self.slots.release()
            assert step is not None, "nothing of the attempt is alive"
            if isinstance(step, End):
                self._finish(step, last)
                return
            tries = tries + 1 if step.number == number else 1
            number = step.number
            try:
                failure = self._start(step, last)
            except Cancelled:
                continue
            except OSError as error:
                failure = explain(error)
            if not failure and tries > LAUNCH_TRIES:
                failure = "it was killed again and again before the program could be executed"
            if failure:
                failure = f"attempt {step.number} could not be started: {failure}"
                self._finish(End("failed", None, failure), None)
                return

    def _finish(self, end: End, last: Attempt | None) -> None:
        status = self.status
        status.state, status.exit_code, status.message = end.state, end.exit_code, end.message
        status.pid = None
        status.ended_at = time.time()
        if last is not None:
            status.attempt, status.started_at = last.number, last.started_at
            status.ended_at = last.ended_at or status.ended_at
        self.files.write_status(status)
        self.files.tidy()

    def _say(self, state: str, message: str, attempt: Attempt | None = None) -> None:
        status = self.status
        status.state, status.message, status.pid = state, message, None
        if attempt is not None:
            status.attempt, status.exit_code = attempt.number, attempt.exit_code
            status.started_at, status.ended_at = attempt.started_at, attempt.ended_at
            status.pid = attempt.task.pid if state == "running" else None
        try:
            self.files.write_status(status)
        except OSError as error:
            # Only news: what matters is in the attempts' files.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _wait(self, timeout_s: float, fds: Sequence[int] = ()) -> bool:
        """Sleep until something may have changed; False if nothing told us so."""
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        poll.register(self.wake_fd, select.POLLIN)
        # Rounded up: to wake a little too early is to wake twice.
        told = poll.poll(max(1, -int(-min(timeout_s, LONGEST_WAIT_S) * 1000 // 1)))
        # Only here: a signal heard while we look at things makes us look again.
        try:
            os.read(self.wake_fd, 4096)
        except BlockingIOError:
            pass
        self._reap()
        if self.told_to_end:
            self.told_to_end = False
            self.files.request_cancel(None)
        return bool(told)

    def _wait_beside_task(self, timeout_s: float, fds: Sequence[int] = ()) -> None:
        """The same while an attempt runs, with a look at its log now and then."""
        deadline = time.monotonic() + min(timeout_s, LONGEST_WAIT_S)
        while True:
            self.clock.look()
            rest_s = min(deadline - time.monotonic(), self.clock.rest_s())
            if self._wait(rest_s, fds) or time.monotonic() >= deadline:
                return

    def _wait_unless_cancelled(self, fds: Sequence[int], timeout_s: float = LONGEST_WAIT_S) -> None:
        # Asked on both sides of the wait, since the signal may have come before it.
        if self.files.cancelled_at() is None:
            self._wait(timeout_s, fds)
        if self.files.cancelled_at() is not None:
            raise Cancelled

    def _reap(self) -> bool:
        """Collect children that have ended; True if none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self.reaped[pid] = os.waitstatus_to_exitcode(status)

    def _watch(self) -> Attempt | None:
        """Stay with the latest attempt until it has ended, ending it if need be; return it."""
        patience_ends: float | None = None
        while True:
            keeper_lock = self.files.try_lock(KEEPER_LOCK)
            last = self.files.last_attempt()
            if keeper_lock is not None:
                self.files.unlock(keeper_lock)
                if last is None or last.exit_code is not None:
                    return last
                if not self._outlives_keeper(last):
                    return self.files.last_attempt()
            if last is not None and last.exit_code is None and self._is_to_end(last):
                self._end(last, thoroughly=False)
                now = time.monotonic()
                patience_ends = patience_ends or now + KEEPER_PATIENCE_S
                if now > patience_ends:
                    # Nothing is left, so the keeper has a code to write but does not: stopped?
                    last.keeper.send(signal.SIGKILL)
            self._wait_for_change(last, keeper_gone=keeper_lock is not None)

    def _outlives_keeper(self, last: Attempt) -> bool:
        """Whether an attempt whose keeper is gone still runs; if not, record its end if we can."""
        running = last.is_running()  # before reaping, so that what ends in between is not missed
        self._reap()
        code = self.reaped.get(last.task.pid) if self.launched else None
        if code is not None:
            self.files.record_exit(last.number, code)
            return False
        if running and last.slots and not self.slots.fds:
            spec = self._spec()
            if spec is not None:
                self.slots.hold_again(spec.slots_dir, last.slots)
        return running

    def _is_to_end(self, last: Attempt) -> bool:
        if self.files.cancelled_at() is not None:
            return True
        limit_s = self.status.limit_s
        if limit_s is None or time.monotonic() - last.clock_s < limit_s:
            return False
        return last.expired or self.files.record_expiry(last.number)

    def _wait_for_change(self, last: Attempt | None, *, keeper_gone: bool) -> None:
        if last is None or last.exit_code is not None or last.expired:
            self._wait_beside_task(
                0.01
            )  # for a keeper that is about to start its task, or about to leave
            return
        if self.files.cancelled_at() is not None:
            self._wait_beside_task(0.01)
            return
        timeout_s = LONGEST_WAIT_S
        if self.status.limit_s is not None:
            timeout_s = last.clock_s + self.status.limit_s - time.monotonic()
        if self.launched:
            self._wait_beside_task(timeout_s)  # its end comes as a signal
            return
        fd = (last.task if keeper_gone else last.keeper).open()
        if fd is None:
            self._wait_beside_task(min(timeout_s, 0.2))
            return
        try:
            self._wait_beside_task(timeout_s, [fd])
        finally:
            os.close(fd)

    def _end(self, last: Attempt, *, thoroughly: bool) -> None:
        """End everything that runs for us, and wait until it has gone."""
        below_us = self.launched and self.subreaper
        if distance(last.place) == "gone" or (below_us and self._reap()):
            return
        pid = os.getpid()
        if thoroughly or not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
            below_us = False
        grace = self.files.read(CANCEL)
        end_processes(
            last.task,
            self.status.token,
            float(grace) if grace else self.status.grace_s,
            trust_group=self.launched,
            below_us=below_us,
            wait=self._wait_beside_task,
        )

    def _spec(self) -> Spec | None:
        data = self.files.read(SPEC)
        return None if data is None else Spec(data)

    def _start(self, step: Start, last: Attempt | None) -> str:
        """Start an attempt; return why it could not be, or nothing."""
        spec = self._spec()
        if spec is None:
            return "the description of what to run is gone"
        if last is not None and last.ended_at is not None:
            pause_s = spec.pause_before(step.number)
            # The clock may have been set; the pause is never longer than it was meant to be.
            pause_s = min(pause_s, max(0.0, last.ended_at + pause_s - time.time()))
            self._say("pending", f"{step.reason}; the next one starts in {pause_s:.3g} s", last)
            resume = time.monotonic() + pause_s
            while (rest_s := resume - time.monotonic()) > 0:
                self._wait_unless_cancelled((), rest_s)
        if spec.slots:
            wanted = ", ".join(f"{slot.count} of {slot.pool.decode()}" for slot in spec.slots)
            self._say("pending", f"waits for slots: {wanted}")
            self.slots = Slots()
            self.slots.take(spec.slots_dir, spec.slots, self._wait_unless_cancelled)
        failure = self._launch(spec, step.number)
        started = self.files.last_attempt()
        if started is None or started.number != step.number:
            return failure
        self._say("running", "", started)
        return ""

    def _launch(self, spec: Spec, number: int) -> str:
        """Fork a keeper for an attempt; return when its program is executed, or why it was not."""
        while (keeper_lock := self.files.try_lock(KEEPER_LOCK)) is None:
            self._wait_unless_cancelled((), 0.01)
        opened = [keeper_lock]
        try:
            # Asked with the lock in hand: from here on a canceller sees us, or we see the request.
            if self.files.cancelled_at() is not None:
                raise Cancelled
            self.files.reserve_attempt(number)
            logs = open_logs(self.files.directory, separate=spec.separate)
            opened += logs
            if number > 1:
                announce(self.files.directory, spec, number)
            self.clock.look(always=True)
            reader, writer = os.pipe()
            opened.append(writer)
            self.launched = True
            self.reaped.clear()
            # No handler of ours may run in the child.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
            if os.fork() == 0:
                os.close(self.lock_fd)
                Keeper(self.files, self.status, spec, number, self.slots).run(logs, writer)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        finally:
            for fd in opened:
                os.close(fd)
        try:
            # It closes when the program is executed, or when nobody is left who could.
            return read_all(reader).decode("utf-8", "replace")
        finally:
            os.close(reader)


def become_subreaper() -> bool:
    """Get the children of our children when those die; False where there is no such thing."""
    import ctypes

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(36, 1, 0, 0, 0) == 0)  # PR_SET_CHILD_SUBREAPER


def open_logs(directory: bytes, *, separate: bool) -> list[int]:
    """Open the files for standard output and standard error; make the links beside them."""
    if separate:
        return [_open_log(os.path.join(directory, name)) for name in (b"stdout.log", b"stderr.log")]
    log = _open_log(os.path.join(directory, b"combined.log"))
    for name in (b"stdout.log", b"stderr.log"):
        try:
            os.symlink(b"combined.log", os.path.join(directory, name))
        except OSError:
            continue  # it is there, or there are no links here: combined.log has everything
    return [log, os.dup(log)]


def _open_log(path: bytes, mode: int = os.O_WRONLY) -> int:
    return os.open(path, mode | os.O_APPEND | os.O_CREAT, 0o644)


def announce(directory: bytes, spec: Spec, number: int) -> None:
    """Separate the output of an attempt from that of the one before."""
    line = f"----- nemo_run: attempt {number} of {spec.retries + 1} -----\n".encode()
    for name in (b"stdout.log", b"stderr.log") if spec.separate else (b"combined.log",):
        log = _open_log(os.path.join(directory, name), os.O_RDWR)
        try:
            size = os.fstat(log).st_size
            ends_a_line = size == 0 or os.pread(log, 1, size - 1) == b"\n"
            os.write(log, line if ends_a_line else b"\n" + line)
        except OSError:
            continue  # a full disk: the program will say so itself
        finally:
            os.close(log)


class LogClock:
    """Notes how long the log was when, so that its lines can be chosen by time.

    A line ``<seconds since the epoch> <bytes>`` says that so many bytes were written by then. The
    times never decrease. Streams in files of their own have no clock, and without room for it, or
    without a supervisor, it pauses.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.log = os.path.join(files.directory, b"combined.log")
        self.noted_bytes: int | None = (
            None  # None: what an earlier supervisor noted is not read yet
        )
        self.looked_at = 0.0
        self.due = 0.0  # monotonic

    def rest_s(self) -> float:
        """How long it is until the next look."""
        return self.due - time.monotonic()

    def look(self, *, always: bool = False) -> None:
        """Note a change of the log if it is time to look; ``always`` for a line in any case."""
        if self.rest_s() > 0 and not always:
            return
        self.due = time.monotonic() + CLOCK_S
        try:
            self._look(always)
        except FileNotFoundError:
            self.due = float("inf")  # there is no such log
        except OSError:
            return  # a full disk: choosing by time is less exact, and that is all

    def _look(self, always: bool) -> None:
        if self.noted_bytes is None:
            self.looked_at, self.noted_bytes = self._last_line()
        stat = os.stat(self.log)
        now = time.time()
        changed = stat.st_size != self.noted_bytes
        if changed or always:
            # The last byte was written when the log was modified: since the look before, and by
            # now, whatever the clock of a file server says.
            when = max(self.looked_at, min(stat.st_mtime, now) if changed else now)
            # Lines of 32 bytes never cross a block, so nobody sees half of one.
            self._append(b"%14.3f %16d\n" % (when, stat.st_size))
            self.noted_bytes = stat.st_size
        self.looked_at = max(self.looked_at, now)

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        fd = os.open(CLOCK, flags, 0o644, dir_fd=self.files.fd)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)

    def _last_line(self) -> tuple[float, int]:
        lines = (self.files.read(CLOCK) or b"").splitlines()
        try:
            when, size = lines[-1].split()
            return float(when), int(size)
        except (IndexError, ValueError):  # it is new, or the machine went down while it was written
            return 0.0, -1


# The keeper and the task


class Keeper:
    """Stays with one attempt: a fork of the supervisor that shares no fate with it."""

    def __init__(self, files: Files, status: Status, spec: Spec, number: int, slots: Slots) -> None:
        self.files = files
        self.status = status
        self.spec = spec
        self.number = number
        self.slots = slots

    def run(self, logs: Sequence[int], writer: int) -> NoReturn:
        """Start the task, wait for its end, write it down; say to ``writer`` if it cannot start."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            _set_signals(signal.SIG_IGN)
            _set_signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            keeper = Process(os.getpid(), birth_of(os.getpid()))
            pid = os.fork()
            if pid == 0:
                self._become_task(logs, writer, keeper)
            for fd in (writer, *logs):
                os.close(fd)
            self.files.record_exit(self.number, _exit_code_of(pid))
        except FileNotFoundError:
            pass  # it never started, and has said why
        except OSError as error:
            _write(writer, explain(error))
        finally:
            os._exit(0)

    def _become_task(self, logs: Sequence[int], writer: int, keeper: Process) -> NoReturn:
        spec = self.spec
        env = {**spec.env, **self.slots.env}
        env[MARK] = self.status.token.encode()
        env[ATTEMPT] = b"%d" % self.number
        try:
            os.setsid()
            _set_signals(signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(logs[0], 1)
            os.dup2(logs[1], 2)
            if spec.umask is not None:
                os.umask(spec.umask)
            os.chdir(spec.cwd)
            program = find_program(spec.argv[0], env)
            if self.files.cancelled_at() is None:
                names = b" ".join(self.slots.names).decode("utf-8", "replace")
                self.files.record_start(self.number, keeper, names)
                _execute(program, spec.argv, env)
        except OSError as error:
            _write(writer, explain(error))
        finally:
            os._exit(125)


def _execute(program: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> NoReturn:
    """Become the program. From here on what goes wrong is the attempt's, as in a shell."""
    try:
        os.execve(program, argv, env)
    except OSError as error:
        _write(2, f"nemo_run: cannot run {os.fsdecode(program)!r}: {error.strerror}\n")
        os._exit(127 if error.errno == errno.ENOENT else 126)


def _exit_code_of(pid: int) -> int:
    if not hasattr(os, "waitid"):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # Not reaped here: if we are killed before the code is written the supervisor still gets it.
    result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if result is None:
        raise ChildProcessError
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _set_signals(handler: signal.Handlers) -> None:
    for signum in range(1, signal.NSIG):
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            _set_signal(signum, handler)


def _set_signal(signum: int, handler: signal.Handlers) -> None:
    try:
        signal.signal(signum, handler)
    except (OSError, ValueError):
        return  # reserved by the C library


def _write(fd: int, message: str) -> None:
    try:
        os.write(fd, message.encode("utf-8", "replace"))
    except OSError:
        return  # nobody there to hear it


def find_program(name: bytes, env: Mapping[bytes, bytes], cwd: bytes = b"") -> bytes:
    """The file ``name`` means in ``env`` and ``cwd``; FileNotFoundError if there is none."""
    if b"/" in name:
        candidates = [name]
    else:
        path = env.get(b"PATH", os.fsencode(os.defpath))
        candidates = [os.path.join(entry or b".", name) for entry in path.split(b":")]
    for candidate in candidates:
        full = os.path.join(cwd, candidate)
        if os.path.isfile(full) and os.access(full, os.X_OK):
            return candidate
    raise FileNotFoundError(errno.ENOENT, "no such program", os.fsdecode(name))


# Taking over


def take_over(directory: str, payload: bytes) -> tuple[Supervisor | None, str]:
    """Accept a new replica, or go on with one that is left alone.

    The second value tells how it went: ``ok``, ``busy`` (somebody else looks after it), ``ended``,
    or ``nothing`` (there is nothing to go on with and no payload to start with).
    """
    files = Files(directory)
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while (lock_fd := files.try_lock(LOCK)) is None:
        status = files.status()
        if status is not None and (status.state in FINAL or is_attended(files, status)):
            return None, "busy"
        # Somebody has only just taken the lock, and may still fail: wait until it is known.
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, "somebody holds its lock and does nothing")
        time.sleep(0.005)
    status = files.status()
    if status is None:
        if not payload:
            return None, "nothing"
        status = _accept(files, Spec(payload))
    elif status.state in FINAL:
        files.tidy()
        return None, "ended"
    elif distance(status.place) == "away":
        return None, "busy"
    else:
        status.place = here()
        status.supervisor = Process(os.getpid(), birth_of(os.getpid()))
        files.write_status(status)
    return Supervisor(files, status, lock_fd), "ok"


def _accept(files: Files, spec: Spec) -> Status:
    umask = os.umask(0o022)
    os.umask(umask)
    status = Status(
        token=os.urandom(8).hex(),
        attempts=spec.retries + 1,
        limit_s=spec.time_limit_s,
        grace_s=spec.grace_s,
    )
    try:
        for fd in open_logs(files.directory, separate=spec.separate):
            os.close(fd)
        files.write_spec(spec.with_umask(umask))
        files.write_status(status)
    except OSError:
        files.tidy()
        raise
    return status


def is_attended(files: Files, status: Status) -> bool:
    """Whether the supervisor that wrote the status lives, or cannot be seen from here."""
    where = distance(status.place)
    if where == "here":
        return status.supervisor.is_alive()
    if where == "hidden":  # process ids tell nothing here, but locks do
        lock_fd = files.try_lock(LOCK, shared=True)
        if lock_fd is None:
            return True
        files.unlock(lock_fd)
    return where == "away"


def main(arguments: Sequence[str]) -> None:
    """Take over the replica in the directory given; what to run comes on standard input."""
    (directory,) = arguments
    # Kept until we can hear them: who cancels at once must not end us instead of the task.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    payload = read_all(0)
    if os.fork():
        os._exit(0)  # so that nobody has to wait for us
    os.setsid()
    supervisor = None
    try:
        supervisor, answer = take_over(directory, payload)
    except OSError as error:
        answer = f"error {explain(error)}"
    except ValueError as error:
        answer = f"error {error}"
    _write(1, answer)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if supervisor is None:
        return
    os.chdir("/")
    try:
        supervisor.own_this_process()
        supervisor.run()
    except BaseException:
        # Nobody listens; the interpreter's last words go where somebody may look.
        log = os.open("supervisor.log", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=supervisor.files.fd)
        os.dup2(log, 2)
        raise
