"""Run the functions of a module; jobs import it by its name, from where its code is.

python examples/hello_package/main.py
"""

import os
import tempfile
from pathlib import Path

import greetings  # type: ignore[import-not-found]  # beside this one

import nemo_run as run

HERE = Path(__file__).resolve().parent


def main() -> None:
    # A job starts in the directory that it is launched from; it finds the module by this.
    executor = run.LocalExecutor(env_vars={"PYTHONPATH": str(HERE)})
    with run.Experiment("hello-package", executor=executor, check=True) as exp:
        met = exp.add(
            run.Partial(greetings.greet, first=greetings.agent(), second=greetings.stranger()),
            name="greet",
            tail_logs=True,
        )
        leaving = run.Partial(greetings.part, person=greetings.agent(number=8))
        exp.add(leaving, name="part", tail_logs=True, dependencies=[met])
        exp.run()
    print("tasks of:", {task.__fn_or_cls__.__module__ for task in exp.tasks})


if __name__ == "__main__":
    # An example has no business in your home directory; leave these lines out in your own.
    os.chdir(tempfile.mkdtemp(prefix="hello-package-"))
    run.config.set_nemorun_home(Path.cwd() / "home")
    main()
