"""Arguments: ANSWER COUNT. Fill the home directory with copies of one small experiment.

Half of them have the title that is used later, the others one of a hundred.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import nemo_run as run
from benchmarks.workers._answer import answer
from nemo_run._jobs.store import JobStore


def main() -> None:
    with run.Experiment("hello", executor=run.LocalExecutor()) as experiment:
        experiment.add(run.Script(inline="echo hi"), name="hello")
        experiment.run()
    template = Path(experiment._exp_dir)
    store = JobStore()
    (record,) = store.list("local_persistent")
    began = int(template.name.rpartition("_")[2])
    for number in range(1, int(sys.argv[2])):
        title = "hello" if number % 2 else f"title-{number % 100}"
        id = f"{title}_{began - number}"
        copy = template.parent.parent / title / id
        # Linked, as nothing writes into a file that is there already.
        shutil.copytree(template, copy, copy_function=os.link)
        app_id = f"{record.app_id}-{number}"
        of_copy = dataclasses.replace(
            record, app_id=app_id, experiment_id=id, job_dir=str(copy / "hello")
        )
        store.path(app_id, "local_persistent").write_text(json.dumps(of_copy.to_json(), indent=2))
    answer({})


if __name__ == "__main__":
    main()
