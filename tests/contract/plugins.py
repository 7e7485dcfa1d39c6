"""Plugins that experiments of the tests use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nemo_run.core.execution.base import Executor
from nemo_run.run.plugin import ExperimentPlugin


@dataclass(kw_only=True)
class SetVariable(ExperimentPlugin):
    name: str
    value: str = ""

    def setup(self, task: Any, executor: Executor) -> None:
        executor.env_vars[self.name] = self.value


@dataclass(kw_only=True)
class NoteExperiment(ExperimentPlugin):
    """Puts the id of the experiment where the job can see it."""

    def setup(self, task: Any, executor: Executor) -> None:
        executor.env_vars["NOTED"] = self.experiment_id


@dataclass(kw_only=True)
class Louder(ExperimentPlugin):
    """Edits the argument of `tasks.say`."""

    def setup(self, task: Any, executor: Executor) -> None:
        task.text = task.text.upper()


@dataclass(kw_only=True)
class Refuse(ExperimentPlugin):
    def setup(self, task: Any, executor: Executor) -> None:
        raise LookupError("applied")
