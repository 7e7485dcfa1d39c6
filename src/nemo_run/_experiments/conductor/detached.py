"""A conductor in a process of its own, which goes on when the launcher has left."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nemo_run._experiments.conductor.loop import PATIENCE_S, TROUBLE_S, Conductor
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._home import get_nemorun_home
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendError
from nemo_run.run.torchx_backend.packaging import beside_the_script
from nemo_run.run.torchx_backend.runner import get_runner

log = logging.getLogger(__name__)

LOG = "_CONDUCTOR.log"


def spawn(directory: ExperimentDirectory) -> None:
    """Start a conductor in a process of its own; returns once it has launched what it can now.

    Raises:
        BackendError: it did not come up; says what it said.
    """
    reader, writer = os.pipe()
    with (directory.path / LOG).open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(directory.path), "--ready-fd", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[writer],
            start_new_session=True,
            env={
                **os.environ,
                **beside_the_script(os.environ, directory.path),
                "NEMORUN_HOME": get_nemorun_home(),
            },
        )
    # Closed here before we read: the pipe then ends when the conductor dies without a word.
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        ready = pipe.read(1)
    process.wait()
    if not ready:
        said = (directory.path / LOG).read_text(errors="replace")[-2000:]
        raise BackendError(
            f"The process that should see {directory.path.name} through did not start. "
            f"It said:\n{said}",
            operation="detach",
            detail=said,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Conduct the experiment in a directory until it has ended, unless another process does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ready-fd", type=int)
    options = parser.parse_args(arguments)
    if options.ready_fd is not None and os.fork():
        os._exit(0)  # so that the launcher need not wait for us until we end
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    from nemo_run._experiments.store.loading import complete_job, load_job

    directory = ExperimentDirectory(options.directory)
    with directory.conducting(PATIENCE_S) as alone:
        if alone:
            stored = directory.read_tasks()
            jobs = [load_job(*texts) for texts in stored]
            for job, texts in zip(jobs, stored, strict=True):
                complete_job(job, directory.path, texts)
            conductor = Conductor(jobs, directory, get_runner())
            conductor.board.writes = True
            _see_through(conductor, _Ready(options.ready_fd))
            log.info("all jobs have ended")
        else:
            _Ready(options.ready_fd).tell()
    return 0


def _see_through(conductor: Conductor, ready: _Ready) -> None:
    """Conduct to the end. An error of ours makes the loop begin anew: the jobs depend on it."""
    waiting = Waiting(*TROUBLE_S, growth=2)
    while not conductor.ended:
        try:
            conductor.run(after_round=ready.tell)
        except Exception as err:
            if not ready.told:
                raise
            log.exception("the conductor begins its loop anew")
            conductor.board.say(f"{type(err).__name__}: {err}")
            waiting.pause()
    ready.tell()


class _Ready:
    """Tells the process that started this one that all jobs were launched that could be."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def told(self) -> bool:
        return self._descriptor is None

    def tell(self) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, b"1")
            os.close(self._descriptor)
            self._descriptor = None


if __name__ == "__main__":
    sys.exit(main())
