"""Paths into a config, such as ``model.layers[0].size``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from nemo_run.exceptions import SetValueError


@dataclass(frozen=True)
class Key:
    """A subscript, told apart from an attribute of the same name."""

    value: Any


_STEP = re.compile(r"\.?(?P<name>[^.\[\]]+)|\[(?P<index>[^\]]+)\]")


def parse(path: str) -> list[str | Key]:
    """Split a path into attribute names and subscripts.

    Raises:
        SetValueError: the text is not a path.
    """
    steps: list[str | Key] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if not match:
            raise SetValueError(
                f"{path!r} is not a path into a config: stuck at {path[position:]!r}. "
                "Write it like model.layers[0].size."
            )
        name, index = match.group("name", "index")
        steps.append(name if name is not None else Key(_literal(index)))
        position = match.end()
    if not steps:
        raise SetValueError("An empty path names nothing. Write it like model.layers[0].size.")
    return steps


def set_value(cfg: Any, key: str, value: Any) -> None:
    """Assign ``value`` at a path such as ``model.layers[0].size``.

    Raises:
        SetValueError: the path leads nowhere, or the last step cannot be assigned.
    """
    *parents, last = parse(key)
    holder = cfg
    for step in parents:
        try:
            holder = _follow(holder, step)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as err:
            raise SetValueError(
                f"Invalid path {key!r}: there is no {_show(step)} in {holder!r}."
            ) from err
    try:
        if isinstance(last, Key):
            holder[last.value] = value
        else:
            setattr(holder, last, value)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as err:
        raise SetValueError(f"Could not set {key!r} to {value!r}: {err}") from err


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _follow(holder: Any, step: str | Key) -> Any:
    return holder[step.value] if isinstance(step, Key) else getattr(holder, step)


def _show(step: str | Key) -> str:
    return f"[{step.value!r}]" if isinstance(step, Key) else repr(step)
