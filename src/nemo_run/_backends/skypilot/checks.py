"""Whether an executor for SkyPilot could be used: what ``nemorun doctor`` says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._backends.skypilot import client
from nemo_run._backends.skypilot.sdk import sdk
from nemo_run.core.execution.checks import Finding, attempt
from nemo_run.exceptions import AuthenticationError, BackendError, MissingDependencyError

if TYPE_CHECKING:
    from nemo_run._backends.skypilot.task import SkypilotTask


def diagnose(executor: SkypilotTask) -> Iterator[Finding]:
    """Yield a finding for each thing that a job needs, up to the first it cannot do without."""
    try:
        package = sdk()
    except MissingDependencyError as err:
        yield Finding("sdk", "failed", str(err))
        return
    yield Finding("sdk", "ok", f"skypilot {package.__version__}")
    yield attempt("resources", lambda: _asked_for(executor))
    yield _server()
    yield from _mounts(executor.file_mounts or {})
    if executor.container_image:
        image = f"{executor.container_image} is pulled when a job starts."
        yield Finding("image", "unknown", image)


def _asked_for(executor: SkypilotTask) -> str:
    return ", ".join(sorted(map(str, executor.to_resources())))


def _server() -> Finding:
    try:
        return Finding("server", "ok", client.server())
    except AuthenticationError as err:
        return Finding("server", "failed", str(err))
    except BackendError as err:
        advice = "A local one is started by the first job; see also: sky api info"
        return Finding("server", "warning", str(err), advice)


def _mounts(mounts: Mapping[str, str]) -> Iterator[Finding]:
    for target, source in mounts.items():
        if "://" in source:
            yield Finding("mount", "unknown", f"{source} is read when a job starts.")
        elif Path(source).expanduser().exists():
            yield Finding("mount", "ok", f"{source} at {target}")
        else:
            yield Finding("mount", "failed", f"{source} is not there.")
