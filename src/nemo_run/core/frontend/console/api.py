"""The one console of the process, and logging to it."""

from __future__ import annotations

import logging
import sys
from typing import Any

from rich.logging import RichHandler

from nemo_run._config import buildables
from nemo_run.core.frontend.console.text_console import TextConsole

# A name may well be :100: and mean just that.
CONSOLE = TextConsole(emoji=False)
ERRORS = TextConsole(emoji=False, stderr=True)

LOGGER = "nemo_run"


class CustomConfigRepr:
    """Shows a value in a table cell: its repr, without the brackets around configs in it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        text = repr(self.value)
        if not any(buildables.buildables(self.value)):
            return text
        return text.replace("<Config[", "").replace("<Partial[", "").replace("]>", "")


def configure_logging(level: str, *, others: bool = True) -> None:
    """Show messages of the logger ``nemo_run`` from ``level`` on; replaces what this did before.

    With ``others`` also those of the program's loggers, if the program leaves the root logger as
    Python made it: a message that no handler takes is shown from ``level`` on instead of from
    WARNING on. Handlers that the program adds, now or later, are used as if this was not called.
    In a notebook its default handler is used.
    """
    logger = logging.getLogger(LOGGER)
    _remove_handler(logger)
    logger.setLevel(level.upper())
    if others:
        _unhandled.show_as_before()
        _unhandled.show(level.upper())
    if not _in_notebook():
        logger.addHandler(_handler())
        logger.propagate = False


def deconfigure_logging() -> None:
    """Undo `configure_logging`; nothing happens where it was not called."""
    _remove_handler(logging.getLogger(LOGGER))
    _unhandled.show_as_before()


def _remove_handler(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        if handler.get_name() == LOGGER:
            logger.removeHandler(handler)
            logger.propagate = True


class _Unhandled:
    """Messages that no handler takes.

    Python shows them by a handler of last resort. A handler at the root logger in its place would
    keep ``logging.basicConfig`` from doing anything, and print twice what a logger's own handler
    prints.
    """

    def __init__(self) -> None:
        self._before: tuple[logging.Handler | None, int] | None = None
        self._ours: tuple[logging.Handler | None, int] | None = None

    def show(self, level: str) -> None:
        root = logging.getLogger()
        if root.handlers or root.level != logging.WARNING:
            return  # the program has configured logging
        handler = logging.StreamHandler() if _in_notebook() else _handler()
        handler.setLevel(level)
        self._before = logging.lastResort, root.level
        logging.lastResort = handler
        root.setLevel(level)
        self._ours = handler, root.level

    def show_as_before(self) -> None:
        root = logging.getLogger()
        # What the program has changed since is the program's.
        if self._before is not None and self._ours == (logging.lastResort, root.level):
            logging.lastResort = self._before[0]
            root.setLevel(self._before[1])
        self._before = self._ours = None


_unhandled = _Unhandled()


def _handler() -> logging.Handler:
    handler = RichHandler(console=TextConsole(stderr=True), show_path=False, log_time_format="[%X]")
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.set_name(LOGGER)
    return handler


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
