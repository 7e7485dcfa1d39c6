"""How the end of a job is put into words. Light: lists of thousands of experiments use it."""

from __future__ import annotations

import signal


def told(message: str, why: str) -> str:
    """Return what a backend says of a job together with why it failed, each thing once."""
    if not why or why in message:
        return message
    return why if message in why else f"{why}; {message}"


def signal_of(exit_code: int | None) -> str | None:
    """Return the name of the signal that ended a process, by its exit code; None if none did.

    Shells, Slurm and Docker add 128 to its number; Python has it negative.
    """
    if exit_code is None or -1 < exit_code <= 128:
        return None
    try:
        return signal.Signals(-exit_code if exit_code < 0 else exit_code - 128).name
    except ValueError:
        return None


def exit_words(exit_code: int | None) -> str:
    """Return how a process ended: ``exit code 3``, ``SIGKILL``, ``exit code 137 (SIGKILL)``."""
    if exit_code is None:
        return ""
    name = signal_of(exit_code)
    if exit_code < 0:
        return name or f"signal {-exit_code}"
    return f"exit code {exit_code}" + (f" ({name})" if name else "")
