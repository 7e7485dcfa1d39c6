"""A conductor in a process of its own, which goes on when whoever launched has left."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nemo_run._home import get_nemorun_home
from nemo_run.exceptions import BackendError
from nemo_run.run._conductor import PATIENCE_S, Conductor
from nemo_run.run._directory import ExperimentDirectory
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
    """Conduct the experiment in a directory until it has ended, unless somebody else does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ready-fd", type=int)
    options = parser.parse_args(arguments)
    if options.ready_fd is not None and os.fork():
        os._exit(0)  # so that whoever started us need not wait for us until we end
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    from nemo_run.run._stored import load_job

    directory = ExperimentDirectory(options.directory)
    with directory.conducting(PATIENCE_S) as alone:
        if alone:
            jobs = [load_job(job, task) for job, task in directory.read_tasks()]
            conductor = Conductor(jobs, directory, get_runner())
            conductor.writes = True
            conductor.round()
            _report_ready(options.ready_fd)
            conductor.run()
            log.info("all jobs have ended")
        else:
            _report_ready(options.ready_fd)
    return 0


def _report_ready(descriptor: int | None) -> None:
    if descriptor is not None:
        os.write(descriptor, b"1")
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
