"""Start an experiment, leave, and come back from another process.

    python examples/detach.py start [SECONDS]
    python examples/detach.py back
    python examples/detach.py stop

Jobs and the order between them are looked after by processes of their own: closing the terminal,
or killing the one that typed `start`, changes nothing.
"""

import sys
import time

import nemo_run as run

TITLE = "detach"


def count(seconds: int) -> None:
    for second in range(seconds):
        print("second", second, flush=True)
        time.sleep(1)


def start(seconds: str = "2") -> None:
    with run.Experiment(TITLE, enable_goodbye_message=False) as exp:
        first = exp.add(run.Partial(count, seconds=int(seconds)), name="first")
        exp.add(run.Partial(count, seconds=int(seconds)), name="second", dependencies=[first])
        exp.run(detach=True)


def back() -> None:
    exp = run.Experiment.from_title(TITLE)
    exp.wait()
    exp.logs("second")
    exp.status()
    exp.raise_if_failed()
    print("tasks:", [task.seconds for task in exp.tasks])
    with exp:
        exp.run()  # nothing happens twice: it says that reset() is for that


def stop() -> None:
    exp = run.Experiment.from_title(TITLE)
    for job in exp.jobs:
        exp.cancel(job.id)
    exp.status()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start", *seconds]:
            start(*seconds)
        case ["back"]:
            back()
        case ["stop"]:
            stop()
        case _:
            sys.exit(f"usage: {sys.argv[0]} start [SECONDS] | back | stop")
