"""The calls we make to a Docker engine, by the vendor's client."""

from __future__ import annotations

import functools
import logging
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import requests

from nemo_run._backends.docker.container import BACKEND as BACKEND
from nemo_run._backends.docker.container import LABEL_EXPERIMENT_ID as LABEL_EXPERIMENT_ID
from nemo_run._backends.docker.container import LABEL_ID as LABEL_ID
from nemo_run._backends.docker.container import LABEL_NAME as LABEL_NAME
from nemo_run._backends.docker.container import Container as Container
from nemo_run._backends.docker.container import listed
from nemo_run._extras import require
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    ConnectionLostError,
    JobNotFoundError,
    SubmitError,
)

log = logging.getLogger(__name__)


_SOCKET = Path("/var/run/docker.sock")
_PIECE_BYTES = 1 << 16
_FRAME_BYTES = 1 << 20
"""Engines split what is longer than 16 KiB; a frame may be said to have four gigabytes."""
_FRAME = struct.Struct(">4xL")
_MORE_SETTINGS = frozenset({"ports", "volumes", "network", "networking_config"})


class NameTakenError(BackendError):
    """Another container has that name."""


def is_installed() -> bool:
    """Tell whether the vendor's client is there, without loading it."""
    from importlib.util import find_spec

    return find_spec("docker") is not None


def docker_package() -> Any:
    """Return the vendor's client.

    Raises:
        MissingDependencyError: it is not installed.
    """
    return require("docker", extra="docker", needed_by="DockerExecutor")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings of a container that the vendor's client does not know."""
    models = require("docker.models.containers", extra="docker", needed_by="DockerExecutor")
    known = {*models.RUN_CREATE_KWARGS, *models.RUN_HOST_CONFIG_KWARGS, *_MORE_SETTINGS}
    for name in settings:
        if name not in known:
            from difflib import get_close_matches

            close = get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"Docker's containers have no setting {name!r}, which additional_kwargs has.{hint}"
            )


class Engine:
    """A Docker engine.

    Every method may raise BackendUnavailableError, and ConnectionLostError, which is one of those,
    where it is not known whether the engine has done it.
    """

    def __init__(self, client: Any, host: str = "") -> None:
        self.client = client
        self.host = host
        self._errors = docker_package().errors
        # The errors of requests are OSErrors. Where an answer is read as it comes, it lets those
        # of what is below it through.
        below = import_module("urllib3.exceptions").HTTPError
        self._broken = (OSError, below, self._errors.StreamParseError)

    @functools.cached_property
    def id(self) -> str:
        """What tells this engine from others, also from one of the same machine."""
        with self._asking("info"):
            info = self.client.info()
        return f"{info.get('ID', '')} {info.get('DockerRootDir', '')}"

    def info(self) -> dict[str, Any]:
        with self._asking("info"):
            return dict(self.client.info())

    def containers(self, job: str | None = None) -> list[Container]:
        """Return the containers of a job, or those of all jobs."""
        label = LABEL_ID if job is None else f"{LABEL_ID}={job}"
        with self._asking("list"):
            rows = self.client.api.containers(all=True, filters={"label": [label]})
            found = [self._inspected(row["Id"]) for row in listed(rows)]
        return [each for each in found if each is not None]

    def _inspected(self, container_id: str) -> Container | None:
        try:
            return Container.from_json(self.client.api.inspect_container(container_id))
        except self._errors.NotFound:
            return None  # removed since it was listed

    def create(self, image: str, command: Sequence[str], settings: Mapping[str, Any]) -> Any:
        """Make a container, not started yet.

        Raises:
            NameTakenError: another one has its name.
            ConfigError: the vendor's client does not take a setting.
            SubmitError: the engine does not.
        """
        with self._doing("create"):
            try:
                return self.client.containers.create(image, list(command), **settings)
            except self._errors.ImageNotFound as err:
                raise SubmitError(
                    f"Docker has no image {image!r}: {why(err)}. Build or pull it.",
                    backend=BACKEND,
                    operation="submit",
                    detail=why(err),
                ) from err
            except self._errors.APIError as err:
                if err.status_code == requests.codes.conflict and "name" in why(err):
                    raise NameTakenError(why(err), backend=BACKEND) from err
                raise

    def start(self, container_id: str) -> None:
        """Start a container; fine if it has been.

        Raises:
            SubmitError: the engine could not.
        """
        with self._doing("start"):
            self.client.api.start(container_id)

    def stop(self, container_id: str, *, wait_s: int) -> None:
        """Ask a container to end, and make it after ``wait_s``; fine if it has, or is gone."""
        with self._asking("stop"):
            try:
                self.client.api.stop(container_id, timeout=wait_s)
            except self._errors.NotFound:
                return

    def signal(self, container_id: str, name: str) -> None:
        """Send a signal to a container; fine if it has ended, or is gone."""
        with self._asking("kill"):
            try:
                self.client.api.kill(container_id, signal=name)
            except self._errors.NotFound:
                return
            except self._errors.APIError as err:
                if err.status_code != requests.codes.conflict:  # it is not running
                    raise

    def remove(self, container_id: str) -> None:
        """Remove a container, ending it; fine if it is gone, or about to be."""
        with self._asking("remove"):
            try:
                self.client.api.remove_container(container_id, force=True, v=True)
            except self._errors.NotFound:
                return
            except self._errors.APIError as err:
                if err.status_code != requests.codes.conflict:  # another process is removing it
                    raise

    def output(self, container_id: str, *, times: bool = False) -> Iterator[bytes]:
        """Yield what a container wrote, piece by piece as it came; with its time before each.

        Raises:
            BackendError: the engine keeps no log of it.
        """
        api = self.client.api
        params = {"stdout": 1, "stderr": 1, "follow": 0, "timestamps": int(times)}
        with self._asking("logs"):
            tty = api.inspect_container(container_id)["Config"]["Tty"]
            # Not by logs(), which waits for ever for an engine that is stuck, and takes a
            # connection that breaks for the end of the log.
            url = api._url("/containers/{0}/logs", container_id)
            with api._get(url, params=params, stream=True) as answer:
                if answer.status_code >= requests.codes.bad_request:
                    raise BackendError(
                        f"Docker has no log of {container_id}: {answer.text.strip()}",
                        backend=BACKEND,
                        operation="logs",
                    )
                yield from answer.iter_content(_PIECE_BYTES) if tty else _frames(answer.raw)

    def has_image(self, image: str) -> bool:
        with self._asking("image"):
            try:
                self.client.api.inspect_image(image)
            except self._errors.NotFound:
                return False
        return True

    def pull(self, image: str) -> None:
        """Fetch an image from where its name says.

        Raises:
            SubmitError: it could not be fetched.
        """
        docker = docker_package()
        repository, tag = docker.utils.parse_repository_tag(image)
        log.info("pulling image %s", image)
        with self._doing("pull"):
            try:
                events = self.client.api.pull(repository, tag or "latest", stream=True, decode=True)
                said = next((event["error"] for event in events if "error" in event), None)
            except self._errors.DockerException as err:  # or a helper that keeps passwords did not
                said = why(err)
        if said is not None:
            raise SubmitError(
                f"Docker could not pull image {image!r}: {said}. Check its name, and that you are "
                "logged in to its registry.",
                backend=BACKEND,
                operation="pull",
                detail=str(said),
            )

    def has_network(self, name: str) -> bool:
        with self._asking("network"):
            found = self.client.api.networks(names=[name])
        return any(network["Name"] == name for network in found)

    def create_network(self, name: str) -> None:
        """Make a network of this machine; fine if there is one of that name."""
        with self._doing("network"):
            try:
                self.client.networks.create(name, driver="bridge", check_duplicate=True)
            except self._errors.APIError as err:
                if "already exists" not in why(err):
                    raise

    def endpoint(self, links: Mapping[str, str]) -> Any:
        """Return how a container joins a network, with names of its own for others there."""
        return self.client.api.create_endpoint_config(links=dict(links))

    @contextmanager
    def _asking(self, operation: str) -> Iterator[None]:
        """Say in our words that the engine did not answer, or answered with an error."""
        with self._reaching(operation, BackendUnavailableError):
            try:
                yield
            except self._errors.NotFound as err:
                raise JobNotFoundError(why(err), backend=BACKEND, operation=operation) from err
            except self._errors.APIError as err:
                raise BackendUnavailableError(
                    f"Docker answered {why(err)}", backend=BACKEND, operation=operation
                ) from err

    @contextmanager
    def _doing(self, operation: str) -> Iterator[None]:
        """Say in our words why the engine did not do it, or that it may have."""
        with self._reaching(operation, ConnectionLostError):
            try:
                yield
            except self._errors.APIError as err:
                raise SubmitError(
                    f"Docker did not accept it ({operation}): {why(err)}{_hint(why(err))}",
                    backend=BACKEND,
                    operation=operation,
                    detail=why(err),
                ) from err
            except (TypeError, ValueError, self._errors.DockerException) as err:
                raise ConfigError(
                    f"Docker's client does not take the settings of the container: {why(err)}"
                ) from err

    @contextmanager
    def _reaching(self, operation: str, kind: type[BackendUnavailableError]) -> Iterator[None]:
        try:
            yield
        except self._broken as err:
            raise kind(
                f"The Docker engine {self.host or 'of this machine'} does not answer: {why(err)}",
                backend=BACKEND,
                operation=operation,
                detail=str(err),
            ) from err


def _frames(raw: Any) -> Iterator[bytes]:
    """Yield what is in the frames of a log, each of which has its length before it."""
    while header := raw.read(_FRAME.size):
        left = _FRAME.unpack(header)[0] if len(header) == _FRAME.size else 1
        while left:
            data = raw.read(min(left, _FRAME_BYTES)) if len(header) == _FRAME.size else b""
            if not data:
                raise requests.exceptions.ConnectionError("the log broke off")
            left -= len(data)
            yield data


_HINTS = {
    "bind source path does not exist": "The engine does not see the files of this machine, or that "
    "path is missing: DockerExecutor needs an engine on the same machine, or a shared directory "
    "as NEMORUN_HOME.",
    "could not select device driver": "The engine has no GPU support: install the NVIDIA container "
    "toolkit, or leave out num_gpus.",
    "unknown or invalid runtime": "Install that runtime, or leave out runtime.",
    "Unknown runtime specified": "Install that runtime, or leave out runtime.",
    'exec: "sh"': "The image has no shell; jobs need one called sh.",
}


def _hint(text: str) -> str:
    return next((f" {hint}" for part, hint in _HINTS.items() if part in text), "")


def why(err: BaseException) -> str:
    """Return the words of an error that matter."""
    explanation = getattr(err, "explanation", None)
    text = str(explanation or err).strip()
    if isinstance(err, requests.exceptions.ConnectionError) or "Error while fetching" in text:
        cause: BaseException | None = err
        while cause is not None:
            if isinstance(cause, OSError) and cause.strerror:
                return cause.strerror
            inner = cause.__cause__ or cause.__context__
            cause = inner if inner is not cause else None
    return text.rstrip(".")
