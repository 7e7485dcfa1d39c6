"""Whether a `RayExecutor` could be used: what ``nemorun doctor`` says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from nemo_run._backends.ray.site import Site
from nemo_run.core.execution.checks import Finding, attempt

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def diagnose(
    address: str, token: str, runtime_env: Mapping[str, Any], check: Callable[[], None]
) -> Iterator[Finding]:
    """Yield a finding for each thing that a job needs, up to the first it cannot do without."""
    settings = attempt("settings", check)
    yield settings
    if settings.verdict == "failed":
        return
    site = Site.at(address, token)

    def ask() -> str:
        return f"Ray {site.client().version().ray} at {site.address}"

    advice = "Is the cluster up, and the port forwarded? See RayCluster.port_forward()."
    cluster = attempt("cluster", ask, advice=advice)
    yield cluster
    if cluster.verdict == "failed":
        return
    yield _privacy(site)
    for name in ("pip", "uv", "conda", "image_uri", "container"):
        if runtime_env.get(name):
            yield Finding("runtime_env", "unknown", f"{name} is set up when a job starts.")


def _privacy(site: Site) -> Finding:
    """Tell whether what is said to the dashboard can be heard by others."""
    parts = urlsplit(site.address)
    if parts.scheme == "https" or parts.hostname in LOOPBACK:
        return Finding("connection", "ok", parts.scheme)
    advice = "Use https, or forward the port of the dashboard to this machine."
    detail = f"{site.address} is not encrypted: jobs, their variables and the token can be read."
    return Finding("connection", "warning", detail, advice)
