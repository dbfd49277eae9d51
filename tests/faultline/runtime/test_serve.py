"""What a kubelet sees of a process whose broker keeps it waiting before it has begun."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import httpx

from faultline.runtime.serve import serve
from faultline.runtime.settings import Settings
from streams.model.pulse import Pulse
from streams.telemetry.registry import Metrics
from tests.testbed.children import free_port
from tests.testbed.waiting import eventually


async def test_a_process_is_alive_and_says_what_it_waits_for_while_kafka_does_not_answer() -> None:
    over = asyncio.Event()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async def work(pulse: Pulse, metrics: Metrics) -> None:
        raise AssertionError("it must not begin before its topics are known")

    async def answered() -> httpx.Response | None:
        async with httpx.AsyncClient(trust_env=False) as client:
            with suppress(httpx.ConnectError):
                return await client.get(f"http://127.0.0.1:{settings.http_port}/ready")
        return None

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    bootstrap = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    settings = Settings(http_host="127.0.0.1", http_port=free_port())
    settings = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"bootstrap": bootstrap})}
    )
    running = asyncio.ensure_future(serve("detector", settings, work))
    try:
        ready = await eventually(answered, "it answers its probes")
        assert (ready.status_code, ready.json()["waits_for"]) == (503, "Kafka's answer")
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{settings.http_port}/live")).status_code == 200
    finally:
        running.cancel()
        over.set()
        with suppress(asyncio.CancelledError):
            await running
        server.close()
        await server.wait_closed()
