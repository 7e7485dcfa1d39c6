"""Plugins: edit a task and its executor together when they are added to an experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nemo_run.config import ConfigurableMixin

if TYPE_CHECKING:
    from nemo_run.config import Partial, Script
    from nemo_run.core.execution.base import Executor


@dataclass(kw_only=True)
class ExperimentPlugin(ConfigurableMixin):
    """Override `setup` to change task and executor, which belong to the experiment, in place.

    Plugins are stored with the experiment, so their fields must be values that can travel.
    """

    experiment_id: str = field(init=False, default="")

    def assign(self, experiment_id: str) -> None:
        """Tell the plugin which experiment it works for, before `setup`."""
        self.experiment_id = experiment_id

    def setup(self, task: Partial[Any] | Script, executor: Executor) -> None:
        """Edit ``task`` and ``executor`` in place."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it changes.")
