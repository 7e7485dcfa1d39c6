"""Overrides as a lazy task keeps them: recorded by assignment, or read from files and words.

They are kept as tuples of key, operator and value, which is how they are stored. A string among
the values is as typed on a command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nemo_run.cli.lazy.dotlist import Change, dictconfig_to_dot_list
from nemo_run.cli.values import literals
from nemo_run.cli.values.config_files import (
    FORMATS,
    as_config,
    load_config_from_path,
    parse,
    plain,
    read,
)
from nemo_run.cli.values.edit import split_operator
from nemo_run.cli.values.grammar import Operation, Override, parse_file, parse_override
from nemo_run.cli.values.parameter import own
from nemo_run.exceptions import ConfigError


class Changes(list[Change]):
    """A list that Fiddle does not look into, since what is in it is not built as it is."""


class Recorder:
    """A place inside a lazy task: assigning to what is in it records an override."""

    _changes: list[Change]
    _path: str

    def __init__(self, changes: list[Change], path: str):
        vars(self).update(_changes=changes, _path=path)

    def __getattr__(self, name: str) -> Recorder:
        if name.startswith("_"):
            raise AttributeError(f"a lazy task has no attribute {name!r}")
        return Recorder(self._changes, f"{self._path}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        record(self._changes, f"{self._path}.{name}", value)

    def __getitem__(self, key: int | str) -> Recorder:
        return Recorder(self._changes, f"{self._path}[{key}]")

    def __setitem__(self, key: int | str, value: Any) -> None:
        record(self._changes, f"{self._path}[{key}]", value)

    def __repr__(self) -> str:
        return f"<lazy {self._path}>"

    def _noted(self, operation: Operation, value: Any) -> _Recorded:
        self._changes.append((self._path, operation.value, _as_text(value)))
        return _Recorded()

    def __iadd__(self, value: Any) -> _Recorded:
        return self._noted(Operation.ADD, value)

    def __isub__(self, value: Any) -> _Recorded:
        return self._noted(Operation.SUBTRACT, value)

    def __imul__(self, value: Any) -> _Recorded:
        return self._noted(Operation.MULTIPLY, value)

    def __itruediv__(self, value: Any) -> _Recorded:
        return self._noted(Operation.DIVIDE, value)

    def __ior__(self, value: Any) -> _Recorded:
        return self._noted(Operation.OR, value)

    def __iand__(self, value: Any) -> _Recorded:
        return self._noted(Operation.AND, value)


class _Recorded:
    """What ``+=`` leaves to be assigned after it was recorded: nothing."""


def record(changes: list[Change], path: str, value: Any) -> None:
    """Note that ``value`` is to be assigned at a path.

    Raises:
        ConfigError: the value is another place of a lazy task.
    """
    if isinstance(value, Recorder):
        raise ConfigError(f"{value!r} has no value yet, so {path} cannot be set to it.")
    if not isinstance(value, _Recorded):
        changes.append((path, "=", _as_text(value)))


def _as_text(value: Any) -> Any:
    """Quote a string that would be read as something else when it is applied."""
    if not isinstance(value, str):
        return value
    is_literal = literals.read_or_text(value) != value
    is_word = value.strip().lower() in literals.NONE_WORDS or parse_file(value) is not None
    if not (is_literal or is_word):
        return value
    return "'" + value.replace("'", "\\'") + "'"


def as_override(change: Sequence[Any]) -> Override:
    """Return a recorded change in the form that is applied."""
    key, operator_text, value = change
    # Earlier releases left the first half of an operator at the key: ("x+", "=", 1).
    if operator_text == "=" and not key[-1:].isalnum() and key[-1:] not in ("_", "]"):
        key, operation = split_operator(f"{key}=")
    else:
        operation = Operation(operator_text)
    # In quotes, it is a string that was assigned, or is in a file: see `_as_text`.
    if isinstance(value, str) and literals.unquote(value, "'") != value:
        return Override(key, operation, literals.unquote(value, "'"), is_text=False)
    return Override(key, operation, own(value), is_text=isinstance(value, str))


def from_config(config: Any) -> tuple[list[Change], str | None]:
    """Return the changes and the factory that a file, a YAML text or a config describes."""
    if config is None:
        return [], None
    if isinstance(config, Path) or (isinstance(config, str) and _is_file_name(config)):
        config = as_config(read(Path(config)))
    elif isinstance(config, str):
        config = as_config(parse(config, "yaml"))
    data = plain(config if config is not None else {})
    if not isinstance(data, dict):
        raise ConfigError(f"A task is described by a mapping, not by {data!r}.")
    changes = dictconfig_to_dot_list(data)
    run = data.get("run")
    factory = data.get("_factory_") or (run.get("factory") if isinstance(run, dict) else None)
    about = ("_factory_", "_target_", "_partial_")
    kept = [(key, op, _as_text(value)) for key, op, value in changes if key not in about]
    return kept, factory


def _is_file_name(text: str) -> bool:
    return "\n" not in text and ":" not in text and Path(text).suffix.lower() in FORMATS


def from_word(word: str) -> list[Change]:
    """Return the changes that an override describes; a file that it names is read now."""
    override = parse_override(word)
    if override.operation is Operation.ASSIGN and parse_file(override.value):
        # The file may not be there where the task is put together.
        content = load_config_from_path(override.value)
        if hasattr(content, "keys"):
            changes = dictconfig_to_dot_list(content, prefix=override.key)
        else:
            changes = [(override.key, "=", plain(content))]
        return [(key, op, _as_text(value)) for key, op, value in changes]
    return [(override.key, override.operation.value, override.value)]
