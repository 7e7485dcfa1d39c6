"""Files that grow at the other end of a connection, read as they grow."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator

from nemo_run._shell import render
from nemo_run._transport.ssh import transfer
from nemo_run._transport.ssh.connection import Connection, NotStarted
from nemo_run._transport.ssh.transfer import MARK, SAY_MARK
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendUnavailableError, ConnectionLostError

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
ASK_S = 2.0
"""How long nothing has to come until we ask whether it is over."""
LOOK_S = 1.0
"""How often we look where there is no stream."""
PAUSE_S = (1.0, 30.0)

# An old `tail` does not notice that its reader has gone; its stdin, closed with the connection,
# tells the shell, which ends it.
# A file that is not there is not waited for by `tail`, which would begin at its first byte.
_TAIL = (
    f'[ -e "$1" ] || exit 1; {SAY_MARK}; '
    'tail -c +"$2" -f -- "$1" 2>/dev/null & cat >/dev/null; kill $!'
)


def follow(
    connection: Connection, remote: str, *, offset: int, ended: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield what is in a file from ``offset`` on, and what is appended until ``ended``.

    1. Every byte comes once, in order, however often the connection breaks on the way.
    2. A file that is not there yet is waited for.
    3. It ends when ``ended`` said so before all that there was had been read.
    4. It takes one session of the connection; where none is to be had it looks now and then.

    Raises:
        AuthenticationError: the host does not let us in any more.
    """
    waiting = Waiting(*PAUSE_S, growth=2)
    while True:
        try:
            # Asked before reading: what was written until the end is then in the file.
            over = ended()
            while data := transfer.read(connection, remote, offset, BLOCK_BYTES):
                offset += len(data)
                yield data
            if over:
                return
            begin = time.monotonic()
            for data in _stream(connection, remote, offset, ended):
                offset += len(data)
                yield data
            waiting.restart()
        except BackendUnavailableError as err:
            log.warning("%s Trying again.", err)
            waiting.pause()
        else:
            # A stream that could not be had, or broke at once, is not tried again at once.
            time.sleep(max(0.0, LOOK_S - (time.monotonic() - begin)))


def _stream(
    connection: Connection, remote: str, offset: int, ended: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield what is appended, until ``ended`` or until the connection breaks.

    Nothing comes where all sessions that logs may take are taken.
    """
    text = render(["sh", "-c", _TAIL, "sh", remote, str(offset + 1)])
    with contextlib.ExitStack() as stack:
        if not connection.streams.acquire(blocking=False):
            return
        stack.callback(connection.streams.release)
        # The next command finds out why it broke.
        stack.enter_context(contextlib.suppress(NotStarted, ConnectionLostError))
        process = stack.enter_context(
            connection.open(text, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        if process.stdin is None or process.stdout is None:
            return
        descriptor = process.stdout.fileno()
        before: bytes | None = b""  # what came before the mark
        while True:
            if select.select([descriptor], [], [], ASK_S)[0]:
                data = os.read(descriptor, BLOCK_BYTES)
                if not data:
                    break
                if before is not None:
                    before, mark, data = (before + data).partition(MARK)
                    before = None if mark else before
                if data:
                    yield data
            elif ended():
                break
        process.stdin.close()
        process.stdout.close()
