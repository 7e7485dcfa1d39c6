"""What is kept of an ended SkyPilot job in its directory, so that it outlives the cluster.

``run.log`` is what SkyPilot says about the job, ``tasks/`` has what each node wrote. A file beside
the directory, named after it with ``.json``, says how the job ended.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nemo_run._backends.skypilot.client import SkyJob
from nemo_run._backends.skypilot.streams import parse_line
from nemo_run._backends.skypilot.task import TRY
from nemo_run._files import read_regular, write_whole
from nemo_run.exceptions import BackendError, BackendUnavailableError

log = logging.getLogger(__name__)

_CODES = re.compile(r"return code list:\S* \[([-\d, ]+)\]")
_KILLED = (137, 143)
"""How nodes end that SkyPilot ends, by KILL or by TERM, because another has failed."""
_TRY = re.compile(rf"^{TRY} (\d+) of", re.MULTILINE)


@dataclass(frozen=True)
class KeptJob:
    """The directory of an ended job, which is not there before its logs were copied."""

    directory: Path

    @property
    def job(self) -> SkyJob | None:
        """How the job ended, or None if it is not known to have."""
        try:
            return SkyJob(**json.loads(read_regular(self._outcome)))
        except FileNotFoundError:
            return None

    @property
    def is_whole(self) -> bool:
        """Whether the job has ended, and its logs, if it had any, were copied."""
        return self.job is not None and self.directory.is_dir()

    def keep(
        self,
        job: SkyJob,
        download: Callable[[Path], None],
        pauses_s: Sequence[float] = (1.0, 2.0, 4.0),
    ) -> None:
        """Copy the logs of a job that has ended, once, and write down how it did.

        Logs that cannot be copied after ``pauses_s`` either do not hide how it ended.

        Raises:
            BackendUnavailableError: the API server does not answer; to be tried again.
        """
        if self.is_whole:
            return
        for pause_s in (*pauses_s, None):
            try:
                download(self.directory)
                self.directory.mkdir(parents=True, exist_ok=True)
                break
            except BackendUnavailableError:
                raise
            except BackendError as err:
                if pause_s is None:
                    log.warning("%s: the logs could not be copied: %s", job.name, err)
                else:
                    time.sleep(pause_s)
        self._outcome.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._outcome, json.dumps(asdict(job)).encode())

    def lines(self, rank: int) -> Iterator[str]:
        """Yield what a node wrote; nothing but a newline ends a line.

        The first has before it what the setup of all nodes wrote, as where it is streamed.

        Of a managed job SkyPilot only has what it printed, with the node before each line, and
        with newlines instead of carriage returns.
        """
        path = self._raw(rank)
        if path is not None:
            for setup in self._tasks("setup*.log") if rank == 0 else ():
                yield from _lines(setup)
            yield from _lines(path)
            return
        for text in _lines(self.directory / "run.log"):
            line = parse_line(text)
            if line is not None and line.rank == rank:
                yield line.text

    def streamed_lines(self, rank: int) -> Iterator[str]:
        """Yield what a node wrote as SkyPilot streams it: carriage returns end lines, too."""
        for line in self.lines(rank):
            yield from io.StringIO(line, newline=None)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the first node that failed by itself, where it is known.

        SkyPilot ends the others then, see `_KILLED`.
        """
        codes = _CODES.findall(_text(self.directory / "run.log"))
        known = [int(code) for code in codes[-1].split(",")] if codes else []
        failed = sorted(filter(None, known), key=lambda code: code in _KILLED)
        return failed[0] if failed else None

    @property
    def restarts(self) -> int:
        tries = _TRY.findall("".join(self.lines(0)))
        return int(tries[-1]) - 1 if tries else 0

    @property
    def _outcome(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}.json")

    def _tasks(self, pattern: str) -> list[Path]:
        return sorted((self.directory / "tasks").glob(pattern))

    def _raw(self, rank: int) -> Path | None:
        files = [path for path in self._tasks("*.log") if not path.name.startswith("setup")]
        if rank == 0 and len(files) == 1:
            return files[0]
        pattern = re.compile(rf"(?:{rank}|.*rank{rank})(?:\D.*)?\.log")
        return next((path for path in files if pattern.fullmatch(path.name)), None)


def _lines(path: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError), path.open(errors="replace", newline="\n") as file:
        yield from file


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
