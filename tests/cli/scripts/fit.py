"""A training script with factories, executors and plugins, as users write them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import nemo_run as run


@dataclass
class Net:
    width: int = 8
    depth: int = 2


@dataclass
class Data:
    paths: list[str] = field(default_factory=list)
    net: Net | None = None


class Report:
    """What a task was called with, on a line that tests find."""

    def __init__(self, **values: Any) -> None:
        print("REPORT", json.dumps(values, default=vars), flush=True)


def fit(
    net: Net,
    steps: int = 10,
    other: Net | None = None,
    nets: list[Net] = [Net(1), Net(2)],  # noqa: B006, B008 - users write this
    tags: list[str] = ["a"],  # noqa: B006
    default: Net = Net(depth=7),  # noqa: B008
    data: Data | None = None,
    run_id: int = 0,
    executor_name: str = "",
    plugins_dir: str = "",
    path: str = "",
    fail: str = "",
) -> None:
    """Fit a net to data.

    It takes a while.

    Args:
        net: what to fit.
    """
    Report(**{**locals(), "pid": os.getpid(), "env": os.environ.get("FIT_ENV", "")})
    if fail == "exit":
        raise SystemExit(7)
    if fail:
        raise ValueError(fail)


@run.cli.factory
@run.autoconvert
def small_net(width: int = 4) -> Net:
    """A net for trying things out.

    Not for more.
    """
    return Net(width=width)


@run.cli.factory
def broken_net() -> run.Config[Net]:
    """Fail."""
    raise RuntimeError("no such luck")


@run.cli.factory(target=fit, target_arg="data")
def two_files() -> run.Config[Data]:
    return run.Config(Data, paths=["a", "b"])


@run.cli.factory(target=fit)
def recipe(steps: int = 100) -> run.Partial[Any]:
    """Everything set."""
    return run.Partial(fit, net=small_net(), steps=steps)


@run.cli.factory
def local(n: int = 1) -> run.Config[run.LocalExecutor]:
    """Run on this machine."""
    return run.Config(run.LocalExecutor, ntasks_per_node=n)


@run.cli.factory
@run.autoconvert
def anywhere() -> run.Executor:
    return run.LocalExecutor(env_vars={"FIT_ENV": "anywhere"})


@dataclass(kw_only=True)
class Multiply(run.Plugin):
    by: int = 2

    def setup(self, task: Any, executor: run.Executor) -> None:
        task.steps *= self.by
        executor.env_vars["FIT_ENV"] = f"by {self.by}"


@run.cli.factory
@run.autoconvert
def double() -> Multiply:
    return Multiply()


@run.cli.factory
@run.autoconvert
def triple() -> run.Plugin:
    return Multiply(by=3)


if __name__ == "__main__":
    run.cli.main(fit)
