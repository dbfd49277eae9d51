"""`python -m tests.testbed.forwarding HOST:PORT TARGET:PORT`: carry TCP connections on until killed.

The testbed's servers listen on loopback only; a container has a loopback of its own and reaches them through this.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

from tests.testbed.children import Child

_CHUNK = 65_536


def start(listen: str, target: str, log: Path) -> Child:
    """Carry connections to `listen` on to `target`, both HOST:PORT, until the child is stopped."""
    host, port = listen.rsplit(":", 1)
    child = Child("forwarding", [sys.executable, "-m", "tests.testbed.forwarding", listen, target], log=log)

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    child.wait_until(listens, f"listens on {listen}")
    return child


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass  # one side is gone, which the other is told by closing
    finally:
        writer.close()


async def _serve(listen: str, target: str) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = target.rsplit(":", 1)
        try:
            onward, back = await asyncio.open_connection(host, int(port))
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, back), _carry(onward, writer))

    host, port = listen.rsplit(":", 1)
    server = await asyncio.start_server(connected, host, int(port))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
