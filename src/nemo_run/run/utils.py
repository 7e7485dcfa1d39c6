"""Output that goes to a file as well."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, cast


class TeeStdoutStderr:
    """While entered, what is printed to stdout and stderr is appended to a file too."""

    def __init__(self, filename: str) -> None:
        self._path = Path(filename)

    def __enter__(self) -> TeeStdoutStderr:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a", encoding="utf-8", errors="backslashreplace")
        self._streams = sys.stdout, sys.stderr
        sys.stdout = cast("TextIO", _Tee(sys.stdout, self._file))
        sys.stderr = cast("TextIO", _Tee(sys.stderr, self._file))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.stdout, sys.stderr = self._streams
        self._file.close()


class _Tee:
    """A stream that is another stream, with a copy of all text kept in a file."""

    def __init__(self, stream: TextIO, copy: TextIO) -> None:
        self._stream, self._copy = stream, copy

    def write(self, text: str) -> int:
        # A logger of the task may keep this stream when the file is closed.
        if not self._copy.closed:
            self._copy.write(text)
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if not self._copy.closed:
            self._copy.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
