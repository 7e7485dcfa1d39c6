"""Tasks written to files, in a form that ``--yaml`` and ``@file`` read back."""

from __future__ import annotations

import copy
import sys
from collections.abc import Collection, Mapping
from typing import Any

from nemo_run._config.fiddle import fdl
from nemo_run._values import literal
from nemo_run.cli.cli_parser import parse_attribute
from nemo_run.cli.config import ConfigSerializer
from nemo_run.cli.values.config_files import Format, split_section
from nemo_run.cli.values.errors import ArgumentValueError
from nemo_run.cli.values.hints import hint_for, means_none
from nemo_run.cli.values.parameter import Slot
from nemo_run.exceptions import ConfigError


def export_all(
    task: Any, destinations: Mapping[Format, str | None], *, leave_out: Collection[str] = ()
) -> bool:
    """Write a task to every destination that is given; tell whether there was any."""
    wanted = {format: path for format, path in destinations.items() if path}
    for format, path in wanted.items():
        export(task, path, format, leave_out=leave_out)
    return bool(wanted)


def export(task: Any, destination: str, format: Format, *, leave_out: Collection[str] = ()) -> None:
    """Write a task, or a part of it, to a file and say so.

    Args:
        task: the task.
        destination: a path, or ``path:part`` where only ``task.part`` is wanted.
        format: whatever the file is called.
        leave_out: arguments that are no part of the task.

    Raises:
        ConfigError: there is no such part, or the file cannot be written.
        UnserializableError: something inside has no such form.
    """
    path, part = split_section(destination)
    task = copy.copy(task)
    for name in leave_out:
        if name in task.__arguments__:
            delattr(task, name)
    wanted: Any = task
    if part is not None:
        try:
            wanted = parse_attribute(part, task)
        except ArgumentValueError as err:
            raise ConfigError(f"The task has no {part!r} to write to {path}.") from err
    wanted = _kept_as_text(wanted, Slot(None, ""))
    serializer = ConfigSerializer()
    write = {
        "yaml": serializer.dump_yaml,
        "toml": serializer.dump_toml,
        "json": serializer.dump_json,
    }
    try:
        write[format](wanted, path)
    except OSError as err:
        raise ConfigError(f"{path} cannot be written: {err.strerror}.") from err
    except UnicodeEncodeError as err:
        what = err.object[err.start : err.end]
        raise ConfigError(
            f"{path} cannot be written: {what!r} in the task is no text. Use Unicode."
        ) from err
    print(f"Wrote {path}", file=sys.stderr)


def _kept_as_text(value: Any, slot: Slot) -> Any:
    """Return a copy in which texts such as "none" are not taken for None when they are read."""
    if type(value) is str:
        return literal(value) if means_none(value, slot.hint) else value
    if isinstance(value, fdl.Buildable):
        copied = copy.copy(value)
        for name, argument in value.__arguments__.items():
            if isinstance(name, str):
                inner = Slot(value.__fn_or_cls__, name, hint_for(value.__fn_or_cls__, name))
                setattr(copied, name, _kept_as_text(argument, inner))
        return copied
    if type(value) in (list, tuple):
        return type(value)(
            _kept_as_text(item, slot.element(index)) for index, item in enumerate(value)
        )
    if type(value) is dict:
        return {key: _kept_as_text(item, slot.element(key)) for key, item in value.items()}
    return value
