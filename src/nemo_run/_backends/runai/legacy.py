"""DGX Cloud jobs that NeMo Run 0.12 submitted."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from nemo_run._backends.kubernetes import legacy
from nemo_run._backends.kubernetes.legacy import Settings
from nemo_run._backends.runai.site import Site, stored_secret
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import JobRecord


def find(index: Path, app_id: str, scheduler: str) -> JobRecord | None:
    """Return a job of the index of 0.12, or None where it has none that can be asked about.

    The secret that 0.12 left in the index is kept where ours are.
    """
    return legacy.find(index, app_id, scheduler, id_key="job_id", where_of=_where)


def _where(_: str, settings: Settings) -> dict[str, str]:
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
