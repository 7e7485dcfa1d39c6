"""Plugins that profile a job and prepare its environment, whatever executor it gets."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nemo_run as run

OUT = Path(os.environ["OUT"])
RECORD = str(Path(__file__).parent / "jobs" / "record.py")
# Where the programs are that the plugins count on.
TOOLS = str(Path(__file__).parent / "tools")


@dataclass(kw_only=True)
class Profile(run.Plugin):
    """Run under nsys, as long as training has the steps for it."""

    trace: list[str] = field(default_factory=lambda: ["nvtx", "cuda", "osrt"])

    def setup(self, task: Any, executor: run.Executor) -> None:
        launcher = executor.get_launcher()
        launcher.nsys_profile = True
        launcher.nsys_trace = self.trace
        launcher.nsys_filename = "mine_%p"


@dataclass(kw_only=True)
class Environment(run.Plugin):
    """Set variables that the task wants."""

    seed: int = 1

    def setup(self, task: Any, executor: run.Executor) -> None:
        executor.env_vars["SEED"] = str(self.seed)
        executor.env_vars["OUT"] = str(OUT)
        executor.env_vars["EXPERIMENT"] = self.experiment_id
        if isinstance(task, run.Script):
            task.args = [*task.args, "--seed", str(self.seed)]
        else:
            task.seed = self.seed


@dataclass(kw_only=True)
class Setup(run.Plugin):
    """Prepare the shell of a Slurm job."""

    def setup(self, task: Any, executor: run.Executor) -> None:
        assert isinstance(executor, run.SlurmExecutor)
        executor.setup_lines = f'export PATH="{TOOLS}:$PATH"\necho ready > "{OUT}/setup.txt"'


def train(steps: int, seed: int = 0) -> None:
    (OUT / "trained").write_text(
        json.dumps({"steps": steps, "seed": seed, "env": dict(os.environ)})
    )


def launch(kind: str, where: str, launcher: str) -> None:
    plugins: list[run.Plugin] = [Profile(), Environment(seed=7)]
    if where == "local":
        executor: Any = run.LocalExecutor(launcher=launcher or None)
    else:
        import clusters  # type: ignore[import-not-found]

        executor = clusters.executor(launcher=launcher or None)
        plugins.append(Setup())
    if kind == "script":
        task: Any = run.Script(RECORD, args=[str(OUT / "trained")], entrypoint="python3")
    else:
        task = run.Partial(train, steps=3)
    with run.Experiment("profiled", executor=executor) as experiment:
        experiment.add(task, plugins=plugins, name="train")
        experiment.run()
    found = {
        job: e["status"].name for job, e in (experiment.status(return_dict=True) or {}).items()
    }
    (OUT / "states").write_text(json.dumps([experiment._id, found]))
    # The plugins had copies to change.
    assert not executor.env_vars
    if isinstance(task, run.Partial):
        assert "seed" not in task.__arguments__


if __name__ == "__main__":
    launch(*sys.argv[1:])
