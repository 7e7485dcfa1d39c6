"""The text around a stored JSON document: zlib, then URL-safe base64."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

from nemo_run.exceptions import ConfigError


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
        return json.loads(zlib.decompress(packed))
    except (binascii.Error, zlib.error, ValueError) as err:
        raise ConfigError(
            f"This is not a stored config, or it was cut off ({err}): {text.strip()[:40]!r}"
        ) from err
