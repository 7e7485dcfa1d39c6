"""Standard output, whatever became of it: its reader has gone, its disk is full, it is closed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run.exceptions import NemoRunError

if TYPE_CHECKING:
    from typing_extensions import Buffer


class OutputError(NemoRunError, OSError):
    """Standard output cannot be written to."""


class ReaderGoneError(BrokenPipeError):
    """The reader of standard output has gone."""


class _Output(io.FileIO):
    """The end of standard output; after a failure it leads nowhere."""

    goes_on = False

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._lead_nowhere()
            if not self.goes_on:
                raise ReaderGoneError from None
            return memoryview(data).nbytes
        except OSError as err:
            self._lead_nowhere()
            raise OutputError(f"Cannot write to standard output: {err.strerror}.") from err

    def _lead_nowhere(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


@contextmanager
def guarded_output() -> Iterator[None]:
    """Flush what is printed inside, and let its failures be errors that a command can explain.

    What cannot be encoded is escaped. Only the interpreter's own standard output is looked after.

    Raises:
        ReaderGoneError: its reader has gone.
        OutputError: it cannot be written.
    """
    before = sys.stdout
    if before is None:  # where its descriptor is closed
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open until nothing is printed any more
    elif before is sys.__stdout__ and isinstance(before, io.TextIOWrapper):
        before.flush()
        sys.stdout = _guarded(before)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = before


def _guarded(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        # Unbuffered where Python was asked for that.
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


@contextmanager
def output_may_be_lost() -> Iterator[None]:
    """Drop what is printed inside once its reader has gone; the work itself goes on."""
    before, _Output.goes_on = _Output.goes_on, True
    try:
        yield
    finally:
        _Output.goes_on = before
