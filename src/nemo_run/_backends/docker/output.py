"""What an engine keeps of the output of a task, taken over into the files of its job."""

from __future__ import annotations

import logging

from nemo_run._backends.docker.client import Container, Engine
from nemo_run._backends.docker.files import MemberFiles
from nemo_run._transport import timestamps
from nemo_run.exceptions import BackendError, BackendUnavailableError

log = logging.getLogger(__name__)

CLOCKED_BYTES = 1 << 26
"""The times of longer output are not kept."""


def keep(engine: Engine, container: Container, files: MemberFiles) -> None:
    """Have all that the engine knows of a task's output in our files.

    Raises:
        BackendUnavailableError: it does not answer, and only it has the output.
    """
    try:
        if not files.attempts:
            _copy(engine, container, files)  # it could not write there itself
    except BackendUnavailableError:
        raise
    except BackendError as err:  # an engine may be told to keep no logs
        log.debug("%s: %s", container.name, err)
    try:
        if files.log_size <= CLOCKED_BYTES:
            write_clock(engine, container, files)
    except BackendError as err:
        log.debug("%s: %s", container.name, err)


def write_clock(engine: Engine, container: Container, files: MemberFiles) -> None:
    """Write down when which part of the output came, where the engine tells that."""
    size, lines = 0, []
    for piece in engine.output(container.id, times=True):
        stamp, _, text = piece.partition(b" ")
        size += len(text)
        if size > CLOCKED_BYTES:
            return  # the log is shorter than what the task has said
        try:
            lines.append(f"{timestamps.seconds(stamp.decode('ascii', 'replace')):.6f} {size}\n")
        except ValueError:
            return  # a driver for logs that does not tell times
    files.write_clock("".join(lines))


def _copy(engine: Engine, container: Container, files: MemberFiles) -> None:
    file = files.empty_log()
    if file is None:
        return
    with file:
        try:
            file.writelines(engine.output(container.id))
        except BackendError:
            file.truncate(0)  # rather none than a part that looks like all
            raise
