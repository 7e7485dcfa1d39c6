"""Commands in pods: what is said over the WebSocket that an API server gives us to one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote, urlencode

from nemo_run._transport.websocket import WebSocket
from nemo_run.exceptions import BackendError

PROTOCOL = "v4.channel.k8s.io"
SILENCE_S = 600.0
"""How long a command may say nothing, and how long it may not read what it is sent."""
_LOOK_S = 5.0
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_CHUNK = 1 << 16
_MOST_SAID = 4000


class CommandError(BackendError):
    """A command in a pod failed; ``detail`` is what it said."""


def exec_query(container: str, argv: Sequence[str]) -> str:
    """Return the query that asks for a command in a container."""
    options = [("stdin", "true"), ("stdout", "true"), ("stderr", "true"), ("tty", "false")]
    if container:
        options.append(("container", container))
    return urlencode([*(("command", word) for word in argv), *options], quote_via=quote)


def talk(
    connection: WebSocket,
    stdin: Iterable[bytes],
    *,
    backend: str,
    silence_s: float = SILENCE_S,
) -> Iterator[bytes]:
    """Yield the output of the command behind a connection; ``stdin`` is sent meanwhile.

    Raises:
        CommandError: it failed; says what it wrote to stderr.
        OSError: the connection was lost, or the command silent for too long.
    """
    sender = threading.Thread(target=_send, args=(connection, stdin, silence_s), daemon=True)
    sender.start()
    errors = b""
    try:
        while (message := _next_message(connection, sender, silence_s)) is not None:
            channel, data = message[:1], message[1:]
            if channel == bytes([_STDOUT]) and data:
                yield data
            elif channel == bytes([_STDERR]):
                errors = (errors + data)[-_MOST_SAID:]
            elif channel == bytes([_STATUS]):
                _check(data, errors, backend)
                return
    finally:
        connection.close()
        # The caller may close what ``stdin`` reads as soon as this has returned.
        sender.join()
    raise ConnectionError("no status came")


def _check(status: bytes, errors: bytes, backend: str) -> None:
    """Raise CommandError unless the server says that the command succeeded."""
    try:
        answer = json.loads(status)
    except (ValueError, RecursionError) as err:
        raise ConnectionError(f"no status came, but {status[:200]!r}") from err
    if not isinstance(answer, dict) or "status" not in answer:
        raise ConnectionError(f"no status came, but {status[:200]!r}")
    if answer["status"] == "Success":
        return
    said = errors.decode("utf-8", "replace").strip() or str(answer.get("message"))[:_MOST_SAID]
    raise CommandError(
        f"A command in a pod failed: {said}", backend=backend, operation="exec", detail=said
    )


def _next_message(
    connection: WebSocket, sender: threading.Thread, silence_s: float
) -> bytes | None:
    began = time.monotonic()
    while True:
        try:
            return connection.receive(timeout_s=min(_LOOK_S, silence_s))
        except TimeoutError:
            # A command that reads may say nothing for as long as we send.
            if time.monotonic() - began > silence_s and not sender.is_alive():
                raise TimeoutError(f"nothing came for {silence_s:.0f} s") from None


def _send(connection: WebSocket, stdin: Iterable[bytes], silence_s: float) -> None:
    try:
        for block in stdin:
            for start in range(0, len(block), _CHUNK):
                data = bytes([_STDIN]) + block[start : start + _CHUNK]
                connection.send(data, timeout_s=silence_s)
    except OSError:
        return  # the thread that receives finds out why
