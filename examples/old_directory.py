"""Look at an experiment that NeMo Run has written, and run it again.

NEMORUN_HOME=~/.nemo_run python examples/old_directory.py TITLE
"""

import sys

import nemo_run as run


def main(title: str) -> None:
    old = run.Experiment.from_title(title)
    old.status()
    for job in old.jobs:
        old.logs(job.id)
    again = old.reset()
    print("tasks:", ", ".join(type(task).__name__ for task in again.tasks))
    with again:
        again.run()
    print("now:", {job.id: job.state.name for job in again.jobs})
    print("runs:", len(run.Experiment.catalog(title)))


if __name__ == "__main__":
    main(*sys.argv[1:])
