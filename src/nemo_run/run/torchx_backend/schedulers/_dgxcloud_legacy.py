"""DGX Cloud jobs that NeMo Run 0.12 submitted: its index has the executor of each, packed."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from nemo_run import _legacy
from nemo_run._home import get_nemorun_home
from nemo_run._records import JobRecord, JobRef, RoleSize
from nemo_run.core.execution._runai_site import Site, stored_secret
from nemo_run.core.serialization.peek import Peek, peek
from nemo_run.exceptions import ConfigError

log = logging.getLogger(__name__)


def find(index: Path, app_id: str, scheduler: str) -> JobRecord | None:
    """Return a job of the index of 0.12, or None where it has none that can be asked about.

    The secret that 0.12 left in the index is kept where ours are. The index stays as it is.
    """
    entry = _legacy.cloud_entry(index, app_id)
    record = _legacy.find_cloud_job(index, app_id, scheduler)
    if entry is None or record is None or record.ref is None:
        return None
    try:
        executor = peek(str(entry["executor"]))
        if not isinstance(executor, Peek):
            raise ConfigError(f"not an executor but {executor!r}")
        where = _where(executor.arguments)
    except (KeyError, TypeError, ValueError) as err:
        log.warning("%s: 0.12 left too little to ask about it: %s", app_id, err)
        return None
    (role,) = record.roles
    native_id = str(entry.get("job_id") or record.ref.native_id)
    return replace(
        record,
        roles=(RoleSize(role.name, int(where["nodes"])),),
        ref=JobRef(native_id=native_id, where=where),
        # Made from the id, so that reading the index twice gives the same record.
        tag=f"nr-{native_id}",
    )


def _where(settings: Mapping[str | int, Any]) -> dict[str, str]:
    base_url, client_id = settings["base_url"], settings["client_id"]
    project, nodes = settings["project_name"], int(settings.get("nodes", 1))
    home = PurePosixPath(settings["pvc_nemo_run_dir"])
    site = Site(
        base_url=base_url,
        kube_url=settings["kube_apiserver_url"],
        client_id=client_id,
        secret=stored_secret(base_url, client_id, settings["client_secret"]),
        project=project,
        namespace=f"runai-{project}",
    )
    return {
        **site.to_where(),
        "kind": "distributed" if nodes > 1 else "trainings",
        "name": "",
        "nodes": str(nodes),
        "job_dir": settings.get("job_dir", ""),
        "pvc_home": str(home),
        "pvc_job_dir": str(home / _below_home(settings.get("job_dir", ""))),
        "mounted": "yes" if settings.get("launched_from_cluster") else "no",
        "pvcs": json.dumps(settings.get("pvcs", [])),
        "security": "{}",
    }


def _below_home(job_dir: str) -> str:
    try:
        return str(Path(job_dir).relative_to(get_nemorun_home()))
    except ValueError:
        return Path(job_dir).name
