"""The state directory of a replica: reading, writing and locking what is in it."""

# Directories are descriptors here.
# ruff: noqa: PTH118, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import time

from .disk import machine_directory, make_private_directory, read_all, try_flock, write_all
from .processes import Process, birth_of, here
from .records import FINAL, STATUS_SIZE, Attempt, Spec, Status, split_name

STATE_DIR = ".replica"
LOCK = "lock"
KEEPER_LOCK = "keeper.lock"
SPEC = "spec"
STATUS = "status"
CANCEL = "cancel"

STARTED_SIZE = 1024


class Files:
    """The state directory of one replica. Reading is for everybody, writing for the lock holder."""

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

    def accept(self, spec: Spec, status: Status) -> None:
        """Write down what to run and that somebody looks after it.

        Not for longer than this machine has power: all that could happen next ends with it.
        """
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
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def reserve_attempt(self, number: int) -> None:
        """Set aside the space in which attempt ``number`` will say that it started."""
        self._reserve(f"attempt-{number}.ready", STARTED_SIZE, 0o644)

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
        self._fill(ready, "\n".join(lines).encode("utf-8", "replace"), 0o644, sync=True)
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
            return fd if try_flock(fd, mode) else None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        # Some network file systems come without locks. All who take part are on this machine, so a
        # lock on its own disk does as well.
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
        self.sync()

    def _fill(self, name: str, data: bytes, mode: int, *, sync: bool) -> None:
        # No O_TRUNC: overwriting the reserved blocks works where new ones cannot be had.
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, mode, dir_fd=self.fd)
        try:
            write_all(fd, data)
            os.ftruncate(fd, len(data))
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _reserve(self, name: str, size: int, mode: int) -> None:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, mode, dir_fd=self.fd)
        try:
            write_all(fd, b" " * size)
        finally:
            os.close(fd)


def has_contents(data: bytes | None) -> bytes | None:
    """What a file says; None if it is not there, or lost its contents when the power failed."""
    return data if data is not None and data.strip(b"\0") else None
