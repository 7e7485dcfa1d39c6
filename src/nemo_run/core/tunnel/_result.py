"""What a command left behind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """How a command ended and what it wrote; true if it succeeded."""

    command: str
    stdout: str
    stderr: str
    exited: int

    @property
    def return_code(self) -> int:
        """The exit code, by its other name."""
        return self.exited

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.exited == 0

    @property
    def failed(self) -> bool:
        """Whether the command did not succeed."""
        return not self.ok

    def __bool__(self) -> bool:
        return self.ok
