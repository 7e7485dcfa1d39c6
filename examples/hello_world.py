"""Configure a function, look at it, change it, and run it here and as a job.

    python examples/hello_world.py

It is what a first script looks like.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import nemo_run as run


@dataclass
class Worker:
    number: int
    name: str = "nobody"


def greet(first: Worker, second: Worker, greeting: str = "hello") -> None:
    print(f"{greeting} {first.name} {first.number} and {second.name} {second.number}")


@run.autoconvert
def somebody(number: int = 1) -> Worker:
    return Worker(number=number, name="somebody")


def main() -> None:
    task = run.Partial(greet, first=run.Config(Worker, number=7), second=somebody(number=2))
    task.first.name = "agent"
    task.second.number *= 21

    run.run(task, direct=True, dryrun=True)
    run.run(task, direct=True)
    task.greeting = "good morning"
    run.run(task, executor=run.LocalExecutor(), name="greet", log_level="WARN")


if __name__ == "__main__":
    # An example has no business in your home directory; leave this line out in your own.
    run.config.set_nemorun_home(Path(tempfile.mkdtemp(prefix="hello-world-")))
    main()
