"""Tasks run in this process, or only looked at."""

from __future__ import annotations

import subprocess
from typing import Any

from nemo_run import _later
from nemo_run._callables import call
from nemo_run._config.fiddle import fdl
from nemo_run._experiments.jobs.adding import check_runs
from nemo_run._experiments.plan_only import only_planning
from nemo_run.api import dryrun_fn
from nemo_run.config import Partial, Script
from nemo_run.exceptions import JobFailedError

__all__ = ["direct_run_fn", "dryrun_fn"]


def direct_run_fn(task: Partial[Any] | Script, dryrun: bool = False) -> None:
    """Run a task in this process, a script as a child of it; with ``dryrun`` only show it.

    Raises:
        TypeError: this is not a task, or a script is to be looked at only.
        JobFailedError: the script did not end with 0.
    """
    if getattr(type(task), "is_lazy", False):
        task = task.resolve()  # type: ignore[union-attr]  # see LazyEntrypoint
    if not isinstance(task, (fdl.Partial, Script)):
        raise TypeError(f"Need a run.Partial or run.Script to run, got {task!r}.")
    if only_planning():
        dryrun_fn(task)
    elif dryrun:
        if isinstance(task, Script):
            raise TypeError("A script has no arguments to show. Look at its to_command() instead.")
        dryrun_fn(task, build=True)
    elif isinstance(task, Script):
        _run_script(task)
    else:
        check_runs(task)
        call(fdl.build(task))


def _run_script(script: Script) -> None:
    import os
    import sys
    import tempfile

    from torchx.specs import AppState

    with tempfile.TemporaryDirectory() as directory:
        command = script.to_command(
            with_entrypoint=True, filename=f"{directory}/{script.get_name()}.sh", is_local=True
        )
        # Lines go through our own stdout, which may be copied to a file.
        with subprocess.Popen(
            command,
            env={**os.environ, **script.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                sys.stdout.write(line)
    if process.returncode:
        raise JobFailedError(
            f"{script.get_name()} ended with {process.returncode}.",
            state=AppState.FAILED,
            exit_code=process.returncode,
        )


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, {"Context": "invoke.context"})
