"""The process that supervisors are forked from, so that many of them take one interpreter to start.

It lives while a launcher keeps the other end of its standard input, a socket.
Through that come descriptors, each the end of a conversation about one replica, and each gets a
fork of its own: killing the fork server, or its launcher, ends no supervisor. What a supervisor
inherits from it (umask, limits, priority) is what the process had that started it.
"""

from __future__ import annotations

import os
import sys

from .disk import say, trouble
from .processes import find_prctl, here
from .takeover import attend

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn
else:
    import _signal as signal
    import _socket as socket  # the public module builds enums, and imports more that does

# A launcher that keeps us that long without asking for anything has forgotten us.
IDLE_S = 30.0


def main() -> NoReturn:
    """Fork a supervisor for every conversation that comes in; leave when no more can come."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors that have ended leave no zombies
    gate = socket.socket(fileno=0)
    gate.settimeout(IDLE_S)
    served = 0
    while (talk := _next(gate)) is not None:
        if served == 1:
            _prepare()
        served += 1
        # Kept until they can be heard: an early cancel must not end a supervisor instead.
        wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        if _fork(talk) == 0:
            gate.detach()
            _raise_child(talk)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(talk)
    os._exit(0)


def _fork(talk: int) -> int | None:
    try:
        return os.fork()
    except OSError as error:
        say(talk, trouble(error))
        return None


def _next(gate: socket.socket) -> int | None:
    """The next conversation; None when there will be none."""
    try:
        data, attached, _, _ = gate.recvmsg(1, socket.CMSG_SPACE(4))
    except (TimeoutError, ConnectionError):
        return None
    if not data:
        return None
    return int.from_bytes(attached[0][2][:4], sys.byteorder)


def _raise_child(talk: int) -> NoReturn:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for fd in (0, 1, 2):
        os.dup2(talk, fd)  # the first of them closes the gate
    os.close(talk)
    attend()
    os._exit(0)


def _prepare() -> None:
    """Do once what every supervisor would do. The first is not made to wait for it."""
    import gc

    find_prctl()
    here()
    # Collecting would write to pages that are shared with all that we fork.
    gc.disable()
    gc.freeze()
