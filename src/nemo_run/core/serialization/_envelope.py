"""The text around a stored JSON document: zlib, then URL-safe base64."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

from nemo_run.exceptions import ConfigError

MOST_BYTES = 256 << 20
"""Of a document, unpacked: a little text may hold a lot."""


def seal(document: dict[str, Any]) -> str:
    """Return a document as compact ASCII text."""
    packed = zlib.compress(json.dumps(document).encode("utf-8"))
    return base64.urlsafe_b64encode(packed).decode("ascii")


def unseal(text: str) -> Any:
    """Return the document in ``text``; white space around it does not matter.

    Raises:
        ConfigError: this is not such a text, or it was cut off.
    """
    try:
        packed = base64.urlsafe_b64decode(text.strip().encode("ascii"))
        return json.loads(_unpacked(packed))
    except (binascii.Error, zlib.error, ValueError, RecursionError) as err:
        raise ConfigError(
            f"This is not a stored config, or it was cut off ({err}): {text.strip()[:40]!r}"
        ) from err


def _unpacked(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
    if not unpacker.eof:
        raise ValueError("it is incomplete")
    return data
