"""Fiddle: the one place that knows which of its private parts we use, and imports it fast.

Two thirds of the quarter of a second that importing Fiddle takes go into libcst, which it needs
only to find the source of a lambda given to auto_config. So libcst is replaced while Fiddle is
imported, and loaded when such a lambda comes along. Half of the rest goes into absl's logging, in
whose place Python's own does.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import sys
from collections.abc import Mapping
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

_AUTO_CONFIG = "fiddle._src.experimental.auto_config"


def _import_without_libcst() -> None:
    if "fiddle" in sys.modules or "libcst" in sys.modules:
        return
    stand_ins = {"libcst": _stand_in(), "absl": _absl_with_plain_logging()}
    stand_ins = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        auto_config = importlib.import_module(_AUTO_CONFIG)
    except AttributeError:
        # A Fiddle that uses libcst in other ways too: take it as it is.
        for name in [name for name in sys.modules if name.partition(".")[0] == "fiddle"]:
            del sys.modules[name]
        return
    finally:
        for name in stand_ins:
            del sys.modules[name]
    auto_config.__dict__["_getsource_for_lambda"] = _lambda_source


def _stand_in() -> ModuleType:
    module = ModuleType("libcst")
    module.__dict__.update(CSTVisitor=object, metadata=SimpleNamespace(PositionProvider=None))
    return module


def _absl_with_plain_logging() -> ModuleType:
    module = ModuleType("absl")
    module.__dict__.update(logging=logging)
    return module


def _lambda_source(fn: Any) -> Any:
    """Do what Fiddle would, with a copy of its module that has the real libcst."""
    spec = importlib.util.find_spec(_AUTO_CONFIG)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {_AUTO_CONFIG!r}", name=_AUTO_CONFIG)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module._getsource_for_lambda(fn)


_import_without_libcst()

import fiddle as fdl  # noqa: E402
from fiddle._src import building, daglish  # noqa: E402
from fiddle._src.casting import register_supported_cast  # noqa: E402
from fiddle._src.config import BuildableTraverserMetadata, ordered_arguments  # noqa: E402
from fiddle._src.experimental import (  # noqa: E402
    auto_config,
    auto_config_policy,
)
from fiddle._src.history import History  # noqa: E402
from fiddle._src.signatures import SignatureInfo, get_signature  # noqa: E402
from fiddle._src.signatures import get_type_hints as _get_type_hints  # noqa: E402

if TYPE_CHECKING:
    from fiddle._src.experimental import serialization as fiddle_json
    from fiddle._src.experimental.serialization import PyrefPolicy, PyrefPolicyError
    from fiddle._src.special_overrides import (
        maybe_get_module_override_for_migrated_serialization_symbol as moved_to,
    )


def __getattr__(name: str) -> Any:
    """Import what is about stored configs, which nothing else needs, when it is asked for."""
    if name not in ("PyrefPolicy", "PyrefPolicyError", "fiddle_json", "moved_to"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fiddle._src import special_overrides
    from fiddle._src.experimental import serialization

    moved_to = special_overrides.maybe_get_module_override_for_migrated_serialization_symbol
    found = {"fiddle_json": serialization, "moved_to": moved_to}
    return found[name] if name in found else getattr(serialization, name)


def get_type_hints(target: Any, *, include_extras: bool = False) -> Mapping[str, Any]:
    """Return the annotations of a callable, evaluated; none where that fails."""
    try:
        return _cached_type_hints(target, include_extras)
    except TypeError:  # unhashable
        return _get_type_hints(target, include_extras=include_extras)


@functools.lru_cache(maxsize=4096)
def _cached_type_hints(target: Any, include_extras: bool) -> Mapping[str, Any]:
    # Fiddle's own cache never hits: its keys are tuples, to which there are no weak references.
    return MappingProxyType(_get_type_hints(target, include_extras=include_extras))


__all__ = [
    "BuildableTraverserMetadata",
    "History",
    "PyrefPolicy",
    "PyrefPolicyError",
    "SignatureInfo",
    "auto_config",
    "auto_config_policy",
    "building",
    "daglish",
    "fdl",
    "fiddle_json",
    "get_signature",
    "get_type_hints",
    "moved_to",
    "ordered_arguments",
    "register_supported_cast",
]
