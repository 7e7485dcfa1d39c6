"""Read the index of Slurm jobs that release 0.12 left in the home directory. It is never written.

A line a job, the last one of a number counts: ``<number> = <pattern of its logs>,<job directory
here>,<class of its tunnel>,<fields of the tunnel as JSON>``. A comma in a path cannot be told from
one between two parts, so the JSON, which starts at the first brace, is cut off first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path, PurePosixPath
from typing import Any

from nemo_run._files import read_regular
from nemo_run._jobs.records import JobRecord, JobRef, RoleSize

log = logging.getLogger(__name__)

INDEX = ".slurm_jobs"

_SCHEDULER = "slurm_tunnel"
_LINE = re.compile(r"^(\d+) *= *([^{]*),(SSHTunnel|LocalTunnel),(\{.*\})\s*$")
_FIELDS = ("job_dir", "host", "user", "port", "identity", "shell", "pre_command")


def find_slurm_job(index: Path, job_id: str) -> JobRecord | None:
    """Return a job of ``index``, or None if it has no usable line for it."""
    try:
        text = read_regular(index).decode("utf-8", "replace")
        written_at = index.stat().st_mtime
    except FileNotFoundError:
        return None
    except OSError as err:
        log.warning("the index of release 0.12 cannot be read, its jobs are left out: %s", err)
        return None
    for line in reversed(text.splitlines()):
        match = _LINE.match(line)
        if match and match[1] == job_id:
            return _record(job_id, match[2], match[3], match[4], written_at)
    return None


def _record(
    job_id: str, paths: str, kind: str, tunnel_text: str, written_at: float
) -> JobRecord | None:
    logs, _, job_dir = paths.partition(",")
    try:
        stored: dict[str, Any] = json.loads(tunnel_text)
    except ValueError:
        return None
    tunnel = {name: stored[name] for name in _FIELDS if name in stored}
    if kind == "LocalTunnel":
        tunnel = {"job_dir": tunnel.get("job_dir", ""), "host": "localhost", "user": ""}
    folder = PurePosixPath(logs).parent
    plain = logs == f"{folder}/log*"
    role = Path(job_dir).name or "job"
    digest = hashlib.sha256(f"{job_id}{tunnel_text}".encode()).hexdigest()[:20]
    return JobRecord(
        app_id=job_id,
        scheduler=_SCHEDULER,
        experiment_id=Path(job_dir).parent.name,
        roles=(RoleSize(role, 1),),
        ref=JobRef(
            native_id=job_id,
            where={
                "job_id": job_id,
                "tunnel": json.dumps(tunnel),
                "job_dir": job_dir,
                # The name that the job had at Slurm is not in the index.
                "logs": json.dumps({role: f"{folder}/log-%x_%j_%r.out" if plain else logs}),
                "batch_log": f"{folder}/sbatch_%x_%j.out",
            },
        ),
        # Made from the line, so that reading it twice gives the same record.
        tag=f"nr-{digest}",
        state="SUBMITTED",
        submitted_at=written_at,
        last_seen_at=written_at,
        job_dir=job_dir,
    )
