"""Answers that no service should give: each is a fault to be switched on where a test wants it."""

from __future__ import annotations

import json
import zlib
from typing import Any

HTML = b"<!DOCTYPE html><html><title>Sign in</title><script>alert(1)</script>Sign in!</html>"

_WRONG: dict[str, Any] = {
    # Of Run:ai.
    "workloadId": [],
    "id": {"a": 1},
    "name": 7,
    "projectId": [1],
    "actualPhase": {"phase": "Running"},
    "phase": ["Running"],
    "workloads": "none",
    "pods": 3,
    "projects": {"a": "b"},
    "accessToken": ["a"],
    "events": 5,
    # Of Kubernetes.
    "metadata": "x",
    "spec": 5,
    "status": ["Running"],
    "items": {},
    "resources": "trainjobs",
}


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def bomb(blocks: int) -> bytes:
    """Return a small body that is large when it is unpacked: so many times 16 MiB of blanks."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(b" " * (1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * blocks + packer.flush() + b"\0" * 8


ODD: dict[str, dict[str, Any]] = {
    "an empty object": {"answer": b"{}"},
    "a list": {"answer": b"[]"},
    "null": {"answer": b"null"},
    "a number": {"answer": b"7"},
    "a text": {"answer": b'"ok"'},
    "no content": {"answer": b"", "status": 204},
    "nothing": {"answer": b""},
    "a page": {"answer": HTML, "headers": {"Content-Type": "text/html"}},
    "a page that is not found": {"answer": HTML, "status": 404},
    "half an object": {"answer": b'{"metadata": {"na'},
    "binary": {"answer": bytes(range(256))},
    "wrong types": {"answer": json.dumps(_WRONG).encode()},
    "deep nesting": {"answer": nested(10_000)},
    "halves of characters": {"answer": b'{"message": "\\ud800", "actualPhase": "\\ud800"}'},
    "numbers without end": {"answer": b'{"restartCount": ' + b"9" * 5000 + b"}"},
    "an unknown encoding": {"answer": b"{}", "headers": {"Content-Encoding": "br"}},
    "no gzip": {"answer": b"{}", "headers": {"Content-Encoding": "gzip"}},
    "a redirect": {"status": 302, "headers": {"Location": "http://127.0.0.1:9/login"}},
    "a conflict": {"status": 409},
    "401": {"status": 401},
    "403": {"status": 403},
}
"""What to give to `Fault`, by a name."""

FEW = ("an empty object", "a list", "no content", "a page", "wrong types", "deep nesting")
"""Of these, one of each kind, for tests that take long."""
