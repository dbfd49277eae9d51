"""The proxy does to a request exactly what it is told, once, and counts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.contract.faults import Answer, Cut, Fault, FaultProxy, Hang
from tests.testbed.waiting import eventually


class Upstream:
    """Counts what arrives and answers with the count."""

    def __init__(self) -> None:
        self.arrived: list[tuple[str, str, bytes]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.arrived.append((request.method, request.rel_url.raw_path_qs, await request.read()))
        return web.json_response({"n": len(self.arrived)}, status=201, headers={"Retry-After": "7"})


@pytest.fixture
async def upstream() -> AsyncIterator[tuple[Upstream, str]]:
    server = Upstream()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_without_faults_everything_goes_through_as_it_is(upstream: tuple[Upstream, str]) -> None:
    server, url = upstream
    async with FaultProxy(url) as proxy, aiohttp.ClientSession() as client:
        async with client.post(f"{proxy.url}/a%2Fb?c=d%20e", data=b"body") as reply:
            assert (reply.status, await reply.json(), reply.headers["Retry-After"]) == (201, {"n": 1}, "7")
        assert server.arrived == [("POST", "/a%2Fb?c=d%20e", b"body")]
        assert [(seen.write, seen.status) for seen in proxy.seen] == [(True, 201)]


@pytest.mark.parametrize(
    "fault", [Cut(forward=True), Cut(forward=False), Hang(forward=True), Hang(forward=False)]
)
async def test_an_answer_withheld_says_nothing_about_what_the_server_saw(
    upstream: tuple[Upstream, str], fault: Cut | Hang
) -> None:
    server, url = upstream
    reaches = 1 if fault.forward else 0

    async def has_come() -> bool:
        return len(proxy.writes) == 1 and len(server.arrived) == reaches

    async with FaultProxy(url) as proxy, aiohttp.ClientSession() as client:
        proxy.on_writes(fault)
        sending = asyncio.create_task(client.post(f"{proxy.url}/x"))
        await eventually(has_come, "the request has come as far as it shall")
        answered, _ = await asyncio.wait({sending}, timeout=0.3 if isinstance(fault, Hang) else None)
        assert bool(answered) == isinstance(fault, Cut)
        sending.cancel()
        with pytest.raises((aiohttp.ClientError, asyncio.CancelledError)):
            await sending
        assert len(server.arrived) == reaches
        assert [seen.status for seen in proxy.writes] == [None]


@pytest.mark.parametrize("forward", [True, False])
async def test_an_answer_of_the_proxys_own_may_hide_what_the_server_did(
    upstream: tuple[Upstream, str], forward: bool
) -> None:
    server, url = upstream
    async with FaultProxy(url) as proxy, aiohttp.ClientSession() as client:
        proxy.on_writes(Answer(429, "slow down", {"Retry-After": "3"}, forward=forward))
        async with client.patch(f"{proxy.url}/x") as reply:
            assert (reply.status, await reply.text(), reply.headers["Retry-After"]) == (429, "slow down", "3")
        assert len(server.arrived) == (1 if forward else 0)
        async with client.patch(f"{proxy.url}/x") as reply:
            assert reply.status == 201


async def test_faults_of_writes_and_of_reads_do_not_mix(upstream: tuple[Upstream, str]) -> None:
    _, url = upstream
    fault: Fault = Answer(500)
    async with FaultProxy(url) as proxy, aiohttp.ClientSession() as client:
        proxy.on_writes(fault)
        async with client.get(f"{proxy.url}/x") as read, client.post(f"{proxy.url}/x") as write:
            assert (read.status, write.status) == (201, 500)
        proxy.on_reads(fault)
        async with client.post(f"{proxy.url}/x") as write, client.get(f"{proxy.url}/x") as read:
            assert (read.status, write.status) == (500, 201)
