"""Names of the stored JSON document, which Fiddle and NeMo Run 0.12 read and write too."""

from __future__ import annotations

VERSION = "0.0.1"

LEAF_TYPES = frozenset({int, float, bool, str, type(None)})

# A value is listed under every path that leads to it; with much sharing there are
# exponentially many, and readers ignore them.
MAX_PATHS = 64

PYREF = "pyref"
REF = "ref"
LEAF = "leaf"

SET_LATER = "set_later"
"""Key of an object: values by name that its class's constructor does not take.

Fiddle, and so NeMo Run 0.12, reads past keys that it does not know.
"""

METADATA = ("fiddle._src.config", "BuildableTraverserMetadata")
# The one type whose reader calls its metadata with the items, whatever callable that is.
CALL = ("fiddle._src.daglish", "NamedTupleType")

BUILDABLES = {
    ("nemo_run.config", "Config"): "Config",
    ("nemo_run.config", "Partial"): "Partial",
    ("fiddle._src.config", "Config"): "Config",
    ("fiddle._src.partial", "Partial"): "Partial",
}


def pyref(module: str, name: str) -> dict[str, str]:
    """Return the node that names something importable."""
    return {"type": PYREF, "module": module, "name": name}


RUNNER = "nemo_run.core.runners.fdl_runner"
"""The module that runs a stored task."""

EXTERNAL_MAIN = "__external_main__"
"""What modules that saved launching scripts are loaded as begin with.

Where their tasks run, they are ``__main__``.
"""
