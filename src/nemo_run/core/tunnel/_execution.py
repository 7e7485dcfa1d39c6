"""Run one command to its end and keep what it wrote."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import IO

from nemo_run.exceptions import ConfigError

BLOCK_BYTES = 1 << 16


def collect(
    process: subprocess.Popen[bytes],
    *,
    input: bytes | None = None,
    timeout_s: float | None = None,
    show: tuple[bool, bool] = (False, False),
) -> tuple[str, str]:
    """Return all that a process writes to its two streams, shown as it comes where wanted.

    Raises:
        subprocess.TimeoutExpired: it takes longer; it is not ended.
    """
    if not any(show):
        out, err = process.communicate(input, timeout=timeout_s)
        return _text(out), _text(err)
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    sinks = (sys.stdout, sys.stderr)
    sources = (process.stdout, process.stderr)
    threads = [
        threading.Thread(target=_copy, args=[source, part, sink if shown else None], daemon=True)
        for source, part, sink, shown in zip(sources, parts, sinks, show, strict=True)
        if source is not None
    ]
    for thread in threads:
        thread.start()
    if process.stdin is not None:
        process.stdin.write(input or b"")
        process.stdin.close()
    process.wait(timeout=timeout_s)
    for thread in threads:
        thread.join()
    return _text(b"".join(parts[0])), _text(b"".join(parts[1]))


def shown(hide: bool | str | None) -> tuple[bool, bool]:
    """Return which of the two streams are shown, for ``hide`` as Invoke knows it.

    Raises:
        ConfigError: it is none of Invoke's words.
    """
    words: dict[bool | str | None, tuple[bool, bool]] = {
        True: (False, False),
        "both": (False, False),
        "out": (False, True),
        "stdout": (False, True),
        "err": (True, False),
        "stderr": (True, False),
        False: (True, True),
        None: (True, True),
    }
    if hide not in words:
        raise ConfigError(f"hide is True, False, 'out' or 'err', not {hide!r}.")
    return words[hide]


def _copy(source: IO[bytes], parts: list[bytes], sink: IO[str] | None) -> None:
    while block := source.read1(BLOCK_BYTES):  # type: ignore[attr-defined]  # buffered, as pipes are
        parts.append(block)
        if sink is not None:
            sink.write(_text(block))
            sink.flush()


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
