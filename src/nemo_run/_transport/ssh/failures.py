"""Errors of commands that are Invoke's as well: programs may catch those.

Imported when the first one is raised, since Invoke takes a while to import.
"""

from __future__ import annotations

from typing import Any

from invoke.exceptions import CommandTimedOut, Failure, UnexpectedExit

from nemo_run._jobs.shown_text import in_message
from nemo_run.exceptions import BackendError, CommandFailedError, ConnectionLostError


class _Explained(BackendError):
    """Says what we say, not what Invoke would; is made without Invoke's constructors."""

    def __init__(self, message: str, **more: Any) -> None:
        Exception.__init__(self, message)
        self.backend = ""
        self.operation = "run"
        self.detail = more["result"].stderr
        self._more = more
        vars(self).update(more)

    def __str__(self) -> str:
        return in_message(Exception.__str__(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:
        return _made, (type(self), str(self), self._more)


class FailedCommandError(_Explained, CommandFailedError, UnexpectedExit):  # type: ignore[misc]  # results of ours have all that Invoke's have
    """A command was run and did not succeed; also Invoke's ``UnexpectedExit``."""

    reason = None


class UnansweredCommandError(_Explained, CommandFailedError, Failure):  # type: ignore[misc]  # see above
    """A watcher gave a command up; also Invoke's ``Failure``, whose ``reason`` says why."""


class CommandTooLongError(_Explained, ConnectionLostError, CommandTimedOut):
    """A command did not end in time; also Invoke's ``CommandTimedOut``."""

    reason = None


def _made(kind: type[_Explained], message: str, more: dict[str, Any]) -> _Explained:
    return kind(message, **more)
