"""Which Docker engine a process talks to, and how it is reached."""

from __future__ import annotations

import functools
import ipaddress
import json
import logging
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from nemo_run._backends.docker.client import BACKEND, Engine, docker_package, why
from nemo_run._transport.bounded import bound
from nemo_run.exceptions import BackendUnavailableError, ConfigError

log = logging.getLogger(__name__)

_SOCKET = Path("/var/run/docker.sock")
_ANY_VERSION = "1.24"
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")


def connect(host: str = "") -> Engine:
    """Return the engine at ``host``, by default the one that the environment names.

    Raises:
        BackendUnavailableError: it does not answer.
        ConfigError: the environment names a context that is not there.
        MissingDependencyError: the vendor's client is not installed.
    """
    # A connection must not be shared with a process that was forked.
    return _connected(host or _host(), os.getpid())


@functools.lru_cache(maxsize=8)
def _connected(host: str, pid: int) -> Engine:
    client = _new_client(host)
    if is_in_the_clear(client.api.base_url):
        log.warning("%s", in_the_clear(host))
    return Engine(client, host)


def is_in_the_clear(url: str) -> bool:
    """Tell whether what is sent to an engine leaves this machine without TLS or SSH."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "tcp"):
        return False
    name = parts.hostname or ""
    try:
        return not ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name != "localhost"


def in_the_clear(host: str) -> str:
    return (
        f"The Docker engine {host} is used without TLS: others on the network can read what jobs "
        "get, and run what they like as root there. Use ssh://, or TLS by DOCKER_TLS_VERIFY and "
        "DOCKER_CERT_PATH."
    )


def _new_client(host: str) -> Any:
    docker = docker_package()
    environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
    tls = _certificates(host)
    try:
        # With a version it does not ask for one yet, which would be without limits.
        if tls is not None:
            client = docker.DockerClient(base_url=host, tls=tls, version=_ANY_VERSION)
        else:
            client = docker.from_env(environment=environment, version=_ANY_VERSION)
        bound(client.api)
        client.api._version = _version(client)
    except (docker.errors.DockerException, requests.exceptions.RequestException) as err:
        where = host or f"unix://{_SOCKET}"
        raise BackendUnavailableError(
            f"There is no Docker engine to talk to at {where}: {why(err)}. Start it, say where "
            "it is by the variable DOCKER_HOST, or see that you may use its socket.",
            backend=BACKEND,
            operation="connect",
            detail=str(err),
        ) from err
    return client


def _version(client: Any) -> str:
    """Return which version of its API to speak with an engine.

    Raises:
        DockerException: the engine is too old, or does not say.
    """
    docker = docker_package()
    said = client.version(api_version=False)
    found = said.get("ApiVersion") if isinstance(said, dict) else None
    if not isinstance(found, str) or not _VERSION.fullmatch(found):
        raise docker.errors.DockerException("it does not say which version of its API it has")
    oldest = docker.constants.MINIMUM_DOCKER_API_VERSION
    if docker.utils.version_lt(found, oldest):
        raise docker.errors.DockerException(f"its API is {found}; at least {oldest} is needed")
    return found


def _host() -> str:
    """Return where the engine is, as ``docker`` on the command line would find it.

    Raises:
        ConfigError: the context that is to be used is not there.
    """
    named = os.environ.get("DOCKER_HOST", "")
    if named:
        return named
    name = os.environ.get("DOCKER_CONTEXT", "")
    docker = docker_package()
    try:
        context = docker.context.ContextAPI.get_context(name or None)
    except Exception as err:  # noqa: BLE001 - files of another program, in whatever state
        log.debug("no Docker context could be read: %s", err)
        return ""
    if context is None:
        which = f"context {name!r}, which DOCKER_CONTEXT names," if name else "current context"
        raise ConfigError(
            f"Docker's {which} is not among its contexts. Choose another with 'docker context "
            "use', or say where the engine is by the variable DOCKER_HOST."
        )
    return str(context.Host or "")


def _certificates(host: str) -> Any:
    """Return those of the context that leads to ``host``; None where no context has any."""
    if os.environ.get("DOCKER_HOST") == host:
        return None  # then variables name them, too
    contexts = docker_package().context
    try:
        # The chosen one first; a job may have been submitted by another.
        files = Path(contexts.config.get_meta_dir()).glob("*/meta.json")
        names = [json.loads(file.read_bytes())["Name"] for file in files]
        for name in (os.environ.get("DOCKER_CONTEXT", ""), *names):
            context = contexts.ContextAPI.get_context(name or None)
            if context is not None and context.Host == host and context.TLSConfig:
                return context.TLSConfig
    except Exception as err:  # noqa: BLE001 - files of another program, in whatever state
        log.debug("no Docker context could be read: %s", err)
    return None
