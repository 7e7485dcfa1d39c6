"""Print the logs of several jobs while they run, each from the moment it is launched."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable

from nemo_run.exceptions import NemoRunError
from nemo_run.run.logs import print_job
from nemo_run.run.torchx_backend.runner import Runner

log = logging.getLogger(__name__)

LOOK_S = 0.05


class LogTail:
    """Prints to stdout between `start` and `finish`.

    ``handles`` gives one text for each job to follow, empty as long as it is not launched.
    """

    def __init__(self, runner: Runner, handles: Callable[[], Iterable[str]]) -> None:
        self._runner = runner
        self._handles = handles
        self._printers: dict[str, threading.Thread] = {}
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def start(self) -> None:
        """Begin to print; nothing happens when called again."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()

    def finish(self) -> None:
        """Wait until the logs of all jobs, which must have ended, are printed."""
        if self._watcher is None:
            return
        self._stop.set()
        self._watcher.join()
        self._follow_new()
        for printer in self._printers.values():
            printer.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._follow_new()

    def _follow_new(self) -> None:
        handles = list(self._handles())
        alone = len(handles) == 1
        for handle in handles:
            if handle and handle not in self._printers:
                printer = threading.Thread(target=self._print, args=(handle, alone), daemon=True)
                self._printers[handle] = printer
                printer.start()

    def _print(self, handle: str, alone: bool) -> None:
        try:
            print_job(sys.stdout, handle, self._runner, should_tail=True, alone=alone)
        except NemoRunError as err:
            log.warning("%s: its log cannot be printed: %s", handle, err)
