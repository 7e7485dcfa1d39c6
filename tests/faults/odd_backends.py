"""A backend on this machine that answers oddly, or not at all, as files say.

The scheduler is found by an entry point, as one of another package: see `install`.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from torchx.schedulers.local_scheduler import CWDImageProvider, PopenRequest
from torchx.specs import AppDef

import nemo_run as run
from nemo_run.exceptions import BackendUnavailableError
from nemo_run.run.torchx_backend.schedulers.api import JobRef, JobStatus
from nemo_run.run.torchx_backend.schedulers.local import (
    PersistentLocalScheduler,
)

ROOT = Path(__file__).parents[2]


def say(path: Path, what: str) -> None:
    """Write a file that another process may read at any moment: all of it, or what was there."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(what)
    beside.replace(path)


@dataclass(kw_only=True)
class OddAnswers(run.LocalExecutor):
    """Runs tasks on this machine.

    Attributes:
        says: a file; while it is there, asking raises the exception that it names.
        unreachable: a file; while it is there, nothing can be submitted.
    """

    SCHEDULER: ClassVar[str] = "odd"

    says: str = ""
    unreachable: str = ""


class OddScheduler(PersistentLocalScheduler):
    """Keeps the files of the last executor that it planned with, in the reference of its jobs."""

    EXECUTOR = OddAnswers

    def _plan(self, app: AppDef, executor: Any) -> PopenRequest:
        self._unreachable = executor.unreachable
        request = super()._plan(app, executor)
        say(Path(executor.job_dir, "says"), executor.says)
        return request

    def _launch(self, request: PopenRequest) -> JobRef:
        if self._unreachable and Path(self._unreachable).exists():
            raise BackendUnavailableError("the queue is away", backend="odd", operation="submit")
        return super()._launch(request)

    def _poll(self, ref: JobRef) -> JobStatus:
        says = Path(ref.where["log_dir"]).parents[1] / "says"
        what = Path(says.read_text() or "/nowhere")
        if what.exists():
            raise getattr(builtins, what.read_text())("odd")
        return super()._poll(ref)


def create_scheduler(session_name: str, **kwargs: Any) -> OddScheduler:
    return OddScheduler(session_name, CWDImageProvider)


def install(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process, and those that it starts, find the scheduler."""
    info = where / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    entry = f"odd = {__name__}:create_scheduler"
    (info / "entry_points.txt").write_text(f"[torchx.schedulers]\n{entry}\n")
    monkeypatch.setenv("PYTHONPATH", f"{where}:{ROOT}")
    monkeypatch.syspath_prepend(str(where))
