"""Which Kubernetes cluster is meant, and the connection that a kubeconfig gives to it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._extras import require
from nemo_run._transport.http import Way
from nemo_run._transport.route import Route, complete
from nemo_run.exceptions import BackendUnavailableError, ConfigError

if TYPE_CHECKING:
    from nemo_run._backends.kubeflow.client import Cluster

BACKEND = "kubeflow"
REFRESH_S = 1500.0
"""How long credentials are used before they are read again; certificates are rotated."""
PATIENCE_S = 2.0
"""How long to try while looking at a job; the conductor looks again."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster as a kubeconfig names it, and a namespace of it. Holds no secret.

    Attributes:
        config: the kubeconfig that was named by ``KUBECONFIG``, empty for the default one.
        context: empty for credentials that a pod is given.
        server: where that led when a job was submitted; empty before a connection was made.
        patience_s: how long to try through an outage. Not stored.
    """

    namespace: str
    config: str = ""
    context: str = ""
    server: str = ""
    patience_s: float = PATIENCE_S

    @classmethod
    def current(cls, namespace: str, *, patience_s: float = PATIENCE_S) -> Site:
        """Return what ``KUBECONFIG`` and the current context of it name now.

        Raises:
            ConfigError: there is neither a kubeconfig nor the credentials of a pod.
        """
        files = os.environ.get("KUBECONFIG", "")
        config = os.pathsep.join(str(Path(file).absolute()) for file in files.split(os.pathsep))
        asked = cls(namespace=namespace, config=config if files else "", patience_s=patience_s)
        found = connection(asked)
        return cls(
            namespace=namespace,
            config=asked.config,
            context=found.context,
            server=found.server,
            patience_s=patience_s,
        )

    @classmethod
    def from_where(cls, where: Mapping[str, str], *, patience_s: float = PATIENCE_S) -> Site:
        return cls(
            namespace=where["namespace"],
            config=where["config"],
            context=where["context"],
            server=where["server"],
            patience_s=patience_s,
        )

    def to_where(self) -> dict[str, str]:
        return {
            "namespace": self.namespace,
            "config": self.config,
            "context": self.context,
            "server": self.server,
        }

    def cluster(self) -> Cluster:
        from nemo_run._backends.kubeflow.client import Cluster

        return Cluster(self)


@dataclass(frozen=True)
class _Connection:
    configuration: Any
    route: Route
    context: str
    server: str
    made_at: float


_connections: dict[tuple[int, str, str, str], _Connection] = {}
_lock = threading.Lock()


def vendor(module: str) -> Any:
    return require(f"kubernetes.{module}", extra="kubeflow", needed_by="KubeflowExecutor")


def connection(site: Site, *, renewed: bool = False) -> _Connection:
    """Return the connection to a cluster, by whichever kubeconfig leads there.

    Raises:
        ConfigError: none does; says why the first does not.
    """
    first, *others = _kubeconfigs(site)
    try:
        return _connection_by(first, site, renewed=renewed)
    except ConfigError:
        for file in others:
            with suppress(ConfigError):
                return _connection_by(file, site, renewed=renewed)
        raise


def _connection_by(file: str, site: Site, *, renewed: bool) -> _Connection:
    """Return the connection that a kubeconfig gives; one that is too old is made again."""
    # Not shared with a process that was forked from this one.
    key = (os.getpid(), file, site.context, "" if site.context else _version(file))
    with _lock:
        known = _connections.get(key)
        if known is None or renewed or time.monotonic() - known.made_at > REFRESH_S:
            known = _connections[key] = _connect(file, site)
    if site.server and known.server != site.server:
        raise ConfigError(
            f"The job was submitted to {site.server}, but context {known.context!r} of the "
            f"kubeconfig now leads to {known.server}. Use the kubeconfig of then: set KUBECONFIG."
        )
    return known


def _connect(file: str, site: Site) -> _Connection:
    client, config = vendor("client"), vendor("config")
    configuration = client.Configuration()
    try:
        context = _load_kubeconfig(file, site, config, configuration)
    except config.ConfigException as err:
        context = ""
        if site.context:
            raise _no_such_context(site, err) from err
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            raise ConfigError(
                f"There is no cluster to submit to: {err} Write a kubeconfig, as for kubectl, or "
                "name one by KUBECONFIG."
            ) from err
    now = time.monotonic()
    try:
        route = _route(configuration, now)
    except OSError as err:
        raise ConfigError(
            f"The certificates that the kubeconfig {file} names cannot be used: {err}."
        ) from err
    return _Connection(configuration, route, context, str(configuration.host), now)


def way_to(site: Site, *, renewed: bool) -> Way:
    """Return how to get to a cluster, and what to show it.

    Raises:
        BackendUnavailableError: the way there was lost since it was written down, which says
            nothing about a job.
    """
    try:
        found = connection(site, renewed=renewed)
        # Credentials that expire are renewed by what is asked here.
        settings = found.configuration.auth_settings().values()
    except (ConfigError, vendor("config").ConfigException, OSError) as err:
        raise BackendUnavailableError(str(err), backend=BACKEND, operation="connect") from err
    headers = {item["key"]: item["value"] for item in settings if item["value"]}
    return Way(url=found.server.rstrip("/"), headers=headers, route=found.route)


def _route(configuration: Any, made_at: float) -> Route:
    route = Route(
        authority=configuration.ssl_ca_cert or "",
        certificate=configuration.cert_file or "",
        key=configuration.key_file or "",
        verify=bool(configuration.verify_ssl),
        check_name=configuration.assert_hostname is not False,
        server_name=configuration.tls_server_name or "",
        proxy=_proxy(configuration),
        edition=made_at,
    )
    route.tls()  # says what is wrong with a file
    return route


def _proxy(configuration: Any) -> str:
    from requests.utils import should_bypass_proxies

    if not configuration.proxy:
        return ""
    bypassed = should_bypass_proxies(configuration.host, no_proxy=configuration.no_proxy or "")
    return "" if bypassed else complete(str(configuration.proxy))


def _kubeconfigs(site: Site) -> list[str]:
    """Return the kubeconfig of when a job was submitted, and that of now, which may be another.

    Each is a path, or several with what separates those of ``PATH``.
    """
    default = str(Path("~/.kube/config").expanduser())
    # The vendor's client reads the variable once, when it is imported.
    now = os.environ.get("KUBECONFIG") or default
    then = (site.config or default) if site.server else now
    return list(dict.fromkeys((then, now)))


def _version(kubeconfig: str) -> str:
    """Return what changes with the files: the user may have chosen another current context."""
    files = [Path(file) for file in kubeconfig.split(os.pathsep)]
    return " ".join(str(file.stat().st_mtime_ns) for file in files if file.exists())


def _load_kubeconfig(file: str, site: Site, config: Any, configuration: Any) -> str:
    """Fill in a configuration and return the name of its context."""
    try:
        _, active = config.list_kube_config_contexts(config_file=file)
        name = site.context or str(active["name"])
        config.load_kube_config(
            config_file=file,
            context=name,
            client_configuration=configuration,
            persist_config=False,
        )
    except (OSError, TypeError, ValueError, KeyError, AttributeError) as err:
        raise ConfigError(f"The kubeconfig {file} cannot be used: {err}.") from err
    return name


def _no_such_context(site: Site, err: Exception) -> ConfigError:
    return ConfigError(
        f"Context {site.context!r} is needed, and the kubeconfig does not give it: {err} Use the "
        "kubeconfig that the job was submitted with: set KUBECONFIG."
    )
