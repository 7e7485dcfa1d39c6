"""Kubernetes jobs that NeMo Run 0.12 submitted: its index has the executor of each, packed."""

from __future__ import annotations

import getpass
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from nemo_run import _legacy
from nemo_run._clients._k8s_site import Site
from nemo_run._home import get_nemorun_home
from nemo_run._records import JobRecord, JobRef, RoleSize
from nemo_run.core.serialization.peek import Peek, peek
from nemo_run.exceptions import ConfigError

log = logging.getLogger(__name__)


def find(index: Path, app_id: str, scheduler: str) -> JobRecord | None:
    """Return a job of the index of 0.12, or None where it has none that can be asked about.

    The index does not say which cluster it is in: that of the current context is asked.
    """
    entry = _legacy.cloud_entry(index, app_id)
    record = _legacy.find_cloud_job(index, app_id, scheduler)
    if entry is None or record is None or record.ref is None:
        return None
    name = str(entry.get("job_name") or record.ref.native_id)
    try:
        executor = peek(str(entry["executor"]))
        if not isinstance(executor, Peek):
            raise ConfigError(f"not an executor but {executor!r}")
        where = _where(name, executor.arguments)
    except (KeyError, TypeError, ValueError) as err:
        log.warning("%s: 0.12 left too little to ask about it: %s", app_id, err)
        return None
    (role,) = record.roles
    return replace(
        record,
        roles=(RoleSize(role.name, int(where["nodes"])),),
        ref=JobRef(native_id=name, where=where),
        # Made from the name, so that reading the index twice gives the same record.
        tag=f"nr-{name}",
    )


def _where(name: str, settings: Mapping[str | int, Any]) -> dict[str, str]:
    job_dir = str(settings.get("job_dir") or get_nemorun_home())
    parts = (getpass.getuser(), str(settings.get("experiment_id") or ""), Path(job_dir).name)
    root = str(settings.get("workdir_pvc_path", "/nemo_run"))
    return {
        **Site(namespace=str(settings.get("namespace", "default"))).to_where(),
        "name": name,
        "tag": "",
        "nodes": str(int(settings.get("num_nodes", 1))),
        "job_dir": job_dir,
        "place": str(PurePosixPath(root, *filter(None, parts), "code")),
        # What 0.12 runs leaves no log on the volume.
        "claim": "",
        "claim_path": root,
        "mover_image": str(settings.get("data_mover_image", "alpine:3.19")),
        "mover_pod": json.dumps({}),
    }
