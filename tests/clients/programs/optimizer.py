"""Launch the steps of a YAML file, as a tool for people who do not want to write Python."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from clusters import executor, out, states  # type: ignore[import-not-found]

import nemo_run as run

HERE = Path.cwd()


def script(step: dict[str, Any]) -> run.Script:
    """Return the task of a step; a step says only what it needs."""
    env = {name: value for entry in step.get("environment", []) for name, value in entry.items()}
    return run.Script(step["script"], args=step.get("args", []), env=env)


def place(step: dict[str, Any]) -> run.Executor:
    settings = step.get("slurm_config")
    if settings is None:
        return run.LocalExecutor()
    packager = run.PatternPackager(
        include_pattern=["common/*", "recipes/*"], relative_path=[str(HERE), str(HERE)]
    )
    found: run.Executor = executor(packager=packager, **settings)
    return found


def launch(path: str, detach: bool) -> None:
    config = yaml.safe_load(Path(path).read_text())
    with run.Experiment(config["job_name"], log_level="INFO") as experiment:
        before: list[str] = []
        for name, step in config["pipeline"].items():
            task = experiment.add(
                script(step), executor=place(step), name=name, dependencies=before or None
            )
            before = [task]
        experiment.run(detach=detach)
    found = {"id": experiment._id, "directory": experiment._exp_dir, "title": experiment._title}
    if not detach:
        found["states"] = states(experiment)
    Path(out("launched")).write_text(json.dumps(found))


if __name__ == "__main__":
    launch(sys.argv[1], detach="--detach" in sys.argv)
