"""What of a stored config may be called where it is only looked at: executors and their parts.

A stored experiment may come from another person, or have been changed by one. To see how its jobs
are, its executor is built; anything else that the text would call is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from nemo_run._config import later
from nemo_run._config.buildables import buildables, children
from nemo_run._config.fiddle import fdl
from nemo_run.config import ConfigurableMixin

_CONTAINERS = (dict, list, tuple, set, frozenset)
_REFUSED = object()


def only_parts(config: Any, left_out: list[str]) -> Any:
    """Return ``config`` without what is no part of an executor, None where it is none itself.

    What is missing is said in ``left_out``. The config itself is changed.
    """
    packages = {_package(each.__fn_or_cls__) for each in _all(config) if _is_ours(each)}
    kept = _Keeper(packages - {"nemo_run"}, left_out).kept(config)
    return None if kept is _REFUSED else kept


def _all(config: Any) -> Iterator[fdl.Buildable[Any]]:
    for each in buildables(config):
        yield each
        yield from buildables(list(vars(each).get(later.ATTRIBUTE, {}).values()))


def _is_ours(config: fdl.Buildable[Any]) -> bool:
    """Tell a class of executors, packagers, launchers, tunnels, plugins or what they have."""
    target = config.__fn_or_cls__
    if not isinstance(target, type):
        return False
    if issubclass(target, ConfigurableMixin) or target in _CONTAINERS:
        return True
    ours = any(_package(base) == "nemo_run" for base in target.__mro__)
    return ours and dataclasses.is_dataclass(target)


def _package(target: Any) -> str:
    return str(getattr(target, "__module__", "")).partition(".")[0]


class _Keeper:
    def __init__(self, packages: set[str], left_out: list[str]) -> None:
        self.packages = packages
        self.left_out = left_out
        self._seen: dict[int, Any] = {}

    def kept(self, value: Any) -> Any:
        if not isinstance(value, (fdl.Buildable, dict, list, tuple)):
            return value
        if id(value) not in self._seen:
            self._seen[id(value)] = value  # for one that contains itself
            self._seen[id(value)] = self._judged(value)
        return self._seen[id(value)]

    def _judged(self, value: Any) -> Any:
        if not isinstance(value, fdl.Buildable):
            refused = [item for item in children(value) if self.kept(item) is _REFUSED]
            return _REFUSED if refused else value
        if not self._may_be_called(value):
            target = value.__fn_or_cls__
            name = f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', target)}"
            self.left_out.append(f"{name} is no part of an executor, and not called to look.")
            return _REFUSED
        for held in (value.__arguments__, vars(value).get(later.ATTRIBUTE, {})):
            for key in [key for key, item in held.items() if self.kept(item) is _REFUSED]:
                del held[key]
        return value

    def _may_be_called(self, config: fdl.Buildable[Any]) -> bool:
        target = config.__fn_or_cls__
        # What the executor of another package consists of is in that package.
        theirs = dataclasses.is_dataclass(target) and _package(target) in self.packages
        return _is_ours(config) or (isinstance(target, type) and theirs)
