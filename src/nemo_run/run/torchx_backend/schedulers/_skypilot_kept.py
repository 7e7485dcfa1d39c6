"""What is kept of an ended SkyPilot job in its directory, so that it outlives the cluster.

``run.log`` is what SkyPilot says about the job, ``tasks/`` has what each node wrote, and
``job.json`` says how it ended.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from nemo_run._clients.skypilot import SkyJob, parse_line
from nemo_run._files import write_whole
from nemo_run.core.execution._skypilot_task import TRY
from nemo_run.exceptions import BackendError, BackendUnavailableError

log = logging.getLogger(__name__)

_CODES = re.compile(r"return code list:\S* \[([-\d, ]+)\]")
_TRY = re.compile(rf"^{TRY} (\d+) of", re.MULTILINE)


@dataclass(frozen=True)
class KeptJob:
    """The directory of an ended job; nothing is in it before."""

    directory: Path

    @property
    def job(self) -> SkyJob | None:
        """How the job ended, or None if it is not known to have."""
        try:
            return SkyJob(**json.loads((self.directory / "job.json").read_bytes()))
        except FileNotFoundError:
            return None

    def keep(self, job: SkyJob, download: Callable[[Path], None]) -> None:
        """Copy the logs of a job that has ended, once, and write down how it did.

        Raises:
            BackendUnavailableError: nobody answers now; to be tried again.
        """
        if self.job is not None:
            return
        try:
            download(self.directory)
        except BackendUnavailableError:
            raise
        except BackendError as err:
            log.warning("%s: the logs could not be copied: %s", job.name, err)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_whole(self.directory / "job.json", json.dumps(asdict(job)).encode())

    def lines(self, rank: int) -> Iterator[str]:
        """Yield what a node wrote; a carriage return does not end a line.

        Of a managed job SkyPilot only has what it printed, with the node before each line.
        """
        path = self._raw(rank)
        if path is not None:
            with path.open(errors="replace", newline="\n") as file:
                yield from file
            return
        for text in _text(self.directory / "run.log").splitlines(keepends=True):
            line = parse_line(text)
            if line is not None and line.rank == rank:
                yield line.text

    @property
    def exit_code(self) -> int | None:
        """The first exit code of a node that is not 0, where it is known."""
        codes = _CODES.findall(_text(self.directory / "run.log"))
        known = [int(code) for code in codes[-1].split(",")] if codes else []
        return next((code for code in known if code), None)

    @property
    def restarts(self) -> int:
        tries = _TRY.findall("".join(self.lines(0)))
        return int(tries[-1]) - 1 if tries else 0

    def _raw(self, rank: int) -> Path | None:
        files = sorted((self.directory / "tasks").glob("*.log"))
        if rank == 0 and len(files) == 1:
            return files[0]
        pattern = re.compile(rf"(?:{rank}|.*rank{rank})(?:\D.*)?\.log")
        return next((path for path in files if pattern.fullmatch(path.name)), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
