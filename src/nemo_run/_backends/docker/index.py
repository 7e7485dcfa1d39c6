"""The index file in which 0.12 keeps requests for containers."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from nemo_run._files import make_private_directory, read_whole, write_whole
from nemo_run._home import get_nemorun_home

INDEX = ".docker_jobs.json"


def index_path() -> Path:
    """Return where it is, under the home directory of the moment."""
    return Path(get_nemorun_home()) / INDEX


def read_index() -> dict[str, Any]:
    """Return the requests by the ids of their jobs, each as text; none of a damaged file."""
    try:
        found = json.loads(read_whole(index_path()) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def add_to_index(app_id: str, text: str) -> None:
    path = index_path()
    make_private_directory(path.parent)
    with path.with_name(f"{INDEX}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_whole(path, json.dumps({**read_index(), app_id: text}).encode())
