"""A script with everything that ``run.cli.main`` takes."""

from __future__ import annotations

from typing import Any

import fit as base  # type: ignore[import-not-found]  # a script beside this one

import nemo_run as run


def usual() -> run.Partial[Any]:
    return run.Partial(base.fit, net=run.Config(base.Net, width=3), steps=5)


if __name__ == "__main__":
    run.cli.main(
        base.fit,
        default_factory=usual,
        default_executor=run.Config(run.LocalExecutor, env_vars={"FIT_ENV": "default"}),
        default_plugins=run.Config(base.Multiply, by=10),
        cmd_defaults={"skip_confirmation": True},
    )
    print("and on it goes")
