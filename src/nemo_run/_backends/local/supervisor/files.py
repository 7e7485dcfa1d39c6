"""The state directory of a replica: reading, writing and locking what is in it."""

# Directories are descriptors here.
# ruff: noqa: PTH118, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import time

from .disk import (
    NOT_OURS,
    PASSING,
    machine_directory,
    make_private_directory,
    open_own,
    open_regular,
    read_all,
    try_flock,
    write_all,
)
from .processes import Process, birth_of, here
from .records import FINAL, STATUS_SIZE, Attempt, Spec, Status, split_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

STATE_DIR = ".replica"
LOCK = "lock"
KEEPER_LOCK = "keeper.lock"
SPEC = "spec"
STATUS = "status"
CANCEL = "cancel"

STARTED_SIZE = 1024


class Files:
    """The state directory of one replica. Any process may read; the lock holder writes."""

    def __init__(self, directory: str | bytes) -> None:
        self.directory = os.fsencode(directory)
        state_dir = os.path.join(self.directory, os.fsencode(STATE_DIR))
        self.fd = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        os.close(self.fd)

    def status(self) -> Status | None:
        data = has_contents(self.read(STATUS))
        return None if data is None else Status.parse(data)

    def read(self, name: str) -> bytes | None:
        try:
            fd = open_regular(name, self.fd)
        except FileNotFoundError:
            return None
        try:
            return read_all(fd)
        finally:
            os.close(fd)

    def cancelled_at(self) -> float | None:
        """When a user asked for the end, or None."""
        try:
            return os.stat(CANCEL, dir_fd=self.fd).st_mtime
        except FileNotFoundError:
            return None

    def grace_s(self, status: Status) -> float:
        """Seconds between TERM and KILL: as the request for the end says, or as the spec does."""
        try:
            return float(self.read(CANCEL) or status.grace_s)
        except (OSError, ValueError):
            return status.grace_s  # the task has written there, too

    def last_attempt(self) -> Attempt | None:
        """The latest attempt that was started, or None."""
        while True:
            names = self._names_of_attempts()
            if not names:
                return None
            try:
                return self._attempt(names[max(names)])
            except FileNotFoundError:
                continue  # it ended, and was renamed, since we looked

    def attempts(self) -> list[Attempt]:
        """All attempts that were started, the first one first."""
        while True:
            names = self._names_of_attempts()
            try:
                return [self._attempt(names[number]) for number in sorted(names)]
            except FileNotFoundError:
                continue  # as above

    def _names_of_attempts(self) -> dict[int, str]:
        names = {split_name(name)[0]: name for name in os.listdir(self.fd)}
        names.pop(0, None)
        return names

    def _attempt(self, name: str) -> Attempt:
        fd = open_regular(name, self.fd)
        try:
            attempt = Attempt(name, read_all(fd))
            if attempt.exit_code is not None:
                attempt.ended(os.fstat(fd).st_mtime)
            return attempt
        finally:
            os.close(fd)

    def accept(self, spec: Spec, status: Status) -> None:
        """Write down what to run and that a supervisor has it.

        Not for longer than this machine has power: all that could happen next ends with it.
        """
        # The spec first: a status is the promise that there is something to run.
        self._replace(SPEC, spec.data, 0o600, sync=False)
        self.write_status(status)

    def write_status(self, status: Status) -> None:
        """Replace the status; needs no disk space if it was written before.

        Only an end is there for good. After a power failure another may be the one before, or
        empty: what counts then is in the attempts' files.
        """
        final = status.state in FINAL
        self._replace(STATUS, status.render(), 0o644, sync=final)
        if final:
            return
        try:
            self._reserve(STATUS + ".next", STATUS_SIZE, 0o644)
        except OSError:
            return  # this status is written; only the room for the next one is missing

    def reserve_attempt(self, number: int) -> None:
        """Set aside the space in which attempt ``number`` will say that it started."""
        self._reserve(f"attempt-{number}.ready", STARTED_SIZE, 0o644)

    def record_start(
        self, number: int, keeper: Process, slots: str, log_from: Sequence[int]
    ) -> None:
        """Say that the calling process is attempt ``number`` from here on."""
        pid = os.getpid()
        lines = [
            f"{pid} {birth_of(pid)}",
            f"{keeper.pid} {keeper.birth}",
            here(),
            str(time.time()),
            str(time.monotonic()),
            slots,
            " ".join(["log", *map(str, log_from)]),
            "",
        ]
        ready = f"attempt-{number}.ready"
        self._fill(ready, "\n".join(lines).encode("utf-8", "replace"), 0o644, sync=True)
        self._rename(ready, f"attempt-{number}.started")

    def record_exit(self, number: int, code: int) -> None:
        """Say how attempt ``number`` ended; FileNotFoundError if it never started."""
        for kind in ("started", "expired"):
            name = f"attempt-{number}.{kind}"
            try:
                # The rename last: it alone says that the attempt ended.
                self._note_end(name)
                os.utime(name, dir_fd=self.fd, follow_symlinks=False)
                self._rename(name, f"{name}.exit.{code}")
            except FileNotFoundError:
                if kind == "expired":
                    raise
                continue
            return

    def _note_end(self, name: str) -> None:
        """Add to an attempt's file whether the request to end was there first, and a time.

        The times of files do not tell: the clock may be set between a request and the end. This one
        is monotonic. The file has a block on the disk already, so that this needs no space.
        """
        how = "free" if self.cancelled_at() is None else "cancelled"
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(name, flags, dir_fd=self.fd)
        except OSError as error:
            if error.errno in NOT_OURS:
                return  # the task has put something else there
            raise
        try:
            write_all(fd, f"end {how} {time.monotonic()}\n".encode())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
        finally:
            os.close(fd)

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
            return fd if try_flock(fd, mode) else None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        # Some network file systems come without locks. All processes that take part are on this
        # machine, so a lock on its own disk does as well.
        stat = os.fstat(self.fd)
        local = make_private_directory(os.path.join(machine_directory(), b"locks"))
        path = os.path.join(local, f"{stat.st_dev}-{stat.st_ino}-{name}".encode())
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        return fd if try_flock(fd, mode) else None

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

    def _replace(self, name: str, data: bytes, mode: int, *, sync: bool) -> None:
        self._fill(name + ".next", data, mode, sync=sync)
        os.rename(name + ".next", name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def _rename(self, old: str, new: str) -> None:
        """Rename for good."""
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        try:
            self.sync()
        except OSError as error:
            # Every process sees the new name, so it counts; only a power failure could undo it.
            if error.errno not in PASSING:
                raise

    def _fill(self, name: str, data: bytes, mode: int, *, sync: bool) -> None:
        # No O_TRUNC: overwriting the reserved blocks works where new ones cannot be had.
        fd = open_own(name, mode, self.fd)
        try:
            write_all(fd, data)
            os.ftruncate(fd, len(data))
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _reserve(self, name: str, size: int, mode: int) -> None:
        fd = open_own(name, mode, self.fd)
        try:
            write_all(fd, b" " * size)
        finally:
            os.close(fd)


def has_contents(data: bytes | None) -> bytes | None:
    """What a file says; None if it is not there, or lost its contents when the power failed."""
    return data if data is not None and data.strip(b"\0") else None
