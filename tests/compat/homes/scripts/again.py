"""Go on with recorded experiments and run them again, from Python: ``again.py ANSWER``."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import nemo_run as run


def states(exp: run.Experiment) -> dict[str, list[Any]]:
    status = exp.status(return_dict=True) or {}
    return {job: [str(told["status"]), told["exit_code"]] for job, told in status.items()}


def resumed() -> dict[str, list[Any]]:
    exp = run.Experiment.from_title("half")
    exp.resume()
    exp.wait()
    return states(exp)


def again(title: str) -> dict[str, list[Any]]:
    with run.Experiment.from_title(title).reset() as exp:
        exp.run()
    return states(exp)


def directly() -> str:
    """Return what the task of the planned experiment prints in this process."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), run.Experiment.from_title("planned").reset() as exp:
        exp.run(direct=True)
    return next(line for line in printed.getvalue().splitlines() if line.startswith("trained"))


if __name__ == "__main__":
    answer = {
        "resumed": resumed(),
        "again": {title: again(title) for title in ("finished", "failing", "lazy", "group")},
        "directly": directly(),
    }
    Path(sys.argv[1]).write_text(json.dumps(answer))
