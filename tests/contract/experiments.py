"""Short ways to say what most tests of experiments need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchx.specs import AppState

import nemo_run as run


def script(text: str, **settings: Any) -> run.Script:
    return run.Script(inline=text, **settings)


@contextlib.contextmanager
def experiment(title: str = "demo", **settings: Any) -> Iterator[run.Experiment]:
    """An experiment that does not write to the console."""
    with run.Experiment(title, **{"clean_mode": True, "log_level": "WARN", **settings}) as exp:
        yield exp


def statuses(exp: run.Experiment) -> dict[str, dict[str, Any]]:
    status = exp.status(return_dict=True)
    assert status is not None
    return status


def states(exp: run.Experiment) -> dict[str, str]:
    return {job: AppState(entry["status"]).name for job, entry in statuses(exp).items()}


def log_of(exp: run.Experiment, job: str) -> str:
    """Return the log of a job's only task as it is on disk."""
    status = statuses(exp)[job]
    (path,) = Path(status["local_dir"], "nemo_run", status["job_id"]).glob("*/0/combined.log")
    return path.read_text()
