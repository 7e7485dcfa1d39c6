"""Images for the tests, made of this machine's own programs: there is no registry to ask."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PYTHON = "nemo-run-test/python:1"
"""Has Python, bash and what busybox has."""

PLAIN = "nemo-run-test/plain:1"
"""Has what busybox has: a shell, but no bash."""

_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "ensurepip", "site-packages", "__pycache__"}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nsomebody:x:1000:1000::/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\nsomebody:x:1000:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_LIBRARY = re.compile(r"(/\S+) \(0x")


_LIBRARIES = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu"
CHANGES = ["ENV PATH=/usr/local/bin:/bin:/usr/bin", f"ENV LD_LIBRARY_PATH={_LIBRARIES}"]
"""What is to be said of both images when their files are imported."""


def load(client: Any) -> None:
    """Put both images into a Docker engine."""
    for name, data in archives():
        repository, _, tag = name.rpartition(":")
        client.api.import_image_from_data(data, repository=repository, tag=tag, changes=CHANGES)


def archives() -> Iterator[tuple[str, bytes]]:
    """Yield both images: their names, and their files in an archive."""
    yield PLAIN, plain()
    yield PYTHON, _python()


def plain() -> bytes:
    """Return the files of `PLAIN`."""
    return _packed(_add_busybox)


def _python() -> bytes:
    return _packed(_add_busybox, _add_python)


def _packed(*parts: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for part in parts:
            part(archive)
    return buffer.getvalue()


def _add_busybox(archive: tarfile.TarFile) -> None:
    for name in ("bin", "usr/bin", "usr/local/bin", "etc", "root", "proc", "sys", "dev", "lib64"):
        _directory(archive, name)
    _directory(archive, "tmp", 0o1777)
    for name, text in _FILES.items():
        _text(archive, name, text)
    busybox = shutil.which("busybox")
    assert busybox is not None
    archive.add(Path(busybox).resolve(), "bin/busybox")
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True)
    for applet in applets.stdout.split():
        if applet not in ("busybox", "bash"):
            _link(archive, f"bin/{applet}", "busybox")
    _link(archive, "usr/bin/env", "/bin/env")


def _add_python(archive: tarfile.TarFile) -> None:
    prefix = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python, library = prefix / "bin" / version, prefix / "lib" / version
    files = [python, *_below(library)]
    for path in files:
        archive.add(path, str(path).lstrip("/"), recursive=False)
    for name in ("python", "python3"):
        for place in {Path("/usr/local/bin"), python.parent}:
            _link(archive, str(place / name).lstrip("/"), str(python))
    bash = Path("/bin/bash")
    archive.add(bash.resolve(), "bin/bash")
    programs = [python, bash, *(path for path in files if path.suffix == ".so")]
    for needed in _libraries(programs):
        archive.add(needed.resolve(), str(needed).lstrip("/"))


def _below(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name in _LEFT_OUT:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)
        elif path.suffix != ".a":
            yield path


def _libraries(programs: Iterable[Path]) -> list[Path]:
    # Some are no programs at all, which is fine.
    listed = subprocess.run(
        ["ldd", *map(str, programs)], check=False, capture_output=True, text=True
    )
    return sorted(map(Path, set(_LIBRARY.findall(listed.stdout))))


def _directory(archive: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    archive.addfile(info)


def _text(archive: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text.encode())
    archive.addfile(info, io.BytesIO(text.encode()))


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    archive.addfile(info)
