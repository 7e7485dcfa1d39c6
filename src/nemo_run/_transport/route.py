"""How to get to a server: which certificates to trust, and by which proxy."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit


@dataclass(frozen=True, kw_only=True)
class Route:
    """The way to one server.

    Attributes:
        authority: a file or directory with certificates to trust; empty for the system's.
        certificate, key: files with what to show the server; empty for nothing.
        verify: whether the server has to prove who it is.
        check_name: whether that has to be whom we ask for.
        server_name: whom the server's certificate names; empty for the host of the URL.
        proxy: its URL; empty for none.
        edition: another one where files of the same names have other contents.
    """

    authority: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True
    check_name: bool = True
    server_name: str = ""
    proxy: str = ""
    edition: float = 0.0

    def tls(self) -> ssl.SSLContext:
        """Return what makes a connection secure.

        Raises:
            OSError: a file cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verify and self.check_name
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        elif not self.authority:
            context.load_default_certs()
        elif Path(self.authority).is_dir():
            context.load_verify_locations(capath=self.authority)
        else:
            context.load_verify_locations(cafile=self.authority)
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key or None)
        return context

    @property
    def proxy_login(self) -> tuple[str, str]:
        """The URL of the proxy without a login, and the login, empty for none."""
        parts = urlsplit(self.proxy)
        host = parts.netloc.rpartition("@")[2]
        if parts.username is None:
            return self.proxy, ""
        words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return urlunsplit(parts._replace(netloc=host)), words

    @property
    def proxy_name(self) -> str:
        """The host of the proxy, without what else its URL may hold."""
        return urlsplit(self.proxy).hostname or ""


def usual_route(url: str) -> Route:
    """Return the way that the environment names, by the variables that `requests` reads, too."""
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    given = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    return Route(authority=given or DEFAULT_CA_BUNDLE_PATH, proxy=_proxy(url))


def _proxy(url: str) -> str:
    from requests.utils import get_environ_proxies, select_proxy

    return complete(select_proxy(url, get_environ_proxies(url)) or "")


def complete(proxy: str) -> str:
    """Return the URL of a proxy with a scheme and a password, which users leave out."""
    if not proxy:
        return ""
    url = proxy if "://" in proxy else f"http://{proxy}"
    parts = urlsplit(url)
    if parts.username is None or parts.password is not None:
        return url
    return url.replace("@", ":@", 1)
