"""Run a task once for each combination of values, as one experiment.

    python examples/sweep.py

On the command line it is `--sweep`: see command_line/task.py.
"""

import tempfile
from pathlib import Path

import nemo_run as run
from nemo_run.run.sweep import add_sweep, grid


def train(rate: float, width: int = 8) -> None:
    print(f"rate {rate}, width {width}")


def main() -> None:
    points = grid({"rate": [0.1, 0.01], "width": [8, 16]})
    executor = run.LocalExecutor(jobs_at_a_time=2)
    with run.Experiment("sweep", executor=executor, clean_mode=True, check=True) as experiment:
        jobs = add_sweep(experiment, run.Partial(train, rate=0.0), points, tail_logs=True)
        experiment.run()
    print(f"{len(jobs)} jobs: {', '.join(jobs)}")


if __name__ == "__main__":
    # An example has no business in your home directory; leave this line out in your own.
    run.config.set_nemorun_home(Path(tempfile.mkdtemp(prefix="sweep-")))
    main()
