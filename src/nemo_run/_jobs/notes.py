"""Notes beside a job: where it is being submitted to, written before it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from nemo_run._files import make_private_directory, read_whole, write_whole
from nemo_run.exceptions import RecordError


def write_note(note: Path, where: Mapping[str, str]) -> None:
    make_private_directory(note.parent)
    write_whole(note, json.dumps(dict(where)).encode())


def read_note(note: Path, job: str) -> dict[str, str] | None:
    """Return what a note says of a job, or None where there is no note.

    Raises:
        RecordError: the note is not what `write_note` wrote.
    """
    data = read_whole(note)
    if data is None:
        return None
    try:
        return {str(key): str(value) for key, value in json.loads(data).items()}
    except (ValueError, AttributeError, RecursionError) as err:
        raise RecordError(
            f"{note} is damaged ({err}), so {job} cannot be found by it. Remove the file to "
            "forget the job.",
            path=note,
        ) from err
