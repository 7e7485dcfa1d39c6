"""The file system that the storage API of older clients reaches: a directory of this machine.

It is none of the volumes of node groups, which only jobs can see.
"""

from __future__ import annotations

import shutil
from email import message_from_bytes
from pathlib import Path
from typing import Any

from tests.emulators.http import Refused, Request, Response

NAME = "default"


def described(directory: Path) -> dict[str, Any]:
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return {"metadata": {"id": NAME, "name": NAME}, "status": {"total_usage_bytes": size}}


def answer(directory: Path, request: Request, path: str) -> Any:
    """Do what was asked with ``path`` below ``directory``."""
    target = directory.joinpath(*(part for part in path.split("/") if part not in ("", ".", "..")))
    if request.method == "PUT":
        target.mkdir(parents=True, exist_ok=True)
        return {}
    if request.method == "POST":
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_uploaded(request))
        return {}
    if not target.exists():
        raise Refused(404, f"{path} not found")
    if request.method == "DELETE":
        return _delete(target, all_of_it=request.query.get("removeall") == "true")
    return _content(directory, target)


def _uploaded(request: Request) -> bytes:
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode()
    parts = message_from_bytes(head + request.body)
    if not parts.is_multipart():
        raise Refused(400, "no file in the request")
    content = parts.get_payload(0).get_payload(decode=True)  # type: ignore[union-attr]
    assert isinstance(content, bytes)
    return content


def _delete(target: Path, *, all_of_it: bool) -> Any:
    if not target.is_dir():
        target.unlink()
    elif all_of_it or not any(target.iterdir()):
        shutil.rmtree(target)
    else:
        raise Refused(400, f"{target.name} is not empty")
    return {}


def _content(directory: Path, target: Path) -> Any:
    if target.is_file():
        return Response(target.read_bytes())
    return [
        {
            "type": "dir" if path.is_dir() else "file",
            "name": path.name,
            "path": "/" + str(path.relative_to(directory)),
        }
        for path in sorted(target.iterdir())
    ]
