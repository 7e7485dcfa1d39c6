"""Commands that get a terminal of their own, whose output we keep."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping, Sequence

from nemo_run._transport.ssh.exchange import Listener, blocks
from nemo_run._transport.ssh.options import RunOptions

BLOCK_BYTES = 1 << 16
DRAIN_S = 0.2
LAST_WORDS_S = 2.0
LOOK_S = 0.2
READY_S = 30.0
ROWS_AND_COLUMNS = (24, 80)
END_OF_FILE = b"\x04"

# The terminal that a session's first process opens becomes the one its keys are for. Popen opens
# it before there is a session, so a process in between takes it and turns into the command.
_TAKE_TERMINAL = (
    "import fcntl,os,sys,termios;fcntl.ioctl(0,termios.TIOCSCTTY,0);"
    "os.execvp(sys.argv[1],sys.argv[1:])"
)


def keyboard(options: RunOptions) -> int | None:
    """Return the terminal whose keys go to the command: the user's, if a command is theirs to use.

    One that is hidden, watched or given its input is the program's to talk to.
    """
    if options.stdin != subprocess.DEVNULL or options.sinks[0] is not sys.stdout:
        return None
    if threading.current_thread() is not threading.main_thread():
        return None
    with contextlib.suppress(AttributeError, ValueError, OSError):
        descriptor = sys.stdin.fileno()
        if os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp():
            return descriptor
    return None


def run(
    argv: Sequence[str],
    options: RunOptions,
    *,
    env: Mapping[str, str] | None = None,
    passes_on: bool = False,
) -> tuple[int, str]:
    """Run a program on a terminal of its own; return its exit code and all that it wrote.

    Args:
        argv: the program.
        options: how to run it.
        env: its variables, if not ours.
        passes_on: whether it is one, such as ``ssh``, that leads to another terminal: what it says
            itself is left out, and nothing is typed before it takes every key as it is.

    Raises:
        subprocess.TimeoutExpired: it takes longer; it is killed.
    """
    keys = keyboard(options)
    ours, theirs = os.openpty()
    try:
        _shape(theirs, keys)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.DEVNULL if passes_on else theirs,
            start_new_session=True,
            env=env,
        )
        os.close(theirs)
        theirs = -1
        with process, _as_is(keys), _resized(ours, keys):
            try:
                if passes_on and options.stdin == subprocess.PIPE:
                    _wait_until_as_is(process, ours)
                text = _relay(process, ours, keys, options)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, text
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)


def _relay(
    process: subprocess.Popen[bytes], ours: int, keys: int | None, options: RunOptions
) -> str:
    """Pass on what the command writes, and what it is to read, until it has ended."""
    listener = Listener(options, options.sinks[0], lambda words: _write(ours, words))
    if options.input is not None or options.in_stream is not None:
        # With an end of its own: it may still write when the command, and ours, are gone.
        feeder = threading.Thread(target=_feed, args=(os.dup(ours), options), daemon=True)
        feeder.start()
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    ended_at: float | None = None
    while True:
        watched = [ours] if keys is None else [ours, keys]
        ready = select.select(watched, [], [], LOOK_S if ended_at is None else DRAIN_S)[0]
        if keys is not None and keys in ready:
            typed = os.read(keys, BLOCK_BYTES)
            if typed:
                _write(ours, typed)
            else:
                keys = None
        if ours in ready:
            data = _read(ours)
            if not data:
                break
            listener.hear(data)
        elif ended_at is not None:
            break
        if ended_at is None and process.poll() is not None:
            ended_at = time.monotonic()
        # What a child in the background still writes is not waited for.
        if ended_at is not None and time.monotonic() - ended_at > LAST_WORDS_S:
            break
        if ended_at is None and deadline is not None and time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(process.args, options.timeout or 0)
    listener.hear(b"", final=True)
    remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
    process.wait(timeout=remaining)
    return listener.text


def _wait_until_as_is(process: subprocess.Popen[bytes], ours: int) -> None:
    """Wait until the program has turned its terminal's own handling of keys off, or has ended."""
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        if not termios.tcgetattr(ours)[3] & termios.ICANON:
            return
        time.sleep(0.01)


def _feed(end: int, options: RunOptions) -> None:
    last = b"\n"
    try:
        for block in blocks(options):
            _write(end, block)
            last = block or last
        # In the middle of a line, the first one only ends the line.
        _write(end, END_OF_FILE if last.endswith(b"\n") else END_OF_FILE * 2)
    finally:
        os.close(end)


def _read(ours: int) -> bytes:
    try:
        return os.read(ours, BLOCK_BYTES)
    except OSError:  # how Linux says that no process has the other end open
        return b""


def _write(ours: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(ours, data) :]


def _shape(theirs: int, keys: int | None) -> None:
    """Make the new terminal like the user's, if there is one."""
    if keys is not None:
        termios.tcsetattr(theirs, termios.TCSANOW, termios.tcgetattr(keys))
    _set_size(theirs, keys)


def _set_size(terminal: int, keys: int | None) -> None:
    rows, columns = ROWS_AND_COLUMNS
    if keys is not None:
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(keys)
    size = struct.pack("HHHH", rows or ROWS_AND_COLUMNS[0], columns or ROWS_AND_COLUMNS[1], 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _as_is(keys: int | None) -> Iterator[None]:
    """Have every key of the user's reach the command while entered, Ctrl-C too."""
    if keys is None:
        yield
        return
    before = termios.tcgetattr(keys)
    tty.setraw(keys)
    try:
        yield
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resized(ours: int, keys: int | None) -> Iterator[None]:
    """Have the terminal follow the size of the user's while entered."""
    if keys is None:
        yield
        return
    before = signal.signal(signal.SIGWINCH, lambda *_: _set_size(ours, keys))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
