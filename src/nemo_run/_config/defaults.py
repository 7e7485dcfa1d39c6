"""None as the value of a setting that cannot be None: it means the default."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from typing import Any

_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_NONE = re.compile(r"\b(None|NoneType|Optional|Any)\b")
_IS_FLAG = re.compile(r"(<class ')?bool('>)?")


def fill_in(instance: Any, unsaid: Collection[str] = ()) -> None:
    """Put their defaults into the fields of a dataclass that are None and are not to be.

    Fields that are ``unsaid`` stay, and so do flags, for which None is as good as False.
    """
    for item in dataclasses.fields(instance):
        if item.init and item.name not in unsaid and getattr(instance, item.name) is None:
            # Annotations are text in modules that postpone them, and types in others.
            kind = str(item.type)
            if not _takes_none(kind) and not _IS_FLAG.fullmatch(kind):
                _set_default(instance, item)


def _takes_none(kind: str) -> bool:
    outside = kind
    while (shorter := _BRACKETS.sub("", outside)) != outside:
        outside = shorter
    return _NONE.search(kind if "Union" in outside else outside) is not None


def _set_default(instance: Any, item: dataclasses.Field[Any]) -> None:
    if item.default_factory is not dataclasses.MISSING:
        setattr(instance, item.name, item.default_factory())
    elif item.default is not dataclasses.MISSING:
        setattr(instance, item.name, item.default)
