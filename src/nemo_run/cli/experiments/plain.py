"""Stored tasks and executors as plain data: to be shown, and to be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from nemo_run._experiments.display.arguments import flat as flat
from nemo_run._experiments.display.arguments import masked_task as masked_task
from nemo_run._secrets.masking import mask_environment
from nemo_run.core.serialization.peek import Peek

# Where a job lives differs from run to run, and says nothing about it.
OF_THE_RUN = frozenset({"experiment_id", "job_dir", "experiment_dir"})


def as_data(value: Any) -> Any:
    """Return a stored value as JSON can hold it; a config names what it calls as ``_target_``."""
    if isinstance(value, Peek):
        target = {"_target_": value.target.replace(":", ".")} if value.target else {}
        return {**target, **{str(k): as_data(v) for k, v in value.arguments.items()}}
    if isinstance(value, Mapping):
        return {str(key): as_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_data(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def masked(executor: Any) -> Any:
    """Return a stored executor without what sounds secret, and without what is of one run only."""
    if isinstance(executor, list):
        return [masked(item) for item in executor]
    if not isinstance(executor, Peek):
        return executor
    arguments = {
        name: _masked(str(name), value)
        for name, value in executor.arguments.items()
        if name not in OF_THE_RUN
    }
    return dataclasses.replace(executor, arguments=arguments)


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(str(key), item) for key, item in value.items()}
    return mask_environment({name: value})[name] if isinstance(value, str) else value
