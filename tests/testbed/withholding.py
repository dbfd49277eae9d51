"""A way to a broker that carries every request on but those it is told to withhold: these are never answered.

For a broker that takes connections and writes while its reads hang, as one whose disks are away does. A broker that is reached
this way alone says so: `Kafka.running(properties=advertised(port))`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
"""Numbers of requests in Kafka's protocol."""


def advertised(port: int) -> dict[str, str]:
    """Properties of a broker that sends its clients to this port."""
    return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}


@asynccontextmanager
async def withholding(port: int, target: str) -> AsyncIterator[set[int]]:
    """Carry connections to `port` on to `target` (HOST:PORT). What the set holds is withheld from then on."""
    withheld: set[int] = set()
    open_now: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, onward_port = target.rsplit(":", 1)
        answers, onward = await asyncio.open_connection(host, int(onward_port))
        both = {
            asyncio.create_task(_requests(reader, onward, withheld)),
            asyncio.create_task(_carry(answers, writer)),
        }
        open_now.update(both)
        await asyncio.wait(both)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        yield withheld
    finally:
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)


async def _requests(reader: asyncio.StreamReader, onward: asyncio.StreamWriter, withheld: set[int]) -> None:
    """Each request is its length in four bytes, then the number of its kind in two."""
    try:
        while True:
            size = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(size))
            if int.from_bytes(body[:2]) not in withheld:
                onward.write(size + body)
                await onward.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client is gone
    finally:
        onward.close()


async def _carry(answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await answers.read(65_536):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass  # the client is gone
    finally:
        writer.close()
