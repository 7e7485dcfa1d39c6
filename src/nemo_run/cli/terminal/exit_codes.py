"""How a command ends: 0 done, 1 a job failed or a backend could not, 2 the request was wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from nemo_run._jobs.shown_text import in_message
from nemo_run.cli.terminal.standard_output import ReaderGoneError, guarded_output
from nemo_run.exceptions import ConfigError, NemoRunError

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130

_OURS = Path(__file__).resolve().parents[2]
_MACHINERY = (str(_OURS), "fiddle", "runpy.py", "<frozen")


class Tracebacks:
    """How much is shown of an error that a user's own code raised, and of ours when asked for."""

    def __init__(self) -> None:
        self.verbose = False
        self._rich: dict[str, Any] | None = None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take over the options of a run command."""
        self.verbose = options["verbose"]
        if options["rich_exceptions"]:
            self._rich = {
                "show_locals": options["rich_locals"],
                "theme": options["rich_theme"],
                "max_frames": 4 if options["rich_traceback"] else 100,
            }

    def print(self, err: BaseException) -> None:
        """Print an error with the way to it, from where the user's own code begins."""
        start = err.__traceback__ if self.verbose else _from_user(err)
        if self._rich is None:
            import traceback

            traceback.print_exception(type(err), err, start)
            return
        from rich.traceback import Traceback

        from nemo_run.core.frontend.console.text_console import TextConsole

        drawn = Traceback.from_exception(type(err), err, start, **self._rich)
        TextConsole(stderr=True, emoji=False).print(drawn)


def _from_user(err: BaseException) -> TracebackType | None:
    """Return a traceback from after our machinery on; all of it where there is nothing else."""
    step = err.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not any(part in file for part in _MACHINERY):
            return step
        step = step.tb_next
    # What cannot even be compiled has no frames of its own; the error says where it is.
    return None if isinstance(err, SyntaxError) else err.__traceback__


def exit_code_of(command: Callable[[], int | None], *, tracebacks: Tracebacks | None = None) -> int:
    """Run a command and return how to exit, having said on stderr what went wrong."""
    tracebacks = tracebacks or Tracebacks()
    try:
        with guarded_output():
            code = command() or DONE
    except ReaderGoneError:
        return DONE
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except NemoRunError as err:
        if tracebacks.verbose:
            tracebacks.print(err)
        else:
            print(f"Error: {message_of(err)}", file=sys.stderr)
        return WRONG if isinstance(err, ConfigError) else FAILED
    except SystemExit as err:
        if err.code in (None, DONE):
            return DONE
        # Some code of the user's own; another than 1 could be taken for one of ours.
        told = f"It exited with {err.code}." if isinstance(err.code, int) else err.code
        print(f"Error: {in_message(str(told))}", file=sys.stderr)
        return FAILED
    except Exception as err:  # noqa: BLE001 - the outermost line: whatever the user's code raised
        tracebacks.print(err)
        return FAILED
    return code


def message_of(err: NemoRunError) -> str:
    """Return what an error says, for a person who typed a command."""
    # Errors of the parser name the word that is meant, and more that is for programs.
    about = vars(err)
    if "message" not in about:
        return str(err)
    return f"{about['arg']}: {about['message']}" if about.get("arg") else str(about["message"])
