"""Come back to what was run: find it, look at it, compare it, and run it again with a change.

    python examples/history.py

Everything here works from any other process, too.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import nemo_run as run


@dataclass
class Settings:
    rate: float = 0.1


def work(settings: Settings) -> None:
    print(f"rate {settings.rate}")


def main() -> None:
    with run.Experiment("history", executor=run.LocalExecutor(), clean_mode=True) as experiment:
        experiment.add(run.Partial(work, settings=Settings(rate=0.2)))
        experiment.add(run.Partial(work, settings=run.Config(Settings)))
        experiment.run()
    print("jobs:", [job.id.rpartition(".")[2] for job in experiment.jobs])

    found = run.Experiment.from_title("history")
    states = found.status(return_dict=True) or {}
    print("states:", [state["status"].name for state in states.values()])
    found.logs(found.jobs[0].id)
    before = found.tasks[0].clone()
    found.reset()
    found.tasks[0].settings.rate = 0.5
    with found:
        found.run(sequential=True)
    # As pictures, for notebooks; `nemorun experiment diff A B` says it in words.
    print("in the task:", "0.2" in found.tasks[0].diff(before).source)
    print("in the experiment:", experiment._id in found.diff(experiment).source)

    print("runs:", len(run.Experiment.catalog("history")))
    for id in run.Experiment.catalog("history"):
        again = run.Experiment.from_id(id)
        print("first rate:", again.tasks[0].settings.rate)


if __name__ == "__main__":
    # An example has no business in your home directory; leave this line out in your own.
    run.config.set_nemorun_home(Path(tempfile.mkdtemp(prefix="history-")))
    main()
