"""The file transfer protocol of ssh, version 3, as far as we speak it.

It is written down in ``draft-ietf-secsh-filexfer-02``; what servers of OpenSSH do otherwise is in
``PROTOCOL`` of its sources.
"""

from __future__ import annotations

import enum
import errno
import os
import struct
from dataclasses import dataclass
from typing import IO

VERSION = 3
LONGEST_PACKET = 1 << 24


class Kind(enum.IntEnum):
    """What a packet is."""

    INIT = 1
    VERSION = 2
    OPEN = 3
    CLOSE = 4
    READ = 5
    WRITE = 6
    LSTAT = 7
    SETSTAT = 9
    OPENDIR = 11
    READDIR = 12
    REMOVE = 13
    MKDIR = 14
    RMDIR = 15
    REALPATH = 16
    STAT = 17
    RENAME = 18
    READLINK = 19
    SYMLINK = 20
    STATUS = 101
    HANDLE = 102
    DATA = 103
    NAME = 104
    ATTRS = 105
    EXTENDED = 200


class Open(enum.IntFlag):
    """How a file is opened."""

    READ = 1
    WRITE = 2
    APPEND = 4
    CREATE = 8
    TRUNCATE = 16
    EXCLUSIVE = 32


_OK = 0
_END_OF_FILE = 1
_ERRORS = {2: errno.ENOENT, 3: errno.EACCES, 8: errno.ENOSYS}


class EndOfFile(OSError):
    """What a server says after the last byte of a file, or the last name in a directory."""


_SIZE, _OWNER, _MODE, _TIMES, _MORE = 1, 2, 4, 8, 0x80000000


@dataclass
class Attributes:
    """What is known of a file, in the words of `os.stat`; None for what the server did not say."""

    filename: str = ""
    longname: str = ""
    st_size: int | None = None
    st_uid: int | None = None
    st_gid: int | None = None
    st_mode: int | None = None
    st_atime: int | None = None
    st_mtime: int | None = None

    @classmethod
    def of(cls, status: os.stat_result, filename: str = "") -> Attributes:
        """Return what this machine knows of a file."""
        return cls(
            filename=filename,
            st_size=status.st_size,
            st_uid=status.st_uid,
            st_gid=status.st_gid,
            st_mode=status.st_mode,
            st_atime=int(status.st_atime),
            st_mtime=int(status.st_mtime),
        )

    def packed(self) -> bytes:
        """Return them as they travel: what is not None is to be set."""
        flags, body = 0, b""
        if self.st_size is not None:
            flags, body = flags | _SIZE, body + struct.pack(">Q", self.st_size)
        if self.st_uid is not None and self.st_gid is not None:
            flags, body = flags | _OWNER, body + struct.pack(">II", self.st_uid, self.st_gid)
        if self.st_mode is not None:
            flags, body = flags | _MODE, body + struct.pack(">I", self.st_mode)
        if self.st_atime is not None and self.st_mtime is not None:
            flags, body = flags | _TIMES, body + struct.pack(">II", self.st_atime, self.st_mtime)
        return struct.pack(">I", flags) + body


class Packet:
    """A packet that came, read from its front; raises EOFError where there is no more of it."""

    def __init__(self, kind: int, body: bytes) -> None:
        self.kind = kind
        self._body = body
        self._at = 0

    def number(self) -> int:
        """Return the next number."""
        return int(self._unpack(">I"))

    def data(self) -> bytes:
        """Return the next string of bytes."""
        length = self.number()
        self._at += length
        if self._at > len(self._body):
            raise EOFError("the server sent half of a packet")
        return self._body[self._at - length : self._at]

    def text(self) -> str:
        """Return the next string as a name."""
        return os.fsdecode(self.data())

    def attributes(self) -> Attributes:
        """Return the next description of a file."""
        flags = self.number()
        found = Attributes()
        if flags & _SIZE:
            found.st_size = int(self._unpack(">Q"))
        if flags & _OWNER:
            found.st_uid, found.st_gid = self.number(), self.number()
        if flags & _MODE:
            found.st_mode = self.number()
        if flags & _TIMES:
            found.st_atime, found.st_mtime = self.number(), self.number()
        if flags & _MORE:
            for _ in range(2 * self.number()):
                self.data()
        return found

    def _unpack(self, form: str) -> int:
        if self._at + struct.calcsize(form) > len(self._body):
            raise EOFError("the server sent half of a packet")
        (value,) = struct.unpack_from(form, self._body, self._at)
        self._at += struct.calcsize(form)
        return int(value)


def packed(kind: Kind, *parts: int | str | bytes | Attributes) -> bytes:
    """Return a packet: numbers of four bytes, strings, and descriptions of files."""
    body = bytes([kind]) + b"".join(_packed(part) for part in parts)
    return struct.pack(">I", len(body)) + body


class Long(int):
    """A number that takes eight bytes."""


def _packed(part: int | str | bytes | Attributes) -> bytes:
    if isinstance(part, Attributes):
        return part.packed()
    if isinstance(part, int):
        return struct.pack(">Q" if isinstance(part, Long) else ">I", part)
    data = os.fsencode(part) if isinstance(part, str) else part
    return struct.pack(">I", len(data)) + data


def receive(source: IO[bytes]) -> Packet:
    """Return the next packet.

    Raises:
        EOFError: the other end has closed, or does not speak this protocol.
    """
    head = source.read(5)
    length = int.from_bytes(head[:4], "big") - 1
    if len(head) < 5 or not 0 <= length <= LONGEST_PACKET:
        raise EOFError("the server does not speak sftp, or the connection broke")
    body = source.read(length)
    if len(body) < length:
        raise EOFError("the connection broke")
    return Packet(head[4], body)


def error(packet: Packet, path: str) -> OSError | None:
    """Return the error that a status stands for, which Python names by its number."""
    code = packet.number()
    if code == _OK:
        return None
    if code == _END_OF_FILE:
        return EndOfFile("the end of the file")
    return OSError(_ERRORS.get(code, errno.EIO), packet.text() or "Failure", path)
