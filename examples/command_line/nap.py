"""A command that takes a while, to be followed and cancelled: see tour.sh, beside this file."""

import time

import nemo_run as run


def nap(seconds: float = 600) -> None:
    """Do nothing for a while."""
    print("asleep", flush=True)
    time.sleep(seconds)


if __name__ == "__main__":
    run.cli.main(nap, default_executor=run.Config(run.LocalExecutor))
