"""The question that is asked before something is run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from nemo_run._jobs.shown_text import in_message
from nemo_run.cli.commands.options import MissingRequiredOptionError


def confirmed(name: str, *, skip: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether to go on with a run; asks unless told not to.

    The first answer holds for the process. Processes that torchrun started are never asked.

    Raises:
        MissingRequiredOptionError: there is no terminal to ask at.
    """
    from nemo_run.cli import api

    if skip or _is_one_of_many(environ):
        return True
    if api.NEMORUN_SKIP_CONFIRMATION is None:
        api.NEMORUN_SKIP_CONFIRMATION = ask(f"Run {name}? Continue?")
    if not api.NEMORUN_SKIP_CONFIRMATION:
        print("Nothing was run.", file=sys.stderr)
    return api.NEMORUN_SKIP_CONFIRMATION


def ask(question: str) -> bool:
    """Ask a question on stderr; anything but a yes is a no.

    Raises:
        MissingRequiredOptionError: there is no terminal to ask at.
    """
    while True:
        print(f"{in_message(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        try:
            answer = input().strip().lower()
        except (EOFError, OSError, RuntimeError):
            print(file=sys.stderr)
            raise MissingRequiredOptionError(
                "There is no terminal to ask at. Say --yes to do without the question."
            ) from None
        if answer in ("y", "yes", "n", "no", ""):
            return answer.startswith("y")


def _is_one_of_many(environ: Mapping[str, str]) -> bool:
    size = environ.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1
