"""Kubernetes jobs that NeMo Run 0.12 submitted."""

from __future__ import annotations

import getpass
import json
from pathlib import Path, PurePosixPath

from nemo_run._backends.kubeflow.site import Site
from nemo_run._backends.kubernetes import legacy
from nemo_run._backends.kubernetes.legacy import Settings
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import JobRecord


def find(index: Path, app_id: str, scheduler: str) -> JobRecord | None:
    """Return a job of the index of 0.12, or None where it has none that can be asked about.

    The index does not say which cluster it is in: that of the current context is asked.
    """
    return legacy.find(index, app_id, scheduler, id_key="job_name", where_of=_where)


def _where(name: str, settings: Settings) -> dict[str, str]:
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
