"""Things by their dotted names."""

from __future__ import annotations

import importlib
from typing import Any


def locate(path: str) -> Any:
    """Import ``package.module`` or ``package.module.Class.attribute``, whichever there is.

    Raises:
        ModuleNotFoundError: there is no such package.
        AttributeError: the module has nothing of that name.
    """
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ModuleNotFoundError(f"{path!r} is not the name of anything that can be imported")
    found: Any = None
    for count, part in enumerate(parts):
        name = ".".join(parts[: count + 1])
        if count and hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as err:
            # What a module of that name fails to import is its own trouble, not ours.
            ours = err.name is not None and (name + ".").startswith(err.name + ".")
            if not count or not ours:
                raise
            owner = ".".join(parts[:count])
            raise AttributeError(f"{owner!r} has no attribute {part!r}") from None
    return found
