"""Slots: things of which a machine has only so many, GPUs above all.

A pool is a directory of FIFOs. The holder of a slot has its FIFO open and locked. The lock makes it
exclusive, and the kernel tells writers of a FIFO when its last reader has gone, however it went:
waiting for a slot, or for one's turn in the queue, costs nothing until it comes.
"""

# ruff: noqa: PTH108, PTH110, PTH118, PTH208, SIM105

from __future__ import annotations

import errno
import fcntl
import os

from .disk import make_private_directory, try_flock
from .records import SlotRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Slots:
    """Slots held for one attempt, until every process that inherited them has closed them."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self.env: dict[bytes, bytes] = {}
        self.names: list[bytes] = []
        self.ticket: Ticket | None = None

    def queue_up(self, root: bytes, requests: Sequence[SlotRequest]) -> None:
        """Take one's place in the queue of the first pool that will be asked.

        Only there: with places in two queues, two supervisors could each wait behind the other.
        """
        make_private_directory(root)
        for request in _in_order(requests)[:1]:
            self.ticket = Ticket(root, request.pool)

    def take(
        self, root: bytes, requests: Sequence[SlotRequest], wait: Callable[[list[int]], None]
    ) -> None:
        """Wait for all that is requested, first come first served in each pool.

        ``wait`` returns when one of the descriptors has something to say, or raises to give up.
        """
        make_private_directory(root)
        self.env.clear()
        self.names.clear()
        try:
            for request in _in_order(requests):
                ticket = self.ticket = self.ticket or Ticket(root, request.pool)
                ticket.wait_for_turn(wait)
                self._collect(ticket.pool, request, wait)
                self.leave_queue()
        finally:
            self.leave_queue()

    def leave_queue(self) -> None:
        """Let those go ahead that asked later."""
        if self.ticket is not None:
            self.ticket.drop()
            self.ticket = None

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


class Ticket:
    """A place in the queue of a pool, for as long as the process lives that drew it."""

    def __init__(self, root: bytes, pool: bytes) -> None:
        self.pool = make_private_directory(os.path.join(root, pool))
        self.queue = make_private_directory(os.path.join(self.pool, b"queue"))
        self.name, self.fd = _draw_ticket(self.pool, self.queue)

    def wait_for_turn(self, wait: Callable[[list[int]], None]) -> None:
        while ahead := [name for name in os.listdir(self.queue) if name < self.name]:
            path = os.path.join(self.queue, max(ahead))
            watch = _watch(path)
            if watch is None:
                _drop_dead_ticket(self.pool, path)
                continue
            try:
                wait([watch])
            finally:
                os.close(watch)

    def drop(self) -> None:
        _unlink(os.path.join(self.queue, self.name))
        os.close(self.fd)


def _in_order(requests: Sequence[SlotRequest]) -> list[SlotRequest]:
    """All supervisors take pools in the same order, so none wait in a circle."""
    return sorted(requests, key=lambda request: request.pool)


def _try_slot(path: bytes) -> int | None:
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        pass
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    return fd if try_flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB) else None


def _watch(path: bytes) -> int | None:
    """A descriptor in error as soon as no process has the FIFO open to read; None if so already."""
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
