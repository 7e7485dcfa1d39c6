"""What a command left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Result:
    """How a command ended and what it wrote; true if it succeeded. The words are Invoke's.

    Attributes:
        command: what was run, as text.
        stdout, stderr: what it wrote; with a terminal all of it is in ``stdout``.
        exited: its exit code; negative for a signal that ended it on this machine.
        encoding: how its output was read.
        shell: the program that ran it, where that is known.
        env: variables that were set for it alone.
        pty: whether it had a terminal.
        hide: which of the two streams were not shown.
    """

    command: str
    stdout: str
    stderr: str
    exited: int
    encoding: str = "utf-8"
    shell: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    pty: bool = False
    hide: tuple[str, ...] = field(default=(), repr=False, compare=False)

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

    def tail(self, stream: str, count: int = 10) -> str:
        """Return the last lines of ``"stdout"`` or ``"stderr"``, set off by an empty line."""
        lines: list[str] = getattr(self, stream).splitlines()
        return "\n\n" + "\n".join(lines[-count:])

    def __bool__(self) -> bool:
        return self.ok
