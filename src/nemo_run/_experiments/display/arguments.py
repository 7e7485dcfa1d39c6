"""The arguments of stored tasks, as text for people, without what sounds secret."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from nemo_run._secrets.masking import masked_value
from nemo_run.core.serialization.peek import Peek


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
