"""What goes to and fro between us and a command that runs."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import selectors
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from nemo_run._transport.ssh.options import RunOptions, Watcher
from nemo_run.exceptions import BackendUnavailableError

BLOCK_BYTES = 1 << 16
MOST_BYTES = 256 << 20
"""How much is kept of what a command writes: a server may send without end."""


def collect(process: subprocess.Popen[bytes], options: RunOptions) -> tuple[str, str]:
    """Return all that a process writes to its two streams, shown and answered as it comes.

    Raises:
        subprocess.TimeoutExpired: it takes longer; it is not ended.
        WatcherGaveUp: a watcher raised something; the process is killed.
        BackendUnavailableError: it writes more than is kept; the process is killed.
    """
    quiet = not any(options.sinks) and not options.watchers and options.in_stream is None
    if quiet:
        out, err = heard(process, options.input, timeout_s=options.timeout)
        return _decoded(out, options), _decoded(err, options)
    talk = _Talk(process, options)
    threads = [threading.Thread(target=talk.feed, daemon=True)] if process.stdin else []
    for listener, stream in zip(talk.listeners, (process.stdout, process.stderr), strict=True):
        if stream is not None:
            threads.append(threading.Thread(target=talk.hear, args=(listener, stream), daemon=True))
    for thread in threads:
        thread.start()
    process.wait(timeout=options.timeout)
    for thread in threads[1 if process.stdin else 0 :]:
        thread.join()
    talk.end()
    return talk.listeners[0].text, talk.listeners[1].text


def heard(
    process: subprocess.Popen[bytes],
    data: bytes | None = None,
    *,
    timeout_s: float | None = None,
    most_bytes: int = MOST_BYTES,
) -> tuple[bytes, bytes]:
    """Give a process its input and return what it writes, as ``communicate`` does, within limits.

    Raises:
        subprocess.TimeoutExpired: it takes longer; it is not ended.
        BackendUnavailableError: it writes more; the process is killed.
    """
    said = {process.stdout: bytearray(), process.stderr: bytearray()}
    until = None if timeout_s is None else time.monotonic() + timeout_s
    rest = memoryview(data or b"")
    with selectors.DefaultSelector() as waiting:
        for output in filter(None, said):
            waiting.register(output, selectors.EVENT_READ)
        if process.stdin is not None:
            waiting.register(process.stdin, selectors.EVENT_WRITE)
        while waiting.get_map():
            ready = waiting.select(None if until is None else until - time.monotonic())
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired(process.args, timeout_s or 0)
            for key, _ in ready:
                stream: Any = key.fileobj
                if stream is process.stdin:
                    rest = _written(stream, rest)
                    over = not rest
                else:
                    block = os.read(key.fd, BLOCK_BYTES)
                    said[stream] += block
                    over = not block
                if over:
                    waiting.unregister(stream)
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            check_size(sum(map(len, said.values())), process, most_bytes)
    process.wait(None if until is None else max(0.0, until - time.monotonic()))
    return bytes(said[process.stdout]), bytes(said[process.stderr])


def _written(stream: Any, data: memoryview) -> memoryview:
    """Write as much as a pipe takes without waiting; return the rest, none if it is not read."""
    try:
        return data[os.write(stream.fileno(), data[: select.PIPE_BUF]) :] if data else data
    except BrokenPipeError:
        return data[:0]


def check_size(
    size_bytes: int, process: subprocess.Popen[bytes], most_bytes: int = MOST_BYTES
) -> None:
    """Kill a process that has written more than is kept, and raise BackendUnavailableError."""
    if size_bytes > most_bytes:
        process.kill()
        raise BackendUnavailableError(
            f"A command wrote more than {most_bytes >> 20} MiB, which is more than is kept of its "
            "output. Have it write to a file, and copy that.",
            backend="ssh",
            operation="run",
        )


class WatcherGaveUp(Exception):
    """Internal: a watcher raised ``error`` after it was shown ``text``."""

    def __init__(self, error: Exception, text: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.text = text


class Listener:
    """One stream of a command: keeps it, shows it, and has watchers answer it."""

    def __init__(
        self, options: RunOptions, sink: IO[str] | None, answer: Callable[[bytes], None]
    ) -> None:
        self._options = options
        self._sink = sink
        self._answer = answer
        self._decoder = codecs.getincrementaldecoder(options.encoding)("replace")
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All that was heard."""
        return "".join(self._parts)

    def hear(self, data: bytes, *, final: bool = False) -> None:
        """Take the next piece."""
        piece = self._decoder.decode(data, final)
        if not piece:
            return
        self._parts.append(piece)
        if self._sink is not None:
            self._sink.write(piece)
            self._sink.flush()
        if self._options.watchers:
            self._parts = [self.text]  # watchers look at all of it, each time
            for watcher in self._options.watchers:
                self._ask(watcher)

    def _ask(self, watcher: Watcher) -> None:
        try:
            for words in watcher.submit(self._parts[0]):
                self._answer(words.encode(self._options.encoding))
        except Exception as err:
            raise WatcherGaveUp(err, self.text) from err


class _Talk:
    """A process with pipes. Each stream has a thread: watchers of Invoke's keep a place in each."""

    def __init__(self, process: subprocess.Popen[bytes], options: RunOptions) -> None:
        self._process = process
        self._options = options
        self._stdin_lock = threading.Lock()
        self._error: BaseException | None = None
        self.listeners = [Listener(options, sink, self._answer) for sink in options.sinks]

    def hear(self, listener: Listener, stream: Any) -> None:
        try:
            size = 0
            while block := stream.read1(BLOCK_BYTES):
                size += len(block)
                check_size(size, self._process)
                listener.hear(block)
            listener.hear(b"", final=True)
        except BaseException as err:  # noqa: BLE001 - raised again where the caller waits
            self._error = self._error or err
            self._process.kill()

    def feed(self) -> None:
        """Give the process what it is to read; keep its stdin open if watchers may answer."""
        with contextlib.suppress(BrokenPipeError, ValueError):  # it need not read all of it
            for block in blocks(self._options):
                self._write(block)
            if self._options.input is not None or self._options.in_stream is not None:
                self._close()

    def end(self) -> None:
        self._close()
        if self._error is not None:
            raise self._error

    def _answer(self, words: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has closed its stdin, or we
            self._write(words)

    def _write(self, data: bytes) -> None:
        with self._stdin_lock:
            if self._process.stdin is not None:
                self._process.stdin.write(data)
                self._process.stdin.flush()

    def _close(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._stdin_lock:
            if self._process.stdin is not None:
                self._process.stdin.close()


def blocks(options: RunOptions) -> Any:
    """Yield what a command is to read: its input, then what its stream has."""
    if options.input is not None:
        yield options.input
    if options.in_stream is None:
        return
    # A file of pipes or terminals gives what there is; others give blocks.
    read = getattr(options.in_stream, "read1", options.in_stream.read)
    while block := read(BLOCK_BYTES):
        yield block.encode(options.encoding) if isinstance(block, str) else block


def _decoded(data: bytes | None, options: RunOptions) -> str:
    return (data or b"").decode(options.encoding, "replace")
