"""Pass on to a plain server on loopback what comes in encrypted, or be a proxy.

Run as ``python relay.py PORT CERTIFICATE KEY``, or as ``python relay.py HEADS`` for a proxy, which
connects to the port it is told to, here whatever the host, and writes what it was told to the file
HEADS. Prints its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from pathlib import Path


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_pass_on(reader, to_writer), _pass_on(to_reader, writer))


async def _told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heads: Path) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    with heads.open("ab") as file:
        file.write(head)
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    return int(head.split()[1].rpartition(b":")[2])


async def main(first: str, *certificate: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(first) if tls else await _told(reader, writer, Path(first))
        await _join(reader, writer, port)

    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
