"""Logs of ended SkyPilot jobs, copied as they are on the cluster or at the controller."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from nemo_run._backends.skypilot.sdk import BACKEND, asking, muted, sdk
from nemo_run._backends.skypilot.streams import parse_line
from nemo_run._files import locked
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendError

_LOGS_LAG_S = 60.0
_CODES_LAG_S = 5.0
_LOGS_POLL_S = 2.0
_DOWNLOAD_TIMEOUT_S = 600.0


def download(cluster: str, job_id: int, directory: Path, *, has_failed: bool = False) -> None:
    """Copy the logs of a job into ``directory``, as they are on the cluster.

    SkyPilot says that a job has failed half a second before it writes the exit codes into the log.
    Those of one that ``has_failed`` are waited for.
    """

    def fetch() -> str | None:
        waiting = Waiting(0.5, _LOGS_POLL_S, timeout_s=_CODES_LAG_S if has_failed else 0)
        while True:
            with asking("download logs"), muted():
                path: str | None = sdk().download_logs(cluster, [str(job_id)]).get(str(job_id))
            if path is None or waiting.is_over or _has_codes(Path(path)):
                return path
            waiting.pause()

    keep(fetch, directory)


def download_managed(job_id: int, directory: Path, *, has_run: bool = False) -> None:
    """Copy the logs of a managed job into ``directory``.

    SkyPilot may say that a job has ended before it has its logs. Those of one that ``has_run``
    are waited for.
    """

    def fetch() -> str | None:
        waiting = Waiting(_LOGS_POLL_S, _LOGS_POLL_S, timeout_s=_LOGS_LAG_S if has_run else 0)
        while True:
            with asking("download logs"), muted():
                paths = sdk().jobs.download_logs(
                    name=None, job_id=job_id, refresh=False, controller=False
                )
            path = next(iter(paths.values()), None)
            if path is None or not is_without_logs(Path(path)) or waiting.is_over:
                return path
            waiting.pause()

    keep(fetch, directory)


def _has_codes(path: Path) -> bool:
    try:
        return "return code list" in (path.expanduser() / "run.log").read_text(errors="replace")
    except OSError:
        return False


def is_without_logs(path: Path) -> bool:
    """Tell whether SkyPilot gave us, instead of a managed job's log, a line that there is none."""
    path = path.expanduser()
    log = path / "run.log" if path.is_dir() else path
    try:
        said = log.read_text(errors="replace")
    except FileNotFoundError:
        return True
    return "is already in terminal state" in said and not any(
        map(parse_line, said.splitlines(keepends=True))
    )


def keep(fetch: Callable[[], str | None], directory: Path) -> None:
    """Copy what SkyPilot downloads, so that a reader sees all of it or nothing.

    One at a time, for SkyPilot unpacks the logs of a job where all of this machine do.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.with_name(f".{directory.name}.lock"), _DOWNLOAD_TIMEOUT_S):
        if not directory.is_dir() and (path := fetch()) is not None:
            _copy(Path(path).expanduser(), directory)


def _copy(source: Path, directory: Path) -> None:
    copy = directory.with_name(f".{directory.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            copy.mkdir()
            shutil.copy(source, copy)
        with contextlib.suppress(OSError):  # another was first
            copy.rename(directory)
    except OSError as err:
        raise BackendError(
            f"The logs could not be copied from {source}: {err}",
            backend=BACKEND,
            operation="download logs",
        ) from err
    finally:
        shutil.rmtree(copy, ignore_errors=True)
