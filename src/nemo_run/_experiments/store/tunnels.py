"""The tunnels of an experiment, with what went through them: the file ``_TUNNELS``.

A JSON object, by the key of the tunnel (``user@host``) its config as text, as 0.12 has it.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nemo_run._experiments.store.loading import build_to_look
from nemo_run.core.serialization._decode import Stored
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError
from nemo_run.run.job import Job, JobGroup

if TYPE_CHECKING:
    from nemo_run.core.tunnel.client import Tunnel

log = logging.getLogger(__name__)


def of_jobs(jobs: Iterable[Job | JobGroup]) -> dict[str, Tunnel]:
    """Return the tunnels that jobs go through, each with the code of all that do."""
    found: dict[str, Tunnel] = {}
    for job in jobs:
        executors = job.executor_list() if isinstance(job, JobGroup) else [job.executor]
        for tunnel in filter(None, (executor.way for executor in executors)):
            shared = found.setdefault(tunnel.key, copy.deepcopy(tunnel))
            shared.packaging_jobs |= copy.deepcopy(tunnel.packaging_jobs)
    return found


def to_text(tunnels: Mapping[str, Tunnel]) -> str:
    """Return what is written down of tunnels."""
    texts = {key: ZlibJSONSerializer().serialize(tunnel) for key, tunnel in tunnels.items()}
    return json.dumps(texts)


def from_text(text: str | None) -> dict[str, Tunnel]:
    """Return the tunnels that were written down; one that cannot be read here is left out."""
    found: dict[str, Tunnel] = {}
    try:
        stored = json.loads(text or "{}")
        for key, config in stored.items():
            try:
                found[key] = _tunnel(config)
            except (ImportError, AttributeError, ConfigError) as err:
                log.warning("The tunnel %s cannot be read here: %s", key, err)
    except (ValueError, TypeError, AttributeError) as err:
        log.warning("The tunnels of this experiment cannot be read: %s", err)
    return found


def _tunnel(text: str) -> Tunnel:
    from nemo_run.core.tunnel.client import Tunnel

    left_out: list[str] = []
    made = build_to_look(Stored(text).root(), left_out)
    if not isinstance(made, Tunnel):
        raise ConfigError(f"It is none. {'; '.join(left_out)}")
    return made
