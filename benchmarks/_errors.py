"""What goes wrong while measuring."""

from __future__ import annotations

from collections.abc import Sequence


class BenchmarkError(Exception):
    """Something could not be measured."""


class CommandError(BenchmarkError):
    """A command that had to succeed did not."""

    def __init__(self, argv: Sequence[str], code: int, output: str) -> None:
        tail = "\n".join(output.splitlines()[-25:])
        super().__init__(f"{' '.join(argv)} ended with exit code {code}. It said:\n{tail}")
