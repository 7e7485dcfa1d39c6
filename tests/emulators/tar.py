"""The `tar` of a small image, on machines without busybox.

GNU's would not do: it replaces files that are in the way of a directory, and several that unpack
into one new directory at once fail. Knows what scripts there use: -x or -c, with -z, -o, -f and -C.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from pathlib import Path


def extract(archive: str, directory: Path) -> None:
    name = 0 if archive == "-" else archive
    with open(name, "rb") as source, tarfile.open(fileobj=source, mode="r|*") as tar:  # noqa: PTH123
        for member in tar:
            _extract_one(tar, member, directory)


def _extract_one(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    path = directory / member.name.lstrip("/")
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(member.mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
    elif member.islnk():
        path.hardlink_to(directory / member.linkname.lstrip("/"))
    else:
        data = tar.extractfile(member)
        assert data is not None, f"{member.name} is no file"
        with data, path.open("wb") as file:
            shutil.copyfileobj(data, file)
        path.chmod(member.mode)
        os.utime(path, (member.mtime, member.mtime))


def create(archive: str, paths: list[str]) -> None:
    name = 1 if archive == "-" else archive
    with open(name, "wb") as target, tarfile.open(fileobj=target, mode="w|gz") as tar:  # noqa: PTH123
        for path in paths:
            tar.add(path)


def main(flags: str, archive: str, *rest: str) -> None:
    paths = list(rest)
    directory = Path()
    if "-C" in paths:
        at = paths.index("-C")
        directory = Path(paths[at + 1])
        del paths[at : at + 2]
    try:
        if "x" in flags:
            extract(archive, directory)
        else:
            os.chdir(directory)
            create(archive, paths)
    except (OSError, tarfile.TarError, EOFError) as err:
        sys.exit(f"tar: {err}")


if __name__ == "__main__":
    main(*sys.argv[1:])
