"""Find the names of this package in what is stored, and in what is handed to clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.compat.homes.archive import plain

_REFERENCE = re.compile(r'"module": "(nemo_run[\w.]*)", "name": "([\w.]+)"')
# Not in an URL or a path, nor in the name of another package.
_DOTTED = re.compile(r"(?<![\w./-])nemo_run(?:\.[A-Za-z_]\w*)+")


def names_in(text: str) -> set[str]:
    """Return the dotted names in ``text`` and in the configs that are packed into it."""
    return set(_names(plain(text)))


def _names(text: str) -> Iterator[str]:
    for module, name in _REFERENCE.findall(text):
        yield f"{module}.{name}"
    yield from _DOTTED.findall(_REFERENCE.sub("", text))
