"""Jobs that NeMo Run 0.12 submitted: its index has the executor of each, packed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nemo_run._jobs import legacy
from nemo_run._jobs.records import JobRecord, JobRef, RoleSize
from nemo_run.core.serialization.peek import Peek, peek
from nemo_run.exceptions import ConfigError

log = logging.getLogger(__name__)

Settings = Mapping[str | int, Any]
"""The arguments of an executor, read without building it."""


def find(
    index: Path,
    app_id: str,
    scheduler: str,
    *,
    id_key: str,
    where_of: Callable[[str, Settings], dict[str, str]],
) -> JobRecord | None:
    """Return a job of the index of 0.12, or None where it has none that can be asked about.

    The index stays as it is. Its entry has the cluster's id of the job as ``id_key``; ``where_of``
    returns where a job is, from that id and the settings of its executor.
    """
    entry = legacy.cloud_entry(index, app_id)
    record = legacy.find_cloud_job(index, app_id, scheduler)
    if entry is None or record is None or record.ref is None:
        return None
    native_id = str(entry.get(id_key) or record.ref.native_id)
    try:
        executor = peek(str(entry["executor"]))
        if not isinstance(executor, Peek):
            raise ConfigError(f"not an executor but {executor!r}")
        where = where_of(native_id, executor.arguments)
    except (KeyError, TypeError, ValueError) as err:
        log.warning("%s: the entry of 0.12 does not say how to ask about the job: %s", app_id, err)
        return None
    (role,) = record.roles
    return replace(
        record,
        roles=(RoleSize(role.name, int(where["nodes"])),),
        ref=JobRef(native_id=native_id, where=where),
        # Made from the id, so that reading the index twice gives the same record.
        tag=f"nr-{native_id}",
    )
