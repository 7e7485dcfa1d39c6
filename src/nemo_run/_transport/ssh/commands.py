"""Commands as users give them to a tunnel, and what becomes of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from nemo_run._shell import render
from nemo_run._transport.ssh.exchange import WatcherGaveUp
from nemo_run._transport.ssh.options import RunOptions
from nemo_run._transport.ssh.result import Result
from nemo_run.exceptions import ConnectionLostError

SHOWN_CHARACTERS = 120

Command = str | Sequence[str]
"""Text for a shell, or a program with its arguments, which arrive as they are."""


def as_text(command: Command) -> str:
    """Return a command as a shell reads it."""
    return command if isinstance(command, str) else render(command)


def as_bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


def announce(text: str, options: RunOptions) -> Result | None:
    """Show a command where that is wanted; return its result if it is not to be run."""
    if options.echo or options.dry:
        print(options.echo_format.format(command=text), file=options.out_stream or sys.stdout)
    return result(text, "", "", 0, options) if options.dry else None


def result(
    text: str, out: str, err: str, code: int, options: RunOptions, *, shell: str = ""
) -> Result:
    """Return how a command ended that was run with ``options``."""
    return Result(
        text,
        out,
        err,
        code,
        encoding=options.encoding,
        shell=shell,
        env=options.env,
        pty=options.pty,
        hide=options.hidden,
    )


def checked(result: Any, *, host: str, warn: bool) -> Any:
    """Return ``result``; raise CommandFailedError if it failed, unless ``warn``."""
    if warn or not _has_failed(result):
        return result
    # Invoke, whose errors these are as well, takes a while to import.
    from nemo_run._transport.ssh.failures import FailedCommandError

    said = str(result.stderr).strip() or str(result.stdout).strip()
    last = f": {said.splitlines()[-1]}" if said else ""
    raise FailedCommandError(
        f"{_short(result.command)} ended with exit code {result.exited} on {host}{last}",
        result=result,
    )


def _has_failed(result: Any) -> bool:
    # Sessions of programs return what they like; one that does not say it failed did not.
    exited = getattr(result, "exited", 0)
    return isinstance(exited, int) and exited != 0


def too_long(text: str, host: str, options: RunOptions) -> ConnectionLostError:
    """Return the error for a command that was not waited for any longer."""
    from nemo_run._transport.ssh.failures import CommandTooLongError

    return CommandTooLongError(
        f"{_short(text)} did not end within {options.timeout:g} s on {host}. It may have run, or "
        "still be running.",
        result=result(text, "", "", -1, options),
        timeout=options.timeout or 0,
    )


def unanswered(gave_up: WatcherGaveUp, text: str, options: RunOptions) -> Exception:
    """Return what is raised when a watcher raised something: that, unless Invoke has an error."""
    # A watcher that raises Invoke's error has imported it.
    invoke = sys.modules.get("invoke")
    if invoke is None or not isinstance(gave_up.error, invoke.WatcherError):
        return gave_up.error
    from nemo_run._transport.ssh.failures import UnansweredCommandError

    return UnansweredCommandError(
        f"{_short(text)} was ended: {gave_up.error}",
        result=result(text, gave_up.text, "", -1, options),
        reason=gave_up.error,
    )


def _short(command: str) -> str:
    if len(command) > SHOWN_CHARACTERS:
        command = f"{command[: SHOWN_CHARACTERS - 3]}..."
    return repr(command)
