"""Connect to a command in a pod, with the settings and credentials of the vendor's client.

What that has for this waits for ever where nobody answers, and takes Ctrl-C for an outage.
"""

from __future__ import annotations

import ssl
from typing import Any

from nemo_run._clients.kube import PROTOCOL
from nemo_run._clients.websocket import WebSocket
from nemo_run._clients.wire import Route

SILENCE_S = 600.0
"""How long a command may say nothing."""
_CONNECT_S = 30.0


def connect(configuration: Any, target: str) -> WebSocket:
    """Ask the API server for ``target``, a path with its query, as a WebSocket.

    Raises:
        HandshakeError: the server said no.
        OSError: it could not be reached, or did not answer.
    """
    headers = {
        item["key"]: item["value"]
        for item in configuration.auth_settings().values()
        if item["value"]
    }
    return WebSocket(
        f"{configuration.host}{target}",
        protocol=PROTOCOL,
        headers=headers,
        timeout_s=SILENCE_S,
        connect_s=_CONNECT_S,
        route=_route(configuration),
    )


def _route(configuration: Any) -> Route:
    return Route(
        tls=_tls(configuration),
        server_name=configuration.tls_server_name or "",
        proxy=_proxy(configuration),
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not configuration.verify_ssl or configuration.assert_hostname is False:
        context.check_hostname = False
    if not configuration.verify_ssl:
        context.verify_mode = ssl.CERT_NONE
    elif configuration.ssl_ca_cert:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    else:
        context.load_default_certs()
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _proxy(configuration: Any) -> str:
    from requests.utils import should_bypass_proxies

    if not configuration.proxy:
        return ""
    bypassed = should_bypass_proxies(configuration.host, no_proxy=configuration.no_proxy or "")
    return "" if bypassed else str(configuration.proxy)
