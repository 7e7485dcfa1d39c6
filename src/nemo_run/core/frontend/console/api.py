"""The one console of the process, and logging to it."""

from __future__ import annotations

import logging
import sys
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

from nemo_run import _buildables

# A name may well be :100: and mean just that.
CONSOLE = Console(emoji=False)

LOGGER = "nemo_run"


class CustomConfigRepr:
    """Shows a value in a table cell: its repr, without the brackets around configs in it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        text = repr(self.value)
        if not any(_buildables.buildables(self.value)):
            return text
        return text.replace("<Config[", "").replace("<Partial[", "").replace("]>", "")


def configure_logging(level: str) -> None:
    """Show messages of the logger ``nemo_run`` from ``level`` on; replaces what this did before.

    The application's own logging is left alone. In a notebook its default handler is used.
    """
    logger = logging.getLogger(LOGGER)
    deconfigure_logging()
    logger.setLevel(level.upper())
    if not _in_notebook():
        handler = RichHandler(console=Console(stderr=True), show_path=False, log_time_format="[%X]")
        handler.setFormatter(logging.Formatter("%(message)s"))
        handler.set_name(LOGGER)
        logger.addHandler(handler)
        logger.propagate = False


def deconfigure_logging() -> None:
    """Undo `configure_logging`; nothing happens where it was not called."""
    logger = logging.getLogger(LOGGER)
    for handler in list(logger.handlers):
        if handler.get_name() == LOGGER:
            logger.removeHandler(handler)
            logger.propagate = True


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
