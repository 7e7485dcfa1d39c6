"""A command with defaults: a recipe, an executor and a plugin, all of which words can change.

    python examples/command_line/defaults.py
    python examples/command_line/defaults.py steps=3 run.plugins.factor=10 run.executor.retries=1
    python examples/command_line/defaults.py run.executor.ntasks_per_node=2 run.plugins=double

The arguments are those of task.py, beside this file.
"""

from typing import Any

from task import MoreSteps, recipe, train  # type: ignore[import-not-found]  # beside this one

import nemo_run as run


def default_recipe() -> run.Partial[Any]:
    task: run.Partial[Any] = recipe()
    task.steps = 20
    return task


if __name__ == "__main__":
    run.cli.main(
        train,
        default_factory=default_recipe,
        default_executor=run.Config(run.LocalExecutor),
        default_plugins=run.Config(MoreSteps, factor=3),
        cmd_defaults={"skip_confirmation": True},
    )
