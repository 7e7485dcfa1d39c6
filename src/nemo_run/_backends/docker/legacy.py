"""Read the index of Docker jobs that release 0.12 left in the home directory.

It is a JSON object ``{app id: request}``, each request a stored config, which is looked at and not
built. 0.12 removed containers as they ended; their logs and exit codes stayed in the directory of
the job, as ``log_<container>.out`` and ``status_<container>.out``.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from nemo_run._files import read_regular
from nemo_run._jobs.records import JobRecord, JobRef, RoleSize
from nemo_run.exceptions import ConfigError

log = logging.getLogger(__name__)

_SCHEDULER = "docker_persistent"


def find_docker_job(index: Path, app_id: str) -> JobRecord | None:
    """Return a job of ``index``, or None if it has no usable entry for it."""
    try:
        stored = json.loads(read_regular(index).decode("utf-8", "replace"))
        text = stored.get(app_id)
        written_at = index.stat().st_mtime
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, RecursionError) as err:
        log.warning("the index of release 0.12 cannot be read, its jobs are left out: %s", err)
        return None
    return None if not isinstance(text, str) else _record(app_id, text, written_at)


def _record(app_id: str, text: str, written_at: float) -> JobRecord | None:
    from nemo_run.core.serialization.peek import peek

    try:
        request: Any = peek(text)
        executor = request.arguments["executor"].arguments
        names = [str(each.arguments["name"]) for each in request.arguments["containers"]]
        job_dir = str(executor["job_dir"])
    except (ConfigError, AttributeError, KeyError, TypeError) as err:
        log.warning("job %s of release 0.12 is left out, its entry cannot be read: %s", app_id, err)
        return None
    experiment = str(executor.get("experiment_id") or "")
    members = {_role(name, experiment): name for name in names}
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    return JobRecord(
        app_id=app_id,
        scheduler=_SCHEDULER,
        experiment_id=experiment,
        roles=tuple(RoleSize(role, 1) for role in members),
        ref=JobRef(
            native_id=app_id,
            where={
                "state_dir": str(Path(job_dir) / ".nemo_run" / app_id),
                "legacy_dir": job_dir,
                "containers": json.dumps(members),
            },
        ),
        # Made from the entry, so that reading it twice gives the same record.
        tag=f"nr-{digest}",
        state="SUBMITTED",
        submitted_at=written_at,
        last_seen_at=written_at,
        job_dir=job_dir,
    )


def _role(name: str, experiment: str) -> str:
    """Undo ``<experiment id>_<role>`` with ``-`` for ``_``, as far as that can be undone."""
    return name.removeprefix(experiment.replace("_", "-")).lstrip("-") or name
