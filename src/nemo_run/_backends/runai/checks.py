"""Whether a `DGXCloudExecutor` could be used: what ``nemorun doctor`` says of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nemo_run._backends.runai.site import Site
from nemo_run.core.execution.checks import Finding, attempt
from nemo_run.exceptions import JobNotFoundError

if TYPE_CHECKING:
    from nemo_run.core.execution.dgxcloud import DGXCloudExecutor

_NO_SUCH_POD = "nemo-run-doctor"


def diagnose(executor: DGXCloudExecutor) -> Iterator[Finding]:
    """Yield a finding for each thing that a job needs, up to the first it cannot do without."""
    yield attempt("settings", executor.check)
    site = Site(
        base_url=executor.base_url,
        kube_url=executor.kube_apiserver_url,
        client_id=executor.client_id,
        secret=executor.client_secret,
        project=executor.project_name,
    )

    def sign_in() -> str:
        site.client().token()
        return f"{executor.client_id} at {executor.base_url}"

    signed_in = attempt("credentials", sign_in)
    yield signed_in
    if signed_in.verdict == "failed":
        return

    def find() -> str:
        nonlocal site
        site = site.found()
        return site.project

    project = attempt("project", find)
    yield project
    if project.verdict == "failed":
        return
    yield attempt("cluster", lambda: _reach(site))
    for volume in executor.pvcs:
        yield Finding("volume", "unknown", f"{volume.get('path')}: Run:ai mounts it with the job.")
    yield Finding("image", "unknown", f"{executor.container_image} is pulled when a job starts.")


def _reach(site: Site) -> str:
    """Ask the cluster for a pod that is not there, which it only answers to those it lets in."""
    with contextlib.suppress(JobNotFoundError):
        site.kube().pod(_NO_SUCH_POD)
    return f"{site.kube_url}, namespace {site.namespace}"
