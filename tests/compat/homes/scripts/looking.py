"""Write what the Python interface says of all recorded experiments: ``looking.py ANSWER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import nemo_run as run


def described(title: str) -> dict[str, Any]:
    """Return what is known of the only experiment with a title, found in both ways."""
    (found,) = run.Experiment.catalog(title)
    exp = run.Experiment.from_id(found)
    status = exp.status(return_dict=True) or {}
    return {
        "ids": [exp._id, run.Experiment.from_title(title)._id],
        "states": {job: [str(told["status"]), told["exit_code"]] for job, told in status.items()},
        "jobs": [[job.id, job.dependencies] for job in exp.jobs],
        "tasks": [repr(task) for task in exp.tasks],
    }


if __name__ == "__main__":
    titles = sorted(run.Experiment.catalog())
    answer = {title: described(title) for title in titles}
    Path(sys.argv[1]).write_text(json.dumps(answer))
