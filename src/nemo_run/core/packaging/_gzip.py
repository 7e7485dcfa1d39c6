"""Compress with all cores into one gzip stream, whose bytes do not depend on how many there are."""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

BLOCK_BYTES = 1024 * 1024
LEVEL = 1

# Deflate, no name, no time, fastest, unknown system.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST = b"\x03\x00"


def compressed(pieces: Iterable[bytes], *, workers: int | None = None) -> Iterator[bytes]:
    """Yield a gzip stream of ``pieces``, however they are cut.

    Blocks are compressed each by itself and end on a byte, so that they can be put in a row; to a
    reader they are one member.
    """
    workers = workers or min(8, os.cpu_count() or 1)
    checksum = size_bytes = 0
    waiting: deque[Future[bytes]] = deque()
    yield _HEADER
    # zlib lets other threads run while it works.
    with ThreadPoolExecutor(workers) as pool:
        try:
            for block in _blocks(pieces):
                checksum = zlib.crc32(block, checksum)
                size_bytes += len(block)
                waiting.append(pool.submit(_deflated, block))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    yield _LAST + struct.pack("<LL", checksum, size_bytes & 0xFFFFFFFF)


def _deflated(block: bytes) -> bytes:
    # Raw deflate: one header for all is written by the caller.
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(block) + deflate.flush(zlib.Z_FULL_FLUSH)


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest) >= BLOCK_BYTES - len(block):
            room = BLOCK_BYTES - len(block)
            block += rest[:room]
            rest = rest[room:]
            yield bytes(block)
            block.clear()
        block += rest
    if block:
        yield bytes(block)
