"""Run one of the experiments that are recorded: ``launch.py CASE``.

Only names that every version has are used here, so that any version can be recorded. A case with
a cluster takes it from the tests of the version that is recorded, whose checkout CHECKOUT names.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import steps  # type: ignore[import-not-found]  # beside this script

import nemo_run as run

HERE = Path(__file__).parent


def double(number: int) -> None:
    """Stand in the launching script itself."""
    print(f"twice {number} is {2 * number}")


def training(number: int) -> run.Partial[None]:
    optimizer = run.Config(steps.Optimizer, rate=0.5)
    return run.Partial(steps.train, steps=number, optimizer=optimizer, label='say "hi"')


def echo(text: str, **settings: Any) -> run.Script:
    return run.Script(inline=f"echo {text}", **settings)


def finished() -> None:
    """Every kind of task, one after the other, with variables."""
    with run.Experiment("finished") as exp:
        local = run.LocalExecutor(env_vars={"OF": "3"})
        first = exp.add(training(3), executor=local, name="train")
        file = run.Script(path=str(HERE / "step.sh"), args=["2"], env={"KIND": "file"})
        second = exp.add(file, executor=local, name="file", dependencies=[first])
        exp.add(echo("$KIND", env={"KIND": "inline"}), executor=local, name="inline")
        exp.add(run.Partial(double, 21), executor=local, name="main", dependencies=[second])
        exp.run()


def failing() -> None:
    """A failure, what is cancelled because of it, and what runs because of it."""
    with run.Experiment("failing") as exp:
        bad = exp.add(run.Script(inline="echo bad; exit 3"), name="bad")
        after = exp.add(echo("after"), name="after", dependencies=[bad])
        exp.add(echo("later"), name="later", dependencies=[after])
        exp.add(echo("tidy"), name="tidy", dependencies=[bad], run_if="failed")
        exp.run()


def group() -> None:
    """Tasks that share their fate, then a job that waits for them."""
    with run.Experiment("group") as exp:
        pair = exp.add([echo("left"), training(1)], name="pair")
        exp.add(echo("both"), name="both", dependencies=[pair])
        exp.run()


def retried() -> None:
    """A job that succeeds at its second attempt."""
    with run.Experiment("retried") as exp:
        text = 'echo attempt "$NEMO_RUN_ATTEMPT"; [ "$NEMO_RUN_ATTEMPT" -gt 1 ]'
        exp.add(run.Script(inline=text), executor=run.LocalExecutor(retries=2), name="flaky")
        exp.run()


def lazy() -> None:
    """A task that is read only when it runs, as the command line stores it."""
    with run.Experiment("lazy") as exp:
        entry = run.LazyEntrypoint("steps.train", yaml=None)
        entry.steps = 4
        entry.optimizer = run.Config(steps.Optimizer, name="adam")
        exp.add(entry, name="train")  # type: ignore[arg-type]  # stands for a Partial
        exp.run()


def planned() -> None:
    """Planned and never launched."""
    with run.Experiment("planned") as exp:
        exp.add(training(2), name="train")
        exp.dryrun(log=False, delete_exp_dir=False)


def detached() -> None:
    """Seen through by a process of its own."""
    with run.Experiment("detached") as exp:
        first = exp.add(run.Script(inline="sleep 1; echo first"), name="first")
        exp.add(training(5), name="second", dependencies=[first])
        exp.run(detach=True)


def half() -> None:
    """The launcher is killed while the first job runs."""
    with run.Experiment("half") as exp:
        gate = HERE / "gate"
        text = f"echo first; until [ -e '{gate}' ]; do sleep 0.1; done"
        first = exp.add(run.Script(inline=text), name="first")
        second = exp.add(training(7), name="second", dependencies=[first])
        pair = exp.add([echo("left"), echo("right")], name="pair", dependencies=[second])
        exp.add(run.Partial(double, 4), name="last", dependencies=[pair])
        exp.run()


def slurm() -> None:
    """A task of each kind on a cluster over ssh, with dependencies, and a group."""
    cluster = _cluster("slurm")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    executor = cluster.executor()
    # The code of the project travels to the cluster, in an archive that the home keeps.
    coded = cluster.executor(packager=run.GitArchivePackager(), env_vars={"PATH": path})
    with run.Experiment("slurm") as exp:
        first = exp.add(echo("$KIND", env={"KIND": "first"}), executor=executor, name="first")
        exp.add(training(6), executor=coded, name="second", dependencies=[first])
        exp.add([echo("left"), echo("right")], executor=executor, name="pair")
        bad = exp.add(run.Script(inline="exit 5"), executor=executor, name="bad")
        exp.add(echo("never"), executor=executor, name="never", dependencies=[bad])
        exp.run()


def remote(name: str) -> Callable[[], None]:
    """One job that succeeds and one that fails, on a cluster of the tests."""

    def case() -> None:
        cluster = _cluster(name)
        try:
            with run.Experiment(name) as exp:
                executor = cluster.executor(env_vars={"KIND": name})
                good = exp.add(run.Script(inline='echo "on $KIND"'), executor=executor, name="good")
                bad = run.Script(inline="echo bad; exit 4")
                exp.add(bad, executor=executor, name="bad", dependencies=[good])
                exp.run()
        finally:
            cluster.close()

    return case


def _cluster(name: str) -> Any:
    sys.path.append(os.environ["CHECKOUT"])
    from tests.contract.backends import BACKENDS

    return BACKENDS[name](HERE.parent / name)


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (finished, failing, group, retried, lazy, planned, detached, half, slurm)
} | {name: remote(name) for name in ("docker", "lepton", "dgx_cloud", "kubeflow")}


if __name__ == "__main__":
    begin = time.monotonic()
    CASES[sys.argv[1]]()
    print(f"{sys.argv[1]}: {time.monotonic() - begin:.1f} s")
