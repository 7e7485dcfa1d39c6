"""Stored tasks and executors as plain data: to be shown, and to be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from nemo_run._credentials import mask_environment
from nemo_run.core.serialization.peek import Peek
from nemo_run.run._arguments import masked_value

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


def flat(value: Any) -> dict[str, str]:
    """Return a stored value as text by path, such as ``model.layers[0].size``."""
    return dict(_flat(value, ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Peek):
        yield path, value.target.replace(":", ".")
        for key, item in value.arguments.items():
            if item is not None:
                yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(i, (Peek, Mapping)) for i in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, str) else repr(value)


def masked_task(value: Any, name: str = "") -> Any:
    """Return a stored task, or a list of them, without what sounds secret."""
    if isinstance(value, Peek):
        arguments = {
            key: masked_task(item, f"{name}.{key}" if name else str(key))
            for key, item in value.arguments.items()
        }
        return dataclasses.replace(value, arguments=arguments)
    if isinstance(value, (list, tuple)) and any(isinstance(item, Peek) for item in value):
        return [masked_task(item, name) for item in value]
    if isinstance(value, Mapping) and any(isinstance(item, Peek) for item in value.values()):
        return {key: masked_task(item, f"{name}.{key}") for key, item in value.items()}
    return masked_value(name, value)


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
