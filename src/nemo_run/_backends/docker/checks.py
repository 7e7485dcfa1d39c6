"""Whether a `DockerExecutor` could be used: what ``nemorun doctor`` says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._backends.docker import connection
from nemo_run._backends.docker import settings as docker_settings
from nemo_run._backends.docker.client import Engine
from nemo_run._backends.docker.settings import WITHOUT_NAMES
from nemo_run.core.execution.checks import Finding, attempt
from nemo_run.exceptions import BackendError, NemoRunError

if TYPE_CHECKING:
    from nemo_run.core.execution.docker import DockerExecutor


def diagnose(executor: DockerExecutor) -> Iterator[Finding]:
    """Yield a finding for each thing that a job needs, up to the first it cannot do without."""
    settings = attempt("settings", executor.check)
    yield settings
    try:
        engine = connection.connect()
        info = engine.info()
    except NemoRunError as err:
        yield Finding("engine", "failed", str(err))
        return
    where = engine.host or "of this machine"
    yield Finding("engine", "ok", f"Docker {info.get('ServerVersion')} {where}")
    if connection.is_in_the_clear(engine.client.api.base_url):
        yield Finding("connection", "warning", connection.in_the_clear(engine.host))
    if not info.get("LiveRestoreEnabled"):
        yield Finding(
            "restarts",
            "unknown",
            "Jobs end when the engine is restarted.",
            'Set "live-restore": true in its daemon.json to have them go on.',
        )
    if settings.verdict == "failed":
        return
    yield _image(executor, engine)
    yield from _gpus(executor, info.get("Runtimes") or {})
    yield from _volumes(executor)
    if executor.network not in WITHOUT_NAMES and ":" not in executor.network:
        there = engine.has_network(executor.network)
        yield Finding("network", "ok", f"{executor.network}{'' if there else ' will be made'}")


def _image(executor: DockerExecutor, engine: Engine) -> Finding:
    image = executor.container_image
    try:
        there = engine.has_image(image)
    except BackendError as err:
        return Finding("image", "failed", str(err))
    if there:
        return Finding("image", "ok", image)
    if executor.pull == "never":
        return Finding(
            "image", "failed", f"The engine has no image {image!r}.", "Build or pull it."
        )
    return Finding("image", "unknown", f"{image} is not here; it will be pulled.")


def _gpus(executor: DockerExecutor, runtimes: dict[str, object]) -> Iterator[Finding]:
    if executor.runtime:
        known = executor.runtime in runtimes
        detail = executor.runtime if known else f"The engine has no runtime {executor.runtime!r}."
        yield Finding("runtime", "ok" if known else "failed", detail)
    if executor.num_gpus:
        if "nvidia" in runtimes:
            yield Finding("GPUs", "ok", "The engine has the runtime nvidia.")
        else:
            detail = "The engine does not name the runtime nvidia; it may do without."
            yield Finding("GPUs", "unknown", detail)


def _volumes(executor: DockerExecutor) -> Iterator[Finding]:
    for text in executor.volumes:
        source = docker_settings.volume(text, executor.job_dir).partition(":")[0]
        if source.startswith("/") and text.startswith(("/", "~", ".")) and "$nemo_run" not in text:
            there = Path(source).exists()
            detail = text if there else f"{source} is not there; the engine would make it empty."
            yield Finding("volume", "ok" if there else "warning", detail)
