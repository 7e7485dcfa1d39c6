"""Launch a job that fails, and leave in one of the many ways in which programs leave."""

import atexit
import os
import sys
import threading
from pathlib import Path
from typing import Any

import nemo_run as run

FAILS = run.Script(inline="echo the last words; exit 4")
WORKS = run.Script(inline="echo fine")


def executor() -> run.Executor:
    if "CLUSTER" not in os.environ:
        return run.LocalExecutor()
    import clusters  # type: ignore[import-not-found]

    found: run.Executor = clusters.executor()
    return found


def launch(task: run.Script = FAILS, **settings: Any) -> None:
    run.run(task, executor=executor(), name="train", **settings)
    print("run.run returned", flush=True)


def look() -> str:
    (found,) = (run.Experiment.from_title("train").status(return_dict=True) or {}).values()
    return str(found["status"].name)


def looks() -> None:
    launch()
    print("the job is", look(), flush=True)


def looks_and_leaves() -> None:
    launch()
    sys.exit(7 if look() == "FAILED" else 0)


def ignores() -> None:
    launch()


def works() -> None:
    launch(WORKS)


def checks() -> None:
    launch(check=True)


def catches() -> None:
    from nemo_run.exceptions import JobFailedError

    try:
        launch(check=True)
    except JobFailedError as error:
        print("caught:", error, flush=True)


def does_not_check() -> None:
    launch(check=False)


def in_a_thread() -> None:
    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()


def exits_with_0() -> None:
    launch()
    sys.exit(0)


def exits_with_none() -> None:
    launch()
    sys.exit()


def exits_with_3() -> None:
    launch()
    sys.exit(3)


def raises() -> None:
    launch()
    raise ValueError("the user's own mistake")


def has_handlers() -> None:
    """Handlers of the program's own, made before and after the launch."""
    atexit.register(Path("before").write_text, "ran")
    launch()
    atexit.register(Path("after").write_text, "ran")
    atexit.register(print, "a handler speaks", flush=True)
    # What waits in a buffer is written too, when the interpreter closes its files.
    sys.stdout.write("without a newline")
    globals()["log"] = Path("file").open("w")  # noqa: SIM115
    globals()["log"].write("buffered")


def several() -> None:
    """One failed and was looked at, one worked; a third failed and was not looked at."""
    launch()
    print(look())
    launch(WORKS)
    launch()


def one_then_the_other() -> None:
    """The last look covers whatever has the title: a job that failed before it was retried."""
    launch()
    print(look())
    launch(WORKS)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
