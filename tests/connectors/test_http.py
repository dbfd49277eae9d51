"""What an answer means for a change: who says "slow down" in which words, and what an upload looks like on the wire."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import certifi
import httpx
import pytest
from aiohttp import web

from connectors.base import NoLease
from connectors.http import Rejected, Upload, change, http_client, public_authorities, read, read_list
from streams.model.errors import Temporary

pytestmark = pytest.mark.embedded


class Server:
    """Answers what it is told to, and keeps what arrived."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 200, "{}", dict[str, str]()
        self.arrived: list[tuple[str, bytes]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.arrived.append((request.headers.get("Content-Type", ""), await request.read()))
        return web.Response(status=self.status, text=self.body, headers=self.headers)


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with http_client(f"http://127.0.0.1:{runner.addresses[0][1]}", timeout_s=3) as made:
        yield made
    await runner.cleanup()


THROTTLED = {
    "429 with a time": (429, {"Retry-After": "7"}, "{}", 7.0),
    "429 without": (429, {}, "{}", 5.0),
    "403 with a time": (403, {"Retry-After": "42"}, "{}", 42.0),
    "403 in words only": (403, {}, '{"message": "You have exceeded a secondary rate limit."}', 60.0),
}


@pytest.mark.parametrize(("status", "headers", "body", "pause"), THROTTLED.values(), ids=THROTTLED.keys())
async def test_a_limit_is_a_pause_of_the_length_that_is_asked_for(
    server: Server,
    client: httpx.AsyncClient,
    status: int,
    headers: dict[str, str],
    body: str,
    pause: float,
) -> None:
    server.status, server.headers, server.body = status, headers, body
    with pytest.raises(Temporary) as refused:
        await change(client, "POST", "x", lease=NoLease(), json={})
    assert refused.value.retry_after_s == pause


async def test_a_used_up_limit_says_when_it_is_reset(server: Server, client: httpx.AsyncClient) -> None:
    reset = int(time.time()) + 600
    server.status, server.headers = 403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(reset)}
    with pytest.raises(Temporary) as refused:
        await read(client, "GET", "x")
    assert refused.value.retry_after_s is not None
    assert 500 < refused.value.retry_after_s <= 600


async def test_any_other_403_is_a_refusal(server: Server, client: httpx.AsyncClient) -> None:
    server.status, server.body = 403, '{"message": "Resource not accessible by personal access token"}'
    with pytest.raises(Rejected):
        await change(client, "POST", "x", lease=NoLease(), json={})


async def test_a_list_is_read_as_a_list_and_refused_as_an_object(
    server: Server, client: httpx.AsyncClient
) -> None:
    server.body = '[{"a": 1}]'
    assert await read_list(client, "x") == [{"a": 1}]
    assert await change(client, "POST", "x", lease=NoLease(), json={}) == {"items": [{"a": 1}]}
    with pytest.raises(Temporary):
        await read(client, "GET", "x")
    server.body = '{"a": 1}'
    with pytest.raises(Temporary):
        await read_list(client, "x")


async def test_an_upload_is_a_form_or_the_bare_file(server: Server, client: httpx.AsyncClient) -> None:
    bare = Upload("a.txt", "text/plain", b"hello")
    await change(client, "POST", "x", lease=NoLease(), upload=bare)
    assert server.arrived[-1] == ("text/plain", b"hello")
    await change(client, "POST", "x", lease=NoLease(), upload=Upload("a.txt", "text/plain", b"hi", "file"))
    kind, body = server.arrived[-1]
    assert kind.startswith("multipart/form-data")
    assert b'name="file"; filename="a.txt"' in body


def test_certificates_are_read_once_until_the_bundle_that_the_environment_names_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = public_authorities(trust_env=True)
    assert shipped.get_ca_certs()
    assert shipped is public_authorities(trust_env=True)
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    with pytest.raises(OSError, match="NO_CERTIFICATE"):
        public_authorities(trust_env=True)
    shutil.copyfile(certifi.where(), bundle)
    os.utime(bundle, (1, 1))
    own = public_authorities(trust_env=True)
    assert own is not shipped
    assert own is public_authorities(trust_env=True)
    os.utime(bundle, (2, 2))
    assert own is not public_authorities(trust_env=True)
    assert public_authorities(trust_env=False) is not own, (
        "this machine itself is asked without the environment"
    )
