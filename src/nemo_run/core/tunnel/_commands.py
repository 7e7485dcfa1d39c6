"""Commands as users give them to a tunnel, and what becomes of them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import IO, Any

from nemo_run._shell import render
from nemo_run.core.tunnel._result import Result
from nemo_run.exceptions import CommandFailedError, ConfigError, ConnectionLostError

BLOCK_BYTES = 1 << 16
SHOWN_CHARACTERS = 120

Command = str | Sequence[str]
"""Text for a shell, or a program with its arguments, which arrive as they are."""

# What is hidden, in Invoke's words, and which of the two streams is shown then.
_SHOWN: dict[bool | str | None, tuple[bool, bool]] = {
    True: (False, False),
    "both": (False, False),
    "out": (False, True),
    "stdout": (False, True),
    "err": (True, False),
    "stderr": (True, False),
    False: (True, True),
    None: (True, True),
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a command: what `Tunnel.run` takes beside it."""

    hide: bool | str | None = True
    timeout: float | None = None
    input: bytes | None = None
    pty: bool = False

    @classmethod
    def of(cls, hide: bool | str | None, given: Mapping[str, Any]) -> RunOptions:
        """Return what ``given`` asks for.

        Raises:
            ConfigError: that is not known here.
        """
        known = {each.name for each in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise ConfigError(
                f"run() does not know {', '.join(map(repr, unknown))}. "
                f"It takes: {', '.join(sorted(known))}."
            )
        if hide not in _SHOWN:
            raise ConfigError(f"hide is True, False, 'out' or 'err', not {hide!r}.")
        options = dict(given)
        if options.get("input") is not None:
            options["input"] = as_bytes(options["input"])
        return cls(hide=hide, **options)

    @property
    def stdin(self) -> int:
        return subprocess.DEVNULL if self.input is None else subprocess.PIPE


def as_text(command: Command) -> str:
    """Return a command as a shell reads it."""
    return command if isinstance(command, str) else render(command)


def as_bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


def collect(process: subprocess.Popen[bytes], options: RunOptions) -> tuple[str, str]:
    """Return all that a process writes to its two streams, shown as it comes where wanted.

    Raises:
        subprocess.TimeoutExpired: it takes longer; it is not ended.
    """
    shown = _SHOWN[options.hide]
    if not any(shown):
        out, err = process.communicate(options.input, timeout=options.timeout)
        return _decoded(out), _decoded(err)
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    threads = []
    for number, (source, sink) in enumerate(
        [(process.stdout, sys.stdout), (process.stderr, sys.stderr)]
    ):
        to = sink if shown[number] else None
        args = [source, parts[number], to]
        threads.append(threading.Thread(target=_copy, args=args, daemon=True))
        threads[-1].start()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it need not read all of it
            process.stdin.write(options.input or b"")
            process.stdin.close()
    process.wait(timeout=options.timeout)
    for thread in threads:
        thread.join()
    return _decoded(b"".join(parts[0])), _decoded(b"".join(parts[1]))


def checked(result: Result, *, host: str, warn: bool) -> Result:
    """Return ``result``; raise CommandFailedError if it failed, unless ``warn``."""
    if result.ok or warn:
        return result
    said = result.stderr.strip() or result.stdout.strip()
    last = f": {said.splitlines()[-1]}" if said else ""
    raise CommandFailedError(
        f"{_short(result.command)} ended with exit code {result.exited} on {host}{last}",
        result=result,
    )


def too_long(command: str, host: str, timeout_s: float | None) -> ConnectionLostError:
    """Return the error for a command that was not waited for any longer."""
    return ConnectionLostError(
        f"{_short(command)} did not end within {timeout_s:g} s on {host}. It may have run, or "
        "still be running.",
        operation="run",
    )


def _short(command: str) -> str:
    if len(command) > SHOWN_CHARACTERS:
        command = f"{command[: SHOWN_CHARACTERS - 3]}..."
    return repr(command)


def _copy(source: IO[bytes], parts: list[bytes], sink: IO[str] | None) -> None:
    while block := source.read1(BLOCK_BYTES):  # type: ignore[attr-defined]  # pipes are buffered
        parts.append(block)
        if sink is not None:
            sink.write(_decoded(block))
            sink.flush()


def _decoded(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
