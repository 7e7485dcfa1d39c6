"""Whether a `LeptonExecutor` could be used: what ``nemorun doctor`` says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nemo_run._backends.lepton.client import Lepton
from nemo_run.core.execution.checks import Finding, attempt
from nemo_run.exceptions import NemoRunError

if TYPE_CHECKING:
    from nemo_run.core.execution.lepton import LeptonExecutor


def diagnose(executor: LeptonExecutor) -> Iterator[Finding]:
    """Yield a finding for each thing that a job needs, up to the first it cannot do without."""
    yield attempt("settings", executor.check)
    try:
        client = Lepton()
        secrets = client.secrets()
    except NemoRunError as err:
        yield Finding("credentials", "failed", str(err))
        return
    yield Finding("credentials", "ok", f"workspace {client.workspace}")
    if executor.node_group:
        named = executor.node_group
        yield attempt("node group", lambda: f"{named} ({client.node_group(named)})")
    for secret in dict.fromkeys((*executor.secret_vars.values(), *executor.image_pull_secrets)):
        yield _secret(secret, secrets, client.workspace)
    for mount in executor.mounts:
        yield Finding("mount", "unknown", f"{mount.get('mount_path')}: comes with the job.")
    yield Finding("image", "unknown", f"{executor.container_image} is pulled when a job starts.")


def _secret(name: str, known: list[str], workspace: str) -> Finding:
    if name in known:
        return Finding("secret", "ok", name)
    there = ", ".join(known) or "none"
    return Finding(
        "secret", "failed", f"Workspace {workspace!r} has no secret {name!r}. Known: {there}."
    )
