"""One experiment after the other, each run in another way: planned, as jobs, in a row, right here.

python examples/experiment.py
"""

import tempfile
from pathlib import Path

import nemo_run as run


def work(number: int) -> None:
    print("work", number)


def main() -> None:
    # Only planned: what would be submitted is printed, and nothing is left of it.
    with run.Experiment("planned", executor=run.LocalExecutor()) as exp:
        exp.add(run.Partial(work, number=1), name="one")
        exp.dryrun()
    print("planned and gone:", run.Experiment.catalog("planned") == [])

    # As jobs. What is changed after a job was added does not reach it.
    task, executor = run.Partial(work, number=1), run.LocalExecutor(env_vars={"COLOUR": "blue"})
    with run.Experiment("jobs", log_level="WARN", enable_goodbye_message=False) as exp:
        exp.add(task, executor=executor, name="first")
        task.number, executor.env_vars["COLOUR"] = 2, "red"
        exp.add(task, executor=executor, name="second")
        exp.run()
    print("numbers:", [stored.number for stored in exp.tasks])
    print("colours:", [job.executor.env_vars["COLOUR"] for job in exp.jobs])
    statuses = exp.status(return_dict=True) or {}
    print("states:", [status["status"].name for status in statuses.values()])
    print("of each is known:", ", ".join(sorted(statuses["first"])))
    directory = Path(exp.jobs[0].executor.job_dir).parent
    print("kept:", ", ".join(sorted(path.name for path in directory.iterdir())))

    # In a row: each starts when the one before has ended.
    with run.Experiment("row", log_level="WARN", enable_goodbye_message=False) as exp:
        done = directory / "done"
        exp.add(run.Script(inline=f"sleep 0.3; touch {done}"), name="first")
        exp.add(run.Script(inline=f"test -e {done} && echo the first is done"), name="second")
        exp.run(sequential=True, tail_logs=True)

    # Right here, in this process, with a log all the same.
    with run.Experiment("direct", log_level="WARN", enable_goodbye_message=False) as exp:
        exp.add(run.Partial(work, number=3), name="one")
        exp.run(direct=True)
    log = Path(exp.jobs[0].executor.job_dir) / "log_one_direct_run.out"
    print("its log:", log.read_text().strip())
    print("its state:", (exp.status(return_dict=True) or {})["one"]["status"].name)


if __name__ == "__main__":
    # An example has no business in your home directory; leave this line out in your own.
    run.config.set_nemorun_home(Path(tempfile.mkdtemp(prefix="experiment-")))
    main()
